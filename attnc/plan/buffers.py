"""Which tensors a kernel reads and writes, how they are indexed, and which elements exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sympy import Expr, Integer, Le, Lt, Symbol, true
from sympy.logic.boolalg import And, Boolean

from attnc import symbols
from attnc.graph.operations import FEATURE_AXES, Dataflow, Gather, Input, LogSumExp, Map
from attnc.ir.nodes import BLOCK_KV, BLOCK_Q, Axis, Buffer
from attnc.ir.position_ranges import KNOWN, Range
from attnc.ranges import bounds
from attnc.symbols import Anchor, FloorDiv

BATCH, HEADS = (
    Symbol("batch", integer=True, nonnegative=True),
    Symbol("heads", integer=True, positive=True),
)
KV_HEADS = Symbol("kv_heads", integer=True, positive=True)
D_IDX, E_IDX = (Symbol(name, integer=True, nonnegative=True) for name in ("d_idx", "e_idx"))
Q_BLOCK, KV_BLOCK, N_BLOCK, N_FIRST, N_IDX = (
    Symbol(name, integer=True, nonnegative=True)
    for name in ("q_block", "kv_block", "n_block", "n_first", "n_idx")
)
BLOCK_DIMS = {"q": "block", "k": "kv_block"}  # of shares: a number for each tile that is held
DISTANCES = symbols.q_len + symbols.kv_len - 1  # kv_idx - q_pos from 1 - kv_len to q_len - 1
DIMS: dict[
    str, tuple[str, Expr, Expr]
] = {  # dimension of a declared tensor: stride name, extent, index in step
    "batch": ("b", BATCH, symbols.b),
    "heads": ("h", HEADS, symbols.h),
    "kv_heads": ("g", KV_HEADS, symbols.h_kv),
    "q_len": ("q", symbols.q_len, symbols.q_idx),
    "kv_len": ("k", symbols.kv_len, symbols.kv_idx),
}
LIVE = "{}, 0 in a row that sees nothing"
MEANINGS = {
    "lse": "natural log of each row's sum of exp",
    "max_score": "the largest score that a row sees",
    "entropy": "entropy of a row's weights, in nats",
    "key_mass": "sum of each key's weights",
    "grad_lse": "gradient of lse",
    "grad_entropy": "gradient of entropy",
    "grad_key_mass": "gradient of key_mass",
    "d_lse": "gradient of lse, by way of out too",
    "minus_d_lse": "what tiles subtract",
    "finite_lse": "lse, 0 for -inf",
    "live_grad_entropy": LIVE.format("grad_entropy"),
}
ALWAYS_INSIDE = {
    (symbols.b, BATCH),
    (symbols.h, HEADS),
    (symbols.h_kv, KV_HEADS),
    (Q_BLOCK, FloorDiv(symbols.q_len + BLOCK_Q - 1, BLOCK_Q)),
    (KV_BLOCK, FloorDiv(symbols.kv_len + BLOCK_KV - 1, BLOCK_KV)),
}


def attention_buffers(flow: Dataflow, written: frozenset[str]) -> tuple[Buffer, ...]:
    """Every tensor that a kernel may touch, in the order of the call; it writes those named."""
    spec = flow.spec
    kept = {*flow.kept} - flow.outputs.keys()  # written where a gradient is wanted
    if len(flow.kernels) > 1:  # and what one kernel of the forward makes for another, always
        kept -= {name for name, value in flow.values.items() if isinstance(value, LogSumExp)}
    qk, dv = Integer(spec.head_dim_qk), Integer(spec.head_dim_v)
    rows = (BATCH, HEADS, symbols.q_len)
    keys = (BATCH, KV_HEADS, symbols.kv_len)
    by_query, by_key, one = ("b", "h", "q"), ("b", "h", "k"), "f32"
    made = [
        Buffer("q", (*by_query, "d"), (*rows, qk), "element", "input", "queries"),
        Buffer("k", (*by_key, "d"), (*keys, qk), "element", "input", "keys"),
        Buffer("v", (*by_key, "e"), (*keys, dv), "element", "input", "values"),
    ]
    made += [
        _declared(tensor.name, tensor.shape, _dtype(flow, tensor.name)) for tensor in spec.tensors
    ]
    made += [
        Buffer("dropout_seed", (), (), "i64", "input", "64 random bits", optional=True),
        Buffer("head_gate", ("h",), (HEADS,), one, "input", "a factor for each head's output"),
        Buffer("sink", ("h",), (HEADS,), one, "input", "a logit of each head, with value 0"),
        Buffer("out", (*by_query, "e"), (*rows, dv), "element", "output", "weighted values"),
        Buffer(
            "ungated", (*by_query, "e"), (*rows, dv), "element", "output", "out before its gate"
        ),
        *_numbers(flow, _forward_numbers(flow)),
        Buffer("grad_out", (*by_query, "e"), (*rows, dv), "element", "input", "gradient of out"),
        Buffer(
            "live_grad_out",
            (*by_query, "e"),
            (*rows, dv),
            "element",
            "input",
            LIVE.format("grad_out"),
        ),
        *_numbers(flow, _backward_numbers(flow)),
        Buffer("grad_q", (*by_query, "d"), (*rows, qk), "element", "output", "gradient of q"),
        Buffer("grad_k", (*by_key, "d"), (*keys, qk), "element", "output", "gradient of k"),
        Buffer("grad_v", (*by_key, "e"), (*keys, dv), "element", "output", "gradient of v"),
    ]
    return tuple(
        replace(
            buffer, role="output", optional=buffer.name.startswith("grad_") or buffer.name in kept
        )
        if buffer.name in written
        else replace(buffer, role="input")
        for buffer in made
    )


def _numbers(flow: Dataflow, names: Mapping[str, str]) -> Iterator[Buffer]:
    """What has one float32 a query or key of each head; names: of the buffer -> of the value."""
    for name, value in names.items():
        operation = flow.values[value]
        axes = set(operation.axes)
        if not FEATURE_AXES & axes and {"b", "g", "r"} < axes:
            dim, length = ("k", symbols.kv_len) if "k" in axes else ("q", symbols.q_len)
            finite = isinstance(operation, Map) and isinstance(operation.formula, Anchor)
            yield Buffer(
                name,
                ("b", "h", dim),
                (BATCH, HEADS, length),
                "f32",
                "input",
                MEANINGS.get(name, "a number for each row"),
                finite=finite,
            )


def _forward_numbers(flow: Dataflow) -> dict[str, str]:
    """What the forward may write of these: outputs, what is kept, what its kernels pass on."""
    sums = (name for name, operation in flow.values.items() if isinstance(operation, LogSumExp))
    return {**flow.outputs, **{name: name for name in (*flow.kept, *sums)}}


def _backward_numbers(flow: Dataflow) -> dict[str, str]:
    """Gradients of outputs, and what the kernels of the backward pass on."""
    made = (name for graph in flow.backward for _, name in graph.results)
    cotangents = {f"grad_{name}": value for name, value in flow.outputs.items()}
    return {**cotangents, **{name: name for name in made}}


def _declared(name: str, shape: tuple[str | int, ...], dtype: str) -> Buffer:
    dims, sizes = [], []
    for position, dim in enumerate(shape):
        stride, extent = DIMS[dim][:2] if isinstance(dim, str) else (f"n{position}", Integer(dim))
        dims.append(stride if stride not in dims else f"{stride}{position}")
        sizes.append(extent)
    return Buffer(
        name, tuple(dims), tuple(sizes), dtype, "input", f"declared: [{', '.join(map(str, shape))}]"
    )


def _dtype(flow: Dataflow, tensor: str) -> str:
    reads = (
        op for op in flow.values.values() if isinstance(op, Input | Gather) and op.tensor == tensor
    )
    return next((op.dtype for op in reads), "f32")


def index_of(flow: Dataflow, operation: Input | Gather, buffer: Buffer) -> tuple[Expr, ...]:
    """One index for each dimension of the buffer."""
    if isinstance(operation, Gather):
        return operation.indices
    by_dim = {
        "b": symbols.b,
        "q": symbols.q_idx,
        "k": symbols.kv_idx,
        "d": D_IDX,
        "e": E_IDX,
        "g": symbols.h_kv,
    }
    by_dim["h"] = symbols.h if "r" in operation.axes or flow.spec.group == 1 else symbols.h_kv
    return tuple(by_dim[dim] for dim in buffer.dims)


def positions_of(buffer: Buffer) -> tuple[Expr, ...]:
    """The index of a buffer whose dimensions are those of the attention, position by position."""
    keys = "k" in buffer.dims and bool({"d", "e"} & set(buffer.dims))
    by_dim = {
        "b": symbols.b,
        "h": symbols.h_kv if keys else symbols.h,
        "g": symbols.h_kv,
        "block": Q_BLOCK,
        "kv_block": KV_BLOCK,
        "q": symbols.q_idx,
        "k": symbols.kv_idx,
        "n": N_IDX,
        "d": D_IDX,
        "e": E_IDX,
    }
    return tuple(by_dim[dim] for dim in buffer.dims)


def inside(
    flow: Dataflow,
    buffer: Buffer,
    index: Iterable[Expr],
    axes: Iterable[Axis],
    ranges: Mapping[str, Range] = KNOWN,
) -> Boolean:
    """What must hold for an index to lie inside the buffer, less what always holds."""
    given = buffer.optional and buffer.role == "input"
    always = ALWAYS_INSIDE | ({(symbols.h, KV_HEADS)} if flow.spec.group == 1 else set())
    known = {str(axis.index): axis for axis in axes}
    conditions: list[Boolean] = [symbols.switch_of(buffer.name)] if given else []
    for position, size in zip(index, buffer.sizes, strict=True):
        axis = known.get(str(position))
        if axis is not None and axis.size == size:
            conditions.append(Lt(position, size))
        elif (position, size) not in always:
            conditions += _between(position, size, ranges)
    return And(*conditions)


def _between(position: Expr, size: Expr, ranges: Mapping[str, Range]) -> list[Boolean]:
    low, high = bounds(position, ranges)
    conditions: list[Boolean] = []
    if low is None or low < 0:
        conditions.append(Le(0, position))
    if high is None or not size.is_Integer or high >= int(size):
        conditions.append(Lt(position, size))
    return [condition for condition in conditions if condition is not true]
