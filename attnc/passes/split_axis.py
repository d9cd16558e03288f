"""Cut feature axes into powers of two: 192 = 128 + 64, 72 = 64 + 16.

The last piece is padded (of those 16, 8 exist).  Why: tiles are powers of two, and padding 192 to
256 wastes a third of loads, products and registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sympy import Add, Basic, Integer, Lt, Symbol, true
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import (
    Axis,
    Collapse,
    Dot,
    Formula,
    Kernel,
    Let,
    Level,
    Load,
    Loop,
    Start,
    Stmt,
    Store,
    Update,
)
from attnc.ir.rebuild import axes_by_name, map_value, reads_of_value, substitution
from attnc.symbols import replaced

SMALLEST = 16  # the least that a matrix unit takes


def piece_widths(size: int, widest: int) -> tuple[int, ...]:
    """Powers of two that cover `size`, largest first, none under 16: the fewest for their sum."""
    size = -(-size // SMALLEST) * SMALLEST
    widths: list[int] = []
    while size > 0:
        width = min(widest, 1 << (size.bit_length() - 1))
        widths.append(width)
        size -= width
    return tuple(widths)


@dataclass(frozen=True, slots=True)
class SplitAxis:
    """Cut every tile over a feature axis, and every product over it, into pieces.

    q_tile[q, d: 192]; s = dot(q_tile, k_tile)
    ->   q_tile_0[q, d0: 128], q_tile_1[q, d1: 64]
         s_0 = dot(q_tile_0, k_tile_0); s = dot(q_tile_1, k_tile_1, s_0)
    """

    name: ClassVar[str] = "split-axis"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Split every feature axis."""
        for axis in [axis for axis in kernel.axes if axis.role == "feature"]:
            kernel = _Split(kernel, axis, piece_widths(int(axis.size), axis.piece)).run()
        return kernel


class _Split:
    def __init__(self, kernel: Kernel, axis: Axis, widths: tuple[int, ...]) -> None:
        self.kernel, self.axis = kernel, axis
        single = len(widths) == 1
        self.suffixes = [""] if single else [f"_{i}" for i in range(len(widths))]
        names = [axis.name] if single else [f"{axis.name}{i}" for i in range(len(widths))]
        self.pieces, first = [], 0
        for name, width in zip(names, widths, strict=True):
            index = Symbol(f"{name}_idx", integer=True, nonnegative=True)
            self.pieces.append(
                Axis(name, axis.role, axis.size, Integer(width), index, Integer(first))
            )
            first += width
        self.split = {name for name, axes in axes_by_name(kernel.body).items() if axis.name in axes}

    def run(self) -> Kernel:
        axes = [
            new for old in self.kernel.axes for new in (self.pieces if old == self.axis else [old])
        ]
        body = [new for stmt in self.kernel.body for new in self._stmt(stmt)]
        return replace(self.kernel, axes=tuple(axes), body=tuple(body))

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        match stmt:
            case Let():
                return list(self._let(stmt))
            case Start() if stmt.name in self.split:
                return [
                    replace(stmt, name=stmt.name + suffix, axes=self._axes(stmt.axes, piece))
                    for suffix, piece in zip(self.suffixes, self.pieces, strict=True)
                ]
            case Loop():
                body = tuple(new for let in stmt.body for new in self._let(let))
                updates = tuple(new for update in stmt.updates for new in self._update(update))
                rounds = stmt.rounds
                if rounds is not None:
                    lets = tuple(new for let in rounds.lets for new in self._let(let))
                    rounds = replace(rounds, lets=lets)
                return [replace(stmt, body=body, updates=updates, rounds=rounds)]
            case Store() if stmt.value in self.split:
                return [self._store(stmt, i) for i in range(len(self.pieces))]
            case _:
                return [stmt]

    def _axes(self, axes: tuple[str, ...], piece: Axis) -> tuple[str, ...]:
        return tuple(piece.name if name == self.axis.name else name for name in axes)

    def _let(self, let: Let) -> list[Let]:
        if isinstance(let.value, Dot) and let.value.over == self.axis.name:
            return self._chain(let, let.value)
        if isinstance(let.value, Collapse) and let.value.over == self.axis.name:
            return self._total(let, let.value)
        if self.axis.name not in let.axes:
            return [let]
        made = []
        for i, piece in enumerate(self.pieces):
            note = let.note if i == 0 else ""
            value = map_value(let.value, self._renaming(i, reads_of_value(let.value)))
            if isinstance(value, Load):
                value = replace(value, guard=self._guard(value.guard, piece))
            made.append(
                replace(
                    let,
                    name=let.name + self.suffixes[i],
                    value=value,
                    axes=self._axes(let.axes, piece),
                    note=note,
                )
            )
        return made

    def _chain(self, let: Let, dot: Dot) -> list[Let]:
        """A product summed over the axis: each piece adds to the one before."""
        made: list[Let] = []
        add_to = dot.add_to
        for i, (suffix, piece) in enumerate(zip(self.suffixes, self.pieces, strict=True)):
            last = i == len(self.pieces) - 1
            name = let.name if last else let.name + suffix
            value = Dot(dot.left + suffix, dot.right + suffix, piece.name, add_to)
            made.append(replace(let, name=name, value=value, note=let.note if i == 0 else ""))
            add_to = name
        return made

    def _total(self, let: Let, collapse: Collapse) -> list[Let]:
        """A sum along the axis: the sum of those of its pieces."""
        if len(self.pieces) == 1:
            return [replace(let, value=replace(collapse, over=self.pieces[0].name))]
        assert collapse.kind == "sum"
        parts = [
            Let(let.name + suffix, Collapse("sum", collapse.value + suffix, piece.name), let.axes)
            for suffix, piece in zip(self.suffixes, self.pieces, strict=True)
        ]
        total = Add(*(Symbol(part.name, real=True) for part in parts))
        return [*parts, replace(let, value=Formula(total))]

    def _renaming(self, i: int, names: set[str]):
        by_name: dict[str, Basic] = {
            name: Symbol(name + self.suffixes[i], real=True) for name in names & self.split
        }
        by_name[str(self.axis.index)] = self.pieces[i].index
        return substitution(by_name)

    def _guard(self, guard: Boolean, piece: Axis) -> Boolean:
        """Only the last piece can stand over the end."""
        if int(piece.first) + int(piece.tile) > int(piece.size):
            return guard
        whole = Lt(piece.index, piece.size)
        return (
            And(*(part for part in And.make_args(guard) if part != whole))
            if guard != whole
            else true
        )

    def _update(self, update: Update) -> list[Update]:
        if update.name not in self.split:
            return [update]
        return [Update(update.name + suffix, update.value + suffix) for suffix in self.suffixes]

    def _store(self, store: Store, i: int) -> Store:
        piece = self.pieces[i]
        index = tuple(
            piece.index if position == self.axis.index else position for position in store.index
        )
        guard = self._guard(replaced(store.guard, {self.axis.index: piece.index}), piece)
        return Store(store.buffer, index, store.value + self.suffixes[i], guard)
