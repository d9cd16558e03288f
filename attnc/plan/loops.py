"""Write each kernel of the dataflow as the textbook's loops: one for each reduction over the keys.

    for keys:  row_max = max of t
    for keys:  row_sum = sum of exp(t - row_max)
    for keys:  acc     = sum of exp(t - row_max) v
    out = acc / row_sum;  lse = row_max + log row_sum

A LogSumExp is computed as a maximum and a sum against it, so wherever exp(t - lse) is summed, lse
is written out and the factors that do not vary along the keys leave the sum.
"""

from __future__ import annotations

from typing import cast

import sympy
from sympy import Basic, Expr, Integer, S, Symbol, exp, log, true
from sympy.logic.boolalg import And, Boolean

from attnc import symbols
from attnc.algebra import factors_along
from attnc.graph.operations import (
    Contract as WholeContract,
)
from attnc.graph.operations import (
    Dataflow,
    Gather,
    Input,
    KernelGraph,
    LogSumExp,
    Map,
    is_integer,
)
from attnc.ir.functions import InverseOrZero, Log2
from attnc.ir.nodes import (
    BLOCK_KV,
    BLOCK_Q,
    Axis,
    Contract,
    Formula,
    GridDim,
    Kernel,
    Let,
    Load,
    Loop,
    Piece,
    Program,
    Reduce,
    Scalar,
    Stmt,
    Store,
)
from attnc.ir.position_ranges import KNOWN, learn
from attnc.ir.rebuild import prune, reads_of_value
from attnc.plan import buffers
from attnc.plan.interface import interface_of
from attnc.symbols import FloorDiv, names_in, replaced, value_symbol

Q_BLOCK, Q_FIRST, KV_FIRST = (
    Symbol(name, integer=True, nonnegative=True) for name in ("q_block", "q_first", "kv_first")
)
TILE_AXES = (
    "q",
    "d",
    "k",
    "e",
)  # order of axes within a tile: rows, then columns; a key tile is (d, k)
ROW_MAX, ROW_SUM, ACCUMULATOR = "row_max", "row_sum", "acc"
LOG_ROW_SUM = Symbol("log_row_sum", real=True)  # opaque, or sympy would write exp(-log(l)) as 1 / l


def plan_program(flow: Dataflow) -> Program:
    """The naive program: every kernel of the dataflow as plain loops over tiles."""
    kernels = tuple(_KernelPlan(flow, graph).kernel() for graph in flow.kernels)
    return Program(interface_of(flow), kernels)


def _piece(flow: Dataflow) -> int:
    """The widest piece of a head dim, where the spec's schedule says; of a list, the first."""
    asked = (flow.spec.schedule or {}).get("piece", 128)
    return asked[0] if isinstance(asked, tuple) else asked


