"""The forward dataflow of a spec: scores, lse, weights, output, on named axes."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sympy import Basic, Expr, Float, Integer, Mul, Symbol, Tuple, exp
from sympy.logic.boolalg import And, Boolean, Or

from attnc import symbols
from attnc.algebra import axes_of, gather_positions, share_repeated, split_by_axes
from attnc.graph.kernels import group_results
from attnc.graph.operations import (
    AXES,
    Contract,
    Dataflow,
    Gather,
    Input,
    Largest,
    LogSumExp,
    Map,
    Operation,
    symbol_of,
)
from attnc.graph.value_table import ValueTable
from attnc.spec.schema import AttentionSpec
from attnc.symbols import Read, replaced

VARIES = {
    "b": frozenset("b"),
    "h": frozenset("gr"),
    "h_kv": frozenset("g"),
    "q_idx": frozenset("q"),
    "q_pos": frozenset("q"),
    "kv_idx": frozenset("k"),
}  # along which axes the positions of a formula vary
DIM_INDEX = {
    "batch": symbols.b,
    "heads": symbols.h,
    "kv_heads": symbols.h_kv,
    "q_len": symbols.q_idx,
    "kv_len": symbols.kv_idx,
}  # the index that walks a dimension in step with the attention itself
DTYPES = {
    "fp32": "f32",
    "fp16": "f16",
    "bf16": "bf16",
    "int32": "i32",
    "int64": "i64",
    "bool": "i1",
}
DISTANCE = symbols.q_pos - symbols.kv_idx
EXTENT_NAMES = {frozenset("q"): "row", frozenset("k"): "key", frozenset("qk"): "tile"}


def build_dataflow(spec: AttentionSpec) -> Dataflow:
    """Write the spec's meaning (DESIGN section 2) as whole-tensor operations."""
    build = _Builder(spec)
    q = build.add("q", Input("q", ("b", "g", "r", "q", "d")))
    k = build.add("k", Input("k", ("b", "g", "k", "d")))
    v = build.add("v", Input("v", ("b", "g", "k", "e")))
    dot = build.add("qk", Contract((q, k), ("b", "g", "r", "q", "k")))
    dots = symbols.value_symbol(dot)
    mask = And(cast(Boolean, build.values_for(spec.mask)), *build.conditions())
    build.varies[dot] = frozenset("bgrqk")
    formula = spec.score.xreplace({symbols.score: symbols.scale * dots})
    logits = build.add("logits", Map(build.values_for(formula), AXES[:5], mask))
    lse = build.add("lse", LogSumExp((logits, *build.sinks()), "k", AXES[:4], mask))
    weights = exp(symbols.value_symbol(logits) - symbols.value_symbol(lse))
    p = build.add("p", Map(weights, AXES[:5], mask))
    weighted = "ungated" if spec.head_gate else "out"
    out = build.add(weighted, Contract((build.dropped(p, mask), v), ("b", "g", "r", "q", "e")))
    extra = {name: build.output(name, logits, lse, p, mask) for name in spec.outputs}
    outputs = {"out": build.gated(out)} | extra
    flow = Dataflow(spec, build.values, outputs)
    return replace(flow, kernels=group_results(flow))


def declared_names(spec: AttentionSpec) -> frozenset[str]:
    """What the spec calls its own: tensors and params."""
    return frozenset(named.name for named in (*spec.by_head, *spec.tensors, *spec.params))


