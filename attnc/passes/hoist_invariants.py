"""Compute before the loop what does not change in it.

Why: `q_pos // chunk` is one division a row, not one a row and tile.  Triton hoists most of that,
but not an integer division, which becomes a call of many instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

from sympy import Basic, Expr

from attnc.algebra import split_by_axes
from attnc.ir.functions import tile_symbol
from attnc.ir.nodes import Formula, Kernel, Let, Level, Loop, Stmt
from attnc.ir.rebuild import axes_by_name, lets_in
from attnc.symbols import names_in

VARIES = frozenset({"loop"})


@dataclass(frozen=True, slots=True)
class HoistInvariants:
    """Name before the loop what does not change in it.

    loop: visible := q // 7 == kv // 7
    ->   row_term := q // 7; loop: visible := row_term == kv // 7
    """

    name: ClassVar[str] = "hoist-invariants"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Hoist costly parts of every formula of every loop."""
        body: list[Stmt] = []
        hoisted = _Hoisted(kernel)
        for stmt in kernel.body:
            if isinstance(stmt, Loop):
                stmt = hoisted.loop(stmt)
                body += hoisted.take()
            body.append(stmt)
        return replace(kernel, body=tuple(body))


class _Hoisted:
    """Values bound before the loops; an equal one is bound once."""

    def __init__(self, kernel: Kernel) -> None:
        positions = {axis.index.name: (axis.name,) for axis in kernel.axes} | {"q_pos": ("q",)}
        self.axes = positions | axes_by_name(kernel.body)
        self.known: dict[Basic, Let] = {}
        self.fresh: list[Let] = []
        self.kernel = kernel

    def take(self) -> list[Let]:
        """What has been hoisted since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def loop(self, loop: Loop) -> Loop:
        """The loop, its invariant parts read by name."""
        axis = self.kernel.axis(loop.axis)
        moving = {part.name for part in (*lets_in(loop), *loop.updates)}
        moving |= {axis.index.name, axis.within.name, *names_in(axis.first)}
        moving |= {loop.rounds.index.name} if loop.rounds else set()
        moved = (other for other in self.kernel.axes if names_in(other.first) & moving)
        moving |= {place.name for other in moved for place in (other.index, other.within)}
        varies = dict.fromkeys(moving, VARIES)
        body = tuple(self._let(let, varies) for let in loop.body)
        return replace(loop, body=body)

    def _let(self, let: Let, varies: dict[str, frozenset[str]]) -> Let:
        if not isinstance(let.value, Formula):
            return let
        expr = split_by_axes(let.value.expr, varies, self._name, VARIES)
        return replace(let, value=replace(let.value, expr=expr))

    def _name(self, formula: Basic, _: frozenset[str]) -> Expr:
        dtype = "i32" if formula.is_integer else "f32"
        if formula not in self.known:
            axes = tuple(dict.fromkeys(a for n in names_in(formula) for a in self.axes.get(n, ())))
            stem = "row_term" if axes else "call_term"
            taken = [*self.axes, *(let.name for let in self.known.values())]
            name = next(n for n in (stem, *(f"{stem}_{i}" for i in range(2, 99))) if n not in taken)
            self.known[formula] = Let(name, Formula(cast(Expr, formula)), axes, dtype)
            self.fresh.append(self.known[formula])
        return tile_symbol(self.known[formula].name, dtype)