class _KernelPlan:
    def __init__(self, flow: Dataflow, graph: KernelGraph) -> None:
        spec = flow.spec
        self.flow, self.graph = flow, graph
        self.buffers = {buffer.name: buffer for buffer in buffers.attention_buffers(flow)}
        qk, dv = Integer(spec.head_dim_qk), Integer(spec.head_dim_v)
        piece = _piece(flow)
        self.axes = (
            Axis("q", "rows", symbols.q_len, BLOCK_Q, symbols.q_idx, Q_FIRST),
            Axis("k", "columns", symbols.kv_len, BLOCK_KV, symbols.kv_idx, KV_FIRST),
            Axis("d", "feature", qk, qk, buffers.D_IDX, Integer(0), piece),
            Axis("e", "feature", dv, dv, buffers.E_IDX, Integer(0), piece),
        )
        self.ranges = dict(KNOWN)
        self.lets: dict[str, Let] = {}
        for name in flow.values:
            if (let := self._let(name)) is not None:
                self.lets[name] = let
                learn(let, self.ranges)
        self.varies = {name: frozenset(let.axes) for name, let in self.lets.items()} | {
            "q_idx": frozenset("q"),
            "q_pos": frozenset("q"),
            "kv_idx": frozenset("k"),
        }
        self.written_out: dict[Expr, Expr] = {}  # lse -> row_max + log(row_sum)

    def kernel(self) -> Kernel:
        body: list[Stmt] = [
            *self._positions(),
            *(let for let in self.lets.values() if "k" not in let.axes),
        ]
        for phase in self.graph.phases:
            for name in phase:
                body += self._result(name)
        body += [
            store for name, value in self.flow.outputs.items() for store in self._store(name, value)
        ]
        grid = (
            GridDim(Q_BLOCK, FloorDiv(symbols.q_len + BLOCK_Q - 1, BLOCK_Q)),
            GridDim(symbols.h, buffers.HEADS),
            GridDim(symbols.b, buffers.BATCH),
        )
        kernel = Kernel(
            "forward", self.axes, grid, tuple(self.buffers.values()), self._scalars(), tuple(body)
        )
        return prune(kernel)

    def _positions(self) -> list[Let]:
        """Where the tile stands."""
        group = self.flow.spec.group
        return [
            Let(
                "h_kv",
                Formula(FloorDiv(symbols.h, group)),
                dtype="i32",
                note="the head that its group shares",
            ),
            Let("q_first", Formula(Q_BLOCK * BLOCK_Q), dtype="i32"),
            Let(
                "q_pos",
                Formula(symbols.Q_POS),
                ("q",),
                "i32",
                "position of each query among the keys",
            ),
        ]

    def _scalars(self) -> tuple[Scalar, ...]:
        made = [
            Scalar("batch", "i32", "batch entries"),
            Scalar("heads", "i32", "query heads"),
            Scalar("kv_heads", "i32", "key/value heads"),
            Scalar("q_len", "i32", "queries"),
            Scalar("kv_len", "i32", "keys"),
            Scalar("scale", "f32", "factor of q . k"),
        ]
        kinds = {"int": "i32", "float": "f32"}
        made += [
            Scalar(param.name, kinds[param.kind], "param of the spec")
            for param in self.flow.spec.params
        ]
        return tuple(made)

    # ------------------------------------------------------------ values

    def _let(self, name: str) -> Let | None:
        """The tile of a value that is not a reduction over the keys."""
        operation = self.flow.values[name]
        axes = tuple(axis for axis in TILE_AXES if axis in operation.axes)
        match operation:
            case Input(tensor) | Gather(tensor):
                buffer = self.buffers[tensor]
                index = buffers.index_of(self.flow, operation, buffer)
                guard = buffers.inside(self.flow, buffer, index, self.axes, self.ranges)
                label = f"{name}_tile" if name in ("q", "k", "v") else name
                return Let(label, Load(tensor, index, guard), axes, operation.dtype)
            case WholeContract((left, right)) if "k" in operation.axes:
                return Let(name, Contract(f"{left}_tile", f"{right}_tile", ("d",)), axes)
            case Map(formula) if not self._reads_reduction(formula):
                dtype = "i32" if is_integer(operation) else "f32"
                return Let(name, Formula(cast(Expr, formula)), axes, dtype, self._origin(name))
            case _:
                return None

    def _origin(self, name: str) -> str:
        return (
            f"score: {self.flow.spec.score_text}"
            if name == "logits" and self.flow.spec.score != symbols.score
            else ""
        )

    def _mask_note(self) -> str:
        return "" if self.flow.spec.mask == true else f"mask: {self.flow.spec.mask_text}"

    def _reads_reduction(self, formula: Basic) -> bool:
        reductions = {name for phase in self.graph.phases for name in phase}
        return not reductions.isdisjoint(names_in(formula))

    # ------------------------------------------------------------ reductions

    def _result(self, name: str) -> list[Stmt]:
        match self.flow.values[name]:
            case LogSumExp(operand, _, _, where):
                return self._log_sum_exp(name, operand, where)
            case WholeContract((weights, values)) if (
                weights in self.flow.values and "k" in self.flow.values[weights].axes
            ):
                return self._weighted_sum(name, weights, values)
            case Map(formula, axes):
                along = tuple(axis for axis in TILE_AXES if axis in axes)
                return [Let(name, Formula(cast(Expr, formula)), along)]
            case _:
                return []

    def _log_sum_exp(self, name: str, operand: str, where: Boolean) -> list[Stmt]:
        t, row_max, row_sum = (value_symbol(n) for n in (operand, ROW_MAX, ROW_SUM))
        shown, note = self._in_range(where), self._mask_note()
        largest = Reduce(ROW_MAX, "max", "k", t, ("q",), S.NegativeInfinity, shown, note=note)
        weights = exp(t - row_max)
        total = Reduce(ROW_SUM, "sum", "k", weights, ("q",), Integer(0), shown, note=note)
        self.written_out[value_symbol(name)] = row_max + LOG_ROW_SUM
        logarithm = row_max + Log2(row_sum) * log(2)
        lse = Let(
            name, Formula(logarithm), ("q",), note="natural log; -inf for a row that sees nothing"
        )
        return [self._loop(largest), self._loop(total), lse]

    def _weighted_sum(self, name: str, weights: str, values: str) -> list[Stmt]:
        operation = self.flow.values[weights]
        assert isinstance(operation, Map)
        shares = cast(Expr, replaced(operation.formula, self.written_out))
        element = _expand_weights(shares) * value_symbol(f"{values}_tile")
        varies = self.varies | {
            f"{values}_tile": frozenset("ke"),
            ROW_MAX: frozenset("q"),
            ROW_SUM: frozenset("q"),
        }
        outside, inside = factors_along(element, "k", varies)
        where = self._in_range(operation.where)
        total = Reduce(
            ACCUMULATOR, "sum", "k", inside, ("q", "e"), Integer(0), where, note=self._mask_note()
        )
        factor = Let(
            "inverse", Formula(outside), ("q",), note="a row that sees nothing divides by nothing"
        )
        product = value_symbol(ACCUMULATOR) * value_symbol("inverse")
        return [self._loop(total), factor, Let(name, Formula(product), ("q", "e"))]

    def _in_range(self, where: Boolean) -> Boolean:
        return And(where, symbols.kv_idx < symbols.kv_len)

    def _loop(self, reduction: Reduce) -> Loop:
        everything = Piece(Integer(0), FloorDiv(symbols.kv_len + BLOCK_KV - 1, BLOCK_KV))
        needed = self._needed(reduction.element) | self._needed(reduction.where)
        body = tuple(let for let in self.lets.values() if let.name in needed)
        return Loop("k", (everything,), body, (reduction,))

    def _needed(self, formula: Basic) -> set[str]:
        """The values along the keys that a formula needs, directly or not."""
        by_name = {let.name: let for let in self.lets.values() if "k" in let.axes}
        found: set[str] = set()
        todo = list(names_in(formula))
        while todo:
            let = by_name.get(todo.pop())
            if let is not None and let.name not in found:
                found.add(let.name)
                todo += reads_of_value(let.value)
        return found

    # ------------------------------------------------------------ results

    def _store(self, name: str, value: str) -> list[Stmt]:
        buffer = self.buffers[name]
        features = (buffers.E_IDX,) if "e" in buffer.dims else ()
        index = (symbols.b, symbols.h, symbols.q_idx, *features)
        return [
            Store(
                name, index, value, buffers.inside(self.flow, buffer, index, self.axes, self.ranges)
            )
        ]


def _expand_weights(weights: Expr) -> Expr:
    """exp(a - log(l))   ->   exp(a) * InverseOrZero(l)."""
    if not isinstance(weights, exp):
        return weights
    exponent = sympy.expand(weights.args[0])
    if exponent.coeff(LOG_ROW_SUM) != -1:
        return weights
    return exp(exponent + LOG_ROW_SUM) * InverseOrZero(value_symbol(ROW_SUM))
