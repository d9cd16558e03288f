"""Check that a program is well formed: a pass that leaves anything else has a bug.

What is checked: nodes fit the level; names are bound once and before use; tiles carry every axis
along which their parts vary; sums and updates keep shapes; loads and stores index every dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sympy import Basic

from attnc.ir.levels import allowed
from attnc.ir.nodes import (
    Collapse,
    Contract,
    Dot,
    Fill,
    Formula,
    Kernel,
    Let,
    Level,
    Load,
    Loop,
    Node,
    Pick,
    Piece,
    Program,
    Reduce,
    Rounds,
    Start,
    Stmt,
    Store,
    Update,
    Value,
)
from attnc.ir.rebuild import lets_of
from attnc.ir.running_ahead import mistake_in
from attnc.symbols import b, d, h, h_kv, kv_len, names_in, q_len, q_pos

Axes = frozenset[str]
NOWHERE: Axes = frozenset()


class IRError(Exception):
    """A program broke a rule of the IR: a bug of attnc's own, never the user's mistake."""


def verify(program: Program | Kernel, level: Level) -> None:
    """Raise IRError at the first rule of the level that a program, or one kernel, breaks."""
    if isinstance(program, Kernel):
        _Checker(program, level).check()
        return
    if program.level is not level:
        raise IRError(f"the program says it is {program.level.value}, not {level.value}")
    _once("kernel", [kernel.name for kernel in program.kernels])
    for kernel in program.kernels:
        _Checker(kernel, level).check()


def _once(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise IRError(f"{what} {name} is declared twice")
        seen.add(name)


@dataclass(slots=True)
class _Checker:
    """Walks one kernel; `names` holds what is bound so far, with the axes along which it varies."""

    kernel: Kernel
    level: Level
    names: dict[str, Axes] = field(default_factory=dict)
    carried: set[str] = field(default_factory=set)
    open_axes: set[str] = field(default_factory=set)

    def check(self) -> None:
        kernel = self.kernel
        _once("axis", [axis.name for axis in kernel.axes])
        _once("buffer", [buffer.name for buffer in kernel.buffers])
        _once("scalar", [scalar.name for scalar in kernel.scalars])
        _once("grid index", [dim.index.name for dim in kernel.grid])
        for buffer in kernel.buffers:
            if len(buffer.dims) != len(buffer.sizes):
                raise IRError(f"buffer {buffer.name} needs one size for each dim")
        self.open_axes = {axis.name for axis in kernel.axes if axis.role != "columns"}
        bound = {let.name for let in lets_of(kernel.body)}
        loops = (stmt for stmt in kernel.body if isinstance(stmt, Loop))
        bound |= {str(loop.rounds.index) for loop in loops if loop.rounds is not None}
        for scalar in kernel.scalars:
            if scalar.name in bound:
                raise IRError(f"{scalar.name} is bound, but it is a scalar of the call")
        self.names = {name: axes for name, axes in self._given() if name not in bound}
        for stmt in kernel.body:
            self._statement(stmt)

    def _given(self) -> Iterator[tuple[str, Axes]]:
        """What formulas may name without a Let: lengths, heads, scalars, grid digits, positions."""
        kernel = self.kernel
        queries = {axis.name for axis in kernel.axes if axis.name == "q"}
        for symbol in (b, h, h_kv, q_len, kv_len, d):
            yield symbol.name, NOWHERE
        yield q_pos.name, frozenset(queries)
        yield from ((scalar.name, NOWHERE) for scalar in kernel.scalars)
        yield from ((dim.index.name, NOWHERE) for dim in kernel.grid)
        sizes: list[Basic] = [dim.extent for dim in kernel.grid]
        sizes += [size for buffer in kernel.buffers for size in buffer.sizes]
        sizes += [part for axis in kernel.axes for part in (axis.size, axis.tile, axis.first)]
        yield from ((name, NOWHERE) for name in names_in(*sizes))
        positions = ((axis, place) for axis in kernel.axes for place in (axis.index, axis.within))
        yield from ((place.name, frozenset({axis.name})) for axis, place in positions)

    def _statement(self, stmt: Stmt) -> None:
        self._fits(stmt)
        match stmt:
            case Let() | Start():
                self._let(stmt)
            case Loop():
                self._loop(stmt)
            case Store():
                self._store(stmt)

    def _fits(self, node: Node) -> None:
        if not allowed(node, self.level):
            raise IRError(
                f"{type(node).__name__} cannot stand in a {self.level.value} kernel: {node}"
            )

    def _let(self, let: Let | Start) -> None:
        self._fits(let.value)
        found = self._value_axes(let.name, let.value)
        axes = frozenset(let.axes)
        _once(f"{let.name}'s axis", let.axes)
        if not found <= axes:
            raise IRError(f"{let.name}{list(let.axes)} varies along {_listed(found - axes)} too")
        if not isinstance(let.value, Formula | Fill) and found != axes:
            raise IRError(f"{let.name}{list(let.axes)} cannot vary along {_listed(axes - found)}")
        # a carried tile may stand for whichever tile its loop counts
        closed = NOWHERE if isinstance(let, Start) else axes - self.open_axes
        if closed:
            raise IRError(f"{let.name} has axis {_listed(closed)} outside its loop")
        self._bind(let.name, axes)
        if isinstance(let, Start):
            self.carried.add(let.name)

    def _bind(self, name: str, axes: Axes) -> None:
        if name in self.names:
            raise IRError(f"{name} is bound twice")
        self.names[name] = axes

    def _value_axes(self, name: str, value: Value) -> Axes:
        match value:
            case Load(buffer, index, guard, described):
                self._indexes(name, buffer, len(index))
                if self._axes(name, *(described or ())):
                    raise IRError(f"{name} is described by rows that vary within a tile")
                return self._axes(name, *index, guard)
            case Formula(expr) | Fill(expr):
                return self._axes(name, expr)
            case Contract(left, right, over):
                return self._product(name, left, right, over)
            case Dot(left, right, over, add_to):
                axes = self._product(name, left, right, (over,))
                if add_to is not None and self._of(name, add_to) != axes:
                    raise IRError(f"{name} adds a product over {_listed(axes)} to {add_to}")
                return axes
            case Collapse(_, of, over):
                if over not in self._of(name, of):
                    raise IRError(f"{name} collapses {over}, which {of} lacks")
                return self._of(name, of) - {over}
            case Pick(of, over, slot):
                return self._picked(name, of, over, slot)

    def _picked(self, name: str, of: str, over: str, slot: str) -> Axes:
        if over not in self._of(name, of) or over in self._of(name, slot):
            raise IRError(f"{name} picks along {over} at {slot} from {of}, whose axes differ")
        return self._of(name, of) - {over} | self._of(name, slot)

    def _product(self, name: str, left: str, right: str, over: tuple[str, ...]) -> Axes:
        both = self._of(name, left) & self._of(name, right)
        if not both.issuperset(over):
            raise IRError(
                f"{name} sums over {_listed(set(over) - both)}, which {left} or {right} lacks"
            )
        return (self._of(name, left) | self._of(name, right)) - set(over)

    def _of(self, user: str, name: str) -> Axes:
        if name not in self.names:
            raise IRError(f"{user} uses {name} before it is bound")
        return self.names[name]

    def _axes(self, user: str, *formulas: Basic) -> Axes:
        return NOWHERE.union(*(self._of(user, name) for name in names_in(*formulas)))

    def _indexes(self, user: str, buffer: str, count: int) -> None:
        known = {one.name: len(one.dims) for one in self.kernel.buffers}
        if buffer not in known:
            raise IRError(f"{user} touches {buffer}, which is no buffer of {self.kernel.name}")
        if known[buffer] != count:
            raise IRError(f"{user} gives {buffer} {count} indices for {known[buffer]} dims")

    def _loop(self, loop: Loop) -> None:
        if loop.axis not in {axis.name for axis in self.kernel.axes}:
            raise IRError(f"a loop runs over {loop.axis}, which is no axis of {self.kernel.name}")
        outside = dict(self.names)
        if loop.rounds is not None:
            self._rounds(loop.rounds)
        for piece in loop.pieces:
            self._fits(piece)
            self._is_of_all_rounds(piece, loop.rounds)
            if self._axes("a loop's range", piece.start, piece.stop):
                raise IRError(f"the range of the loop over {loop.axis} varies within a tile")
        was_open = set(self.open_axes)
        self.open_axes.add(loop.axis)
        for let in loop.body:
            self._statement(let)
        results = self._reductions(loop)
        for update in loop.updates:
            self._update(update)
        if loop.ahead is not None:
            self._fits(loop.ahead)
            if mistake := mistake_in(loop, loop.ahead):
                raise IRError(mistake)
        self.names = outside | results
        self.open_axes = was_open

    def _rounds(self, rounds: Rounds) -> None:
        self._fits(rounds)
        if self._axes("the number of rounds", rounds.count):
            raise IRError(f"the rounds of {rounds.index} vary within a tile")
        self._bind(str(rounds.index), NOWHERE)
        for let in rounds.lets:
            self._statement(let)

    def _is_of_all_rounds(self, piece: Piece, rounds: Rounds | None) -> None:
        if rounds is None or not rounds.joined:
            return
        own = {str(rounds.index), *(let.name for let in rounds.lets)}
        if names_in(piece.start, piece.stop) & own:
            raise IRError(f"joined rounds of {rounds.index} have different tiles")

    def _reductions(self, loop: Loop) -> dict[str, Axes]:
        results: dict[str, Axes] = {}
        statistics = {one.name: one.kind for one in loop.reductions}
        for reduce in loop.reductions:
            self._fits(reduce)
            self._reduction(loop, reduce, results)
            results[reduce.name] = frozenset(reduce.axes)
            self.names[reduce.name] = frozenset(reduce.axes)
            if reduce.follows is not None and statistics.get(reduce.follows) != "max":
                raise IRError(
                    f"{reduce.name} follows {reduce.follows}, which is no maximum of its loop"
                )
        return results

    def _reduction(self, loop: Loop, reduce: Reduce, results: dict[str, Axes]) -> None:
        if reduce.over != loop.axis:
            raise IRError(f"{reduce.name} reduces over {reduce.over} in a loop over {loop.axis}")
        if (reduce.follows is None) != (reduce.repair is None):
            raise IRError(f"{reduce.name} needs both follows and repair, or neither")
        if reduce.name in results or (reduce.init is not None and reduce.name in self.names):
            raise IRError(f"{reduce.name} is bound twice")
        if reduce.init is None and reduce.name not in self.names:
            raise IRError(f"{reduce.name} continues a reduction that no loop before it began")
        extra = self._axes(reduce.name, reduce.element, reduce.where) - {*reduce.axes, reduce.over}
        if reduce.onto is not None:
            self._axes(reduce.name, reduce.onto)  # pairs are summed wherever they land
        elif extra:
            raise IRError(f"{reduce.name}{list(reduce.axes)} varies along {_listed(extra)} too")

    def _update(self, update: Update) -> None:
        self._fits(update)
        if update.name not in self.carried:
            raise IRError(f"{update.name} is updated but was never started")
        if self._of(update.name, update.value) != self.names[update.name]:
            raise IRError(f"{update.name} becomes {update.value}, whose axes differ")

    def _store(self, store: Store) -> None:
        self._indexes("a store", store.buffer, len(store.index))
        if self.kernel.buffer(store.buffer).role != "output":
            raise IRError(f"a store writes {store.buffer}, which is an input")
        missing = self._of("a store", store.value) - self._axes("a store", *store.index)
        if missing:
            raise IRError(
                f"a store of {store.value} to {store.buffer} drops axis {_listed(missing)}"
            )
        self._axes("a store", store.guard)


def _listed(axes: Iterable[str]) -> str:
    return ", ".join(sorted(axes))
