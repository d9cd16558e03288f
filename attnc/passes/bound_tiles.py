"""Let a loop visit only the tiles that hold a visible pair, and know which of them need no mask.

Why: a mask that hides whole tiles should cost nothing there, and where it hides nothing it should
not be computed.  The ranges are derived from the condition of the loop's reductions, in closed
form in the tile's index: nothing is evaluated densely and nothing is stored.

The same ranges, by columns and not by tiles, say what a masked tile may read: a column that no
row of the tile sees must never matter, whatever lies there (a NaN times a weight of 0 is a NaN).
Where the ranges may hold columns that nobody sees, the tile asks each column whether some row
sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sympy import Integer, Or, Symbol
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Axis, Formula, Kernel, Let, Level, Load, Loop, Piece, Stmt
from attnc.passes.box import Box
from attnc.passes.column_test import add_column_test
from attnc.passes.key_ranges import key_ranges
from attnc.passes.reading import (
    before_walking,
    conjuncts,
    inline,
    is_read_along,
    is_tail_test,
    is_whole,
    names_taken,
    varying_names,
)
from attnc.passes.scalars import smallest
from attnc.passes.spans import spans_of
from attnc.passes.tile_ranges import Bounds, Scope, TileWriter
from attnc.symbols import names_in


@dataclass(frozen=True, slots=True)
class BoundTiles:
    """Replace the range of a loop by what its reductions' condition leaves of it.

    before:  loop over every tile of k, masked; k and v are read where kv_idx < kv_len
    after:   kv_hi, tile_hi, full_hi ... := scalars of the tile's rows
             loop over tiles [full_lo, full_hi) unmasked and the rest of [tile_lo, tile_hi) masked;
             k and v are read where kv_lo <= kv_idx < kv_hi, and v where some row sees the key
    """

    name: ClassVar[str] = "bound-tiles"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.STREAMED

    inner: str = "k"
    outer: str = "q"

    def run(self, kernel: Kernel) -> Kernel:
        """Bound every loop over the inner axis that still visits all of its tiles."""
        names = {axis.name for axis in kernel.axes}
        if not {self.inner, self.outer} <= names:
            return kernel
        scope = Scope(names_taken(kernel))
        body: list[Stmt] = []
        for statement in kernel.body:
            if isinstance(statement, Loop) and self._is_whole(statement, kernel):
                before = len(scope.lets)
                loop = self._bound(statement, kernel, scope)
                body += before_walking(_used(scope.lets[before:], loop), loop)
            else:
                body.append(statement)
        return replace(kernel, body=tuple(body))

    def _is_whole(self, loop: Loop, kernel: Kernel) -> bool:
        axis = kernel.axis(self.inner) if loop.axis == self.inner else None
        return axis is not None and loop.reductions != () and is_whole(loop, axis)

    def _bound(self, loop: Loop, kernel: Kernel, scope: Scope) -> Loop:
        inner, outer = kernel.axis(self.inner), kernel.axis(self.outer)
        visible = self._condition(loop, kernel)
        box = self._box(inner, outer, scope)
        ranges = key_ranges(spans_of(visible, box, varying_names(kernel, loop)), box)
        if not ranges:
            return replace(loop, pieces=(Piece(Integer(0), Integer(0)),))
        bounds = _writer(scope, inner).write(ranges)
        reductions = loop.reductions
        if len({r.where for r in reductions}) > 1 or any(r.onto is not None for r in reductions):
            # no tile counts whole for all of them; nor does one lie whole in a band of distances
            bounds = replace(
                bounds, pieces=tuple(replace(p, masked=True) for p in bounds.pieces), tight=False
            )
        loop = replace(loop, pieces=bounds.pieces, body=_guard_loads(loop, inner, bounds))
        if bounds.tight:
            return loop
        visible, seen = scope.reserve("visible"), scope.reserve("seen")
        return add_column_test(loop, inner, outer, kernel, visible, seen)

    def _condition(self, loop: Loop, kernel: Kernel) -> Boolean:
        """What some reduction of the loop counts, in terms of positions and scalars."""
        condition = Or(*dict.fromkeys(reduction.where for reduction in loop.reductions))
        return inline(condition, kernel, loop)

    def _box(self, inner: Axis, outer: Axis, scope: Scope) -> Box:
        end = Symbol(f"{outer.index.name.removesuffix('_idx')}_end", integer=True, positive=True)
        value = smallest([outer.first + outer.tile, outer.size])
        word = _word(outer)
        for let in scope.lets:
            if let.value == Formula(value):
                end = Symbol(let.name, integer=True, positive=True)
                break
        else:
            end = Symbol(scope.fresh(end.name), integer=True, positive=True)
            scope.define(end.name, value, f"one past the tile's last {word}")
        return Box(outer.index, outer.first, end, outer.size, inner.index, inner.size)


def _writer(scope: Scope, inner: Axis) -> TileWriter:
    row = "query" if _word(inner) == "key" else "key"
    return TileWriter(scope, inner.index, inner.tile, _word(inner), row)


def _word(axis: Axis) -> str:
    return "query" if axis.name == "q" else "key"


def _used(lets: list[Let], loop: Loop) -> list[Let]:
    """The scalars that the loop needs, directly or through one another."""
    needed = names_in(*(end for piece in loop.pieces for end in (piece.start, piece.stop)))
    for let in loop.body:
        needed |= names_in(let.value.guard) if isinstance(let.value, Load) else set()
    kept: list[Let] = []
    for let in reversed(lets):
        if let.name in needed:
            kept.insert(0, let)
            needed |= names_in(let.value.expr) if isinstance(let.value, Formula) else set()
    return kept


def _guard_loads(loop: Loop, inner: Axis, bounds: Bounds) -> tuple[Let, ...]:
    return tuple(
        _guarded(let, inner, bounds.inside) if is_read_along(let, inner.name) else let
        for let in loop.body
    )


def _guarded(let: Let, inner: Axis, inside: Boolean) -> Let:
    assert isinstance(let.value, Load)
    rest = [part for part in conjuncts(let.value.guard) if not is_tail_test(part, inner)]
    return replace(let, value=replace(let.value, guard=And(inside, *rest)))