class _Builder:
    """The spec's meaning, value by value."""

    def __init__(self, spec: AttentionSpec) -> None:
        self.spec = spec
        self.tensors = {tensor.name: tensor for tensor in spec.tensors}
        self.table = ValueTable(declared_names(spec))
        self.values = self.table.values
        self.varies = dict(VARIES)

    def add(self, name: str, operation: Operation) -> str:
        unique = self.table.add(name, operation)
        self.varies[unique] = frozenset(operation.axes)
        return unique

    def values_for(self, formula: Basic) -> Basic:
        """Give tensor reads and whatever varies along fewer axes values of their own."""
        formula = formula.xreplace({symbols.d: Integer(self.spec.head_dim_qk)})
        reads = sorted(formula.atoms(Read), key=lambda read: (_depth(read), str(read)))
        known: dict[Basic, Expr] = {}
        for read in reads:
            known[read] = self._read(replaced(read, known))
        formula = formula.xreplace(known)
        if isinstance(formula, Boolean):
            return formula
        formula = gather_positions(formula, self._name)
        tile = frozenset("qk")
        within_tile = {name: axes & tile for name, axes in self.varies.items()}
        split = split_by_axes(formula, within_tile, self._name, tile)
        return share_repeated(split, self._name)

    def conditions(self) -> tuple[Boolean, ...]:
        """A head whose gate is zero sees nothing, where nobody could tell the difference.

        The gradient of the gate could: it is made of what the head would have given.
        """
        if not self.spec.head_gate or self.spec.outputs:
            return ()
        opened = symbols.nonzero(self._gate())
        return (cast(Boolean, Or(symbols.keep, opened)) if self.spec.backward else opened,)

    def dropped(self, weights: str, mask: Boolean) -> str:
        """The weights as they meet v: where a seed is given some are 0 and the others larger."""
        if not self.spec.dropout:
            return weights
        seed = self.add("seed", Input("dropout_seed", (), "i64"))
        place = (symbols.b, symbols.h, symbols.q_idx, symbols.kv_idx)
        word = symbols.Random(symbols.value_symbol(seed, "i64"), *place)
        chosen = symbols.Where(word >= symbols.dropout_cutoff, Float(1), Float(0))
        kept = self.add("kept", Map(_if_seeded(chosen), AXES[:5]))
        factor = self.add("kept_factor", Map(_if_seeded(symbols.dropout_factor), ()))
        names = (weights, kept, factor)
        return self.add("weights", Map(Mul(*map(symbols.value_symbol, names)), AXES[:5], mask))

    def gated(self, out: str) -> str:
        if not self.spec.head_gate:
            return out
        gate = self._gate()
        product = symbols.Where(symbols.nonzero(gate), symbols.value_symbol(out) * gate, Integer(0))
        return self.add("out", Map(product, self.values[out].axes))

    def output(self, name: str, logits: str, lse: str, p: str, mask: Boolean) -> str:
        """An extra output, from the scores and the weights."""
        rows = AXES[:4]
        match name:
            case "max_score":
                return self.add(name, Largest(logits, "k", rows, mask))
            case "entropy":
                surprise = Map(-_log_weight(logits, lse), AXES[:5], mask)
                operands = (p, self.add("surprise", surprise))
                of_keys = "entropy_of_keys" if self.spec.sink else name
                return self._with_sink(self.add(of_keys, Contract(operands, rows)), lse)
            case "key_mass":
                return self.add(name, Contract((p,), ("b", "g", "r", "k")))
            case _:
                return lse

    def _with_sink(self, entropy: str, lse: str) -> str:
        """The entropy with the sink's term, where there is one."""
        for sink in self.sinks():
            share = exp(symbols.value_symbol(sink) - symbols.value_symbol(lse))
            p = self.add(f"p_{sink}", Map(share, AXES[:4]))
            term = symbols.value_symbol(p) * _log_weight(sink, lse)
            entropy = self.add("entropy", Map(symbols.value_symbol(entropy) - term, AXES[:4]))
        return entropy

    def sinks(self) -> tuple[str, ...]:
        """What joins the softmax beside the keys."""
        return (self.add("sink", Input("sink", ("g", "r"), "f32")),) if self.spec.sink else ()

    def _gate(self) -> Symbol:
        return symbols.value_symbol(self.add("head_gate", Input("head_gate", ("g", "r"), "f32")))

    def _read(self, read: Read) -> Expr:
        tensor = self.tensors[read.tensor]
        indices = tuple(self._index(tensor.name, index) for index in read.indices)
        axes = axes_of(Tuple(*indices), self.varies)
        ordered = tuple(axis for axis in AXES if axis in axes)
        dtype = DTYPES[tensor.dtype]
        in_step = all(
            index == DIM_INDEX.get(str(dim))
            for dim, index in zip(tensor.shape, indices, strict=True)
        )
        operation: Operation = (
            Input(tensor.name, ordered, dtype)
            if in_step
            else Gather(tensor.name, indices, ordered, dtype)
        )
        extent = EXTENT_NAMES.get(axes & frozenset("qk"), "here")
        return symbol_of(self.add(f"{tensor.name}_{extent}", operation), operation)

    def _index(self, tensor: str, index: Expr) -> Expr:
        """Name an index that is more than a position: its value may need 64 bits."""
        if index.is_Atom:
            return index
        return self._named(f"{tensor}_index", share_repeated(index, self._name))

    def _name(self, formula: Basic, _: frozenset[str] = frozenset()) -> Expr:
        axes = axes_of(formula, self.varies)
        extent = EXTENT_NAMES.get(
            axes & frozenset("qk"), "head" if axes & frozenset("gr") else "call"
        )
        is_distance = formula in (DISTANCE, -DISTANCE)
        return self._named("distance" if is_distance else f"{extent}_term", formula)

    def _named(self, name: str, formula: Basic) -> Expr:
        axes = axes_of(formula, self.varies)
        operation = Map(formula, tuple(axis for axis in AXES if axis in axes))
        return symbol_of(self.add(name, operation), operation)


def _if_seeded(formula: Expr) -> Expr:
    """A factor of the weights; 1 in a call without a seed, where it costs nothing."""
    return symbols.Where(symbols.switch_of("dropout_seed"), formula, Float(1))


def _log_weight(logits: str, lse: str) -> Expr:
    """The logarithm of a weight; 0 where the weight is 0, since 0 log 0 is."""
    return symbols.Anchor(symbols.value_symbol(logits) - symbols.value_symbol(lse))


def _depth(formula: Basic) -> int:
    return 1 + max((_depth(arg) for arg in formula.args), default=0)
