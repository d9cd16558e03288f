"""What one program instance of a kernel holds, and each value of the dataflow as a tile of it.

A program holds a tile of one axis and walks the tiles of the other: the forward and the gradient of
q hold queries and walk keys, the gradients of k and v hold keys and walk queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from sympy import Basic, Expr, Integer, exp, true
from sympy.logic.boolalg import And, Boolean

from attnc import symbols
from attnc.graph.operations import (
    FEATURE_AXES,
    Dataflow,
    Gather,
    Input,
    KernelGraph,
    LogSumExp,
    Map,
    is_integer,
)
from attnc.graph.operations import (
    Contract as WholeContract,
)
from attnc.ir.nodes import (
    BLOCK_KV,
    BLOCK_Q,
    Axis,
    Buffer,
    Collapse,
    Contract,
    Formula,
    Let,
    Load,
    Loop,
    Piece,
    Reduce,
    Scalar,
    Store,
)
from attnc.ir.position_ranges import KNOWN, learn
from attnc.ir.rebuild import reads_of_value, substitution
from attnc.plan import buffers
from attnc.plan.programs import KV_FIRST, Q_FIRST, Programs
from attnc.symbols import FloorDiv, names_in, value_symbol


class TilePlan:
    """The tiles of one kernel.

    held, walked: the axis whose tile a program holds, and the one that its loops walk.  stored:
    values that lie in a buffer of their own name.
    """

    def __init__(
        self, flow: Dataflow, graph: KernelGraph, stored: frozenset[str] = frozenset()
    ) -> None:
        self.flow, self.programs = flow, Programs(graph.grid, flow.spec.group)
        self.held, self.walked = self.programs.held, self.programs.walked
        self.results = frozenset(name for phase in graph.phases for name in phase)
        self.stored = stored - self.results
        written = frozenset(buffer for buffer, _ in graph.results)
        self.buffers = {b.name: b for b in buffers.attention_buffers(flow, written)}
        self.axes = self._axes()
        self.ranges = dict(KNOWN)
        self.summed = self._summed()
        self.lets: dict[str, Let] = {}
        self.lets["q_pos"] = self._q_pos()
        for name in flow.values:
            if (let := self.let(name)) is not None:
                self.lets[name] = let
                learn(let, self.ranges)
        named = ((called, let) for key, let in self.lets.items() for called in (key, let.name))
        self.varies = {called: frozenset(let.axes) for called, let in named} | {
            "q_idx": frozenset("q"),
            "q_pos": frozenset("q"),
            "kv_idx": frozenset("k"),
        }

    def _axes(self) -> tuple[Axis, ...]:
        spec = self.flow.spec
        qk, dv = Integer(spec.head_dim_qk), Integer(spec.head_dim_v)
        piece = _piece(self.flow)
        role = {self.held: "rows", self.walked: "columns"}
        return (
            Axis("q", role["q"], symbols.q_len, BLOCK_Q, symbols.q_idx, Q_FIRST),
            Axis("k", role["k"], symbols.kv_len, BLOCK_KV, symbols.kv_idx, KV_FIRST),
            *((self._distances(),) if self.programs.is_by_distance else ()),
            Axis("d", "feature", qk, qk, buffers.D_IDX, Integer(0), piece),
            Axis("e", "feature", dv, dv, buffers.E_IDX, Integer(0), piece),
        )

    def axis(self, name: str) -> Axis:
        """The axis of that name."""
        return next(axis for axis in self.axes if axis.name == name)

    def _distances(self) -> Axis:
        return Axis("n", "rows", buffers.DISTANCES, BLOCK_KV, buffers.N_IDX, buffers.N_FIRST)

    def positions(self) -> list[Let]:
        """Where the program's tiles stand, and which heads belong together."""
        return self.programs.places()

    def _q_pos(self) -> Let:
        note = "position of each query among the keys"
        return Let("q_pos", Formula(symbols.Q_POS), ("q",), "i32", note)

    def scalars(self) -> tuple[Scalar, ...]:
        """The numbers of the call."""
        made = [
            Scalar("batch", "i32", "batch entries"),
            Scalar("heads", "i32", "query heads"),
            Scalar("kv_heads", "i32", "key/value heads"),
            Scalar("q_len", "i32", "queries"),
            Scalar("kv_len", "i32", "keys"),
            Scalar("scale", "f32", "factor of q . k"),
        ]
        made.append(Scalar(symbols.keep.name, "switch", "whether a gradient is wanted"))
        if self.flow.spec.dropout:
            made += [
                Scalar("has_dropout_seed", "switch", "whether weights are dropped"),
                Scalar("dropout_cutoff", "i32", "a weight with a lower random number is dropped"),
                Scalar("dropout_factor", "f32", "of the weights that are kept"),
            ]
        kinds = {"int": "i32", "float": "f32"}
        made += [
            Scalar(param.name, kinds[param.kind], "param of the spec")
            for param in self.flow.spec.params
        ]
        return tuple(made)

    # ------------------------------------------------------------ values

    def label(self, name: str) -> str:
        """What a value's tile is called: tensors with features are tiles of themselves."""
        operation = self.flow.values[name]
        is_tensor = isinstance(operation, Input) or name in self.stored
        return f"{name}_tile" if is_tensor and FEATURE_AXES & set(operation.axes) else name

    def along(self, name: str, axes: Iterable[str]) -> tuple[str, ...]:
        """The order of a tile's axes: what is held first, and what a product sums over before."""
        inner = (self.walked, "d", "e") if name in self.summed else ("d", "e", self.walked)
        return tuple(axis for axis in (self.held, *inner) if axis in axes)

    def needed(self, *formulas: Basic) -> tuple[Let, ...]:
        """The values along the walked axis that formulas need, directly or not, in order."""
        by_name = {let.name: let for let in self.lets.values() if self.walked in let.axes}
        found: set[str] = set()
        todo = list(names_in(*formulas))
        while todo:
            let = by_name.get(todo.pop())
            if let is not None and let.name not in found:
                found.add(let.name)
                todo += reads_of_value(let.value)
        return tuple(let for let in by_name.values() if let.name in found)

    def loop(self, reductions: Iterable[Reduce]) -> Loop:
        """A loop over every tile of the walked axis."""
        axis, made = self.axis(self.walked), tuple(reductions)
        everything = Piece(Integer(0), FloorDiv(axis.size + axis.tile - 1, axis.tile))
        body = self.needed(*(part for one in made for part in (one.element, one.where)))
        return Loop(self.walked, (everything,), body, made)

    def in_range(self, where: Boolean) -> Boolean:
        """A condition on the positions of the walked axis that exist."""
        axis = self.axis(self.walked)
        return And(where, axis.index < axis.size)

    def store(self, buffer_name: str, value: str) -> Store:
        """Write a result at the positions of its axes."""
        buffer = self.buffers[buffer_name]
        index = buffers.positions_of(buffer)
        return Store(buffer_name, index, value, self.inside(buffer, index))

    def inside(self, buffer: Buffer, index: tuple[Expr, ...]) -> Boolean:
        """What must hold for an index to lie inside a buffer."""
        return buffers.inside(self.flow, buffer, index, self.axes, self.ranges)

    def _summed(self) -> frozenset[str]:
        """Values whose features a sum over what is walked keeps, and what they are made of."""
        found: set[str] = set()
        for name in self.results:
            operation = self.flow.values[name]
            if isinstance(operation, WholeContract) and self.walked not in operation.axes:
                found |= {o for o in operation.operands if self.walked in self.flow.values[o].axes}
        for name in reversed(tuple(self.flow.values)):  # a map lies as what it is made of
            if name in found and isinstance(self.flow.values[name], Map):
                found |= set(self.flow.operands(name))
        return frozenset(name for name in found if FEATURE_AXES & set(self.flow.values[name].axes))

    def let(self, name: str) -> Let | None:
        """The tile of a value, or None for what the kernel reduces and what is made of that."""
        operation = self.flow.values[name]
        if name in self.results:
            return None
        if name in self.stored:
            return self._load(name, name, buffers.positions_of(self.buffers[name]))
        match operation:
            case Input(tensor) | Gather(tensor):
                index = buffers.index_of(self.flow, operation, self.buffers[tensor])
                return self._load(name, tensor, index, operation.dtype)
            case WholeContract(operands) if self._is_over_features(operation):
                return self._product(name, operands)
            case Map(formula) if not self._waits(formula):
                dtype = "i32" if is_integer(operation) else "f32"
                axes = self.along(name, operation.axes)
                expr = cast(Expr, self.by_label(formula))
                return Let(name, Formula(expr), axes, dtype, self._origin(name))
            case _:
                return None

    def _load(self, name: str, buffer_name: str, index: tuple[Expr, ...], dtype: str = "") -> Let:
        buffer = self.buffers[buffer_name]
        load = Load(buffer_name, index, self.inside(buffer, index))
        axes = self.along(name, self.flow.values[name].axes)
        return Let(self.label(name), load, axes, dtype or buffer.dtype)

    def _product(self, name: str, operands: tuple[str, ...]) -> Let:
        """A product over features, what is held on the left."""
        axes_of = {operand: self.flow.values[operand].axes for operand in operands}
        left, right = sorted(operands, key=lambda operand: self.held not in axes_of[operand])
        over = tuple(axis for axis in axes_of[left] if axis in FEATURE_AXES)
        axes = self.along(name, self.flow.values[name].axes)
        if self.walked in axes:
            return Let(name, Contract(self.label(left), self.label(right), over), axes)
        terms = f"{name}_terms"
        product = value_symbol(self.label(left)) * value_symbol(self.label(right))
        product = Formula(self.unless_blind(product, operands))
        self.lets[terms] = Let(terms, product, self.along(name, {*axes, *over}))
        return Let(name, Collapse("sum", terms, *over), axes)

    def unless_blind(self, product: Expr, operands: Iterable[str]) -> Expr:
        """A product with a kept weighted sum, or with a share of a row; 0 where that is 0.

        So it is in a row that sees nothing, whose cotangent may hold a NaN.
        """
        for name in operands:
            of_features = FEATURE_AXES & set(self.flow.values[name].axes)
            if (name in self.flow.kept and of_features) or self.is_share(name):
                seen = symbols.nonzero(value_symbol(self.label(name)))
                product = symbols.Where(seen, product, Integer(0))
        return product

    def is_share(self, name: str) -> bool:
        """Whether a value is what a sink takes of a row: exp(sink - lse)."""
        operation = self.flow.values[name]
        if not isinstance(operation, Map) or not isinstance(operation.formula, exp):
            return False
        read = (self.flow.values.get(part) for part in names_in(operation.formula))
        return "k" not in operation.axes and any(isinstance(x, LogSumExp) for x in read)

    def _is_over_features(self, contract: WholeContract) -> bool:
        """Whether a sum runs over features alone: a tile of scores, or a number for each row."""
        read = {axis for operand in contract.operands for axis in self.flow.values[operand].axes}
        return not FEATURE_AXES & set(contract.axes) and read - set(contract.axes) <= FEATURE_AXES

    def by_label(self, formula: Basic) -> Basic:
        """A formula over what the tiles of its values are called."""
        named = {name: self.label(name) for name in names_in(formula) & set(self.flow.values)}
        changes = {name: value_symbol(label) for name, label in named.items() if name != label}
        return substitution(changes)(formula)

    def _origin(self, name: str) -> str:
        is_score = name == "logits" and self.flow.spec.score != symbols.score
        return f"score: {self.flow.spec.score_text}" if is_score else ""

    def mask_note(self) -> str:
        """The user's mask, for the reader of the generated file."""
        return "" if self.flow.spec.mask == true else f"mask: {self.flow.spec.mask_text}"

    def _waits(self, formula: Basic) -> bool:
        """Whether a formula reads what the kernel reduces, or what is made of that."""
        return not names_in(formula) & set(self.flow.values) <= set(self.lets)


def _piece(flow: Dataflow) -> int:
    """The widest piece of a head dim, where the spec's schedule says; of a list, the first."""
    asked = (flow.spec.schedule or {}).get("piece", 128)
    assert not isinstance(asked, Mapping)
    return asked[0] if isinstance(asked, tuple) else asked
