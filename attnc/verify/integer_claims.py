"""No integer of a READY kernel leaves its 32 bits, for all sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy
from sympy import Add, Basic, Mul, Symbol

from attnc.ir.functions import Clamp, Wide
from attnc.ir.nodes import Formula, Let, Load, Loop, Store
from attnc.symbols import FloorDiv, FloorMod, Where
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place

Term = Any

INT32 = 2**31


@dataclass
class _Integers:
    """Finds the integers of a formula that must fit; inside of sums and products they may wrap."""

    tiling: Tiling
    dtypes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stmt in self.tiling.kernel.body:
            lets = stmt.body if isinstance(stmt, Loop) else [stmt] if isinstance(stmt, Let) else []
            self.dtypes |= {let.name: let.dtype for let in lets}

    def whole(self, formula: Basic) -> bool:
        """Whether a formula is computed in integers."""
        if isinstance(formula, Symbol):
            return self.dtypes.get(formula.name, "i32" if formula.is_integer else "f32") == "i32"
        if isinstance(formula, FloorDiv | FloorMod | Clamp | Add | Mul | sympy.Max | sympy.Min):
            return all(self.whole(arg) for arg in formula.args)
        if isinstance(formula, Where):
            return all(self.whole(arg) for arg in formula.args[1:])
        if isinstance(formula, sympy.Abs):
            return self.whole(formula.args[0])
        return isinstance(formula, sympy.Integer)

    def within(self, formula: Basic, inside_ring: bool = False) -> Iterator[Basic]:
        """The integers that must fit, outermost first; within Wide they are 64-bit."""
        if isinstance(formula, Wide):
            return
        ring = isinstance(formula, Add | Mul) and self.whole(formula)
        if formula.args and self.whole(formula) and not (inside_ring and ring):
            yield formula
        if isinstance(formula, Where):
            yield from self._in_branches(formula)
            return
        for arg in formula.args:
            yield from self.within(arg, inside_ring=ring)

    def _in_branches(self, formula: Where) -> Iterator[Any]:
        """What stands in a branch must fit where the branch is taken."""
        condition, one, other = formula.args
        yield from self.within(condition)
        for part in self.within(one):
            yield Where(condition, part, sympy.S.Zero)
        for part in self.within(other):
            yield Where(condition, sympy.S.Zero, part)


def overflow_claims(tiling: Tiling) -> list[Claim]:
    """No integer computed in 32 bits leaves them, in any lane, whether its guard holds or not."""
    outside = "integers outside of loops fit 32 bits"
    claims = [Claim(outside, lambda m: _fits(tiling, None, m))]
    for number in range(len(tiling.loops)):
        name = f"loop {number}: integers fit 32 bits"
        claims.append(Claim(name, lambda m, n=number: _fits(tiling, n, m)))
    return claims


def _fits(tiling: Tiling, number: int | None, m: Meaning) -> Term:
    loop = None if number is None else tiling.loops[number]
    place = tiling.instance(m)
    if loop is not None:
        tile = m.pick("tile")
        place = tiling.tile_at(m, place, tile)
        m.given(m.either(*tiling.visits(m, loop, place, tile)))
    for axis in tiling.kernel.axes:
        if axis.role != "columns" or loop is not None:
            place = tiling.lane(m, axis, place)
    place = Place(place.at, True, loop)
    integers = _Integers(tiling)
    formulas = _outer_formulas(tiling) if loop is None else _inner_formulas(loop)
    within = (part for formula in formulas for part in integers.within(formula))
    found = dict.fromkeys((*within, *_kept(tiling, loop)))
    return m.both(*(m.between(-INT32, m.formula(part, place), INT32) for part in found))


def _outer_formulas(tiling: Tiling) -> Iterator[Basic]:
    for stmt in tiling.kernel.body:
        if isinstance(stmt, Let):
            yield from _formulas(stmt)
        elif isinstance(stmt, Store):
            yield from (*stmt.index, stmt.guard)
        elif isinstance(stmt, Loop):
            yield from (bound for piece in stmt.pieces for bound in (piece.start, piece.stop))


def _inner_formulas(loop: Loop) -> Iterator[Basic]:
    for let in loop.body:
        yield from _formulas(let)


def _formulas(let: Let) -> Iterator[Basic]:
    if isinstance(let.value, Formula):
        yield let.value.expr
    elif isinstance(let.value, Load):
        yield from (*let.value.index, let.value.guard)


def _kept(tiling: Tiling, loop: Loop | None) -> Iterator[Basic]:
    """What is kept in 32 bits, however it was computed."""
    stmts = tiling.kernel.body if loop is None else loop.body
    lets = (stmt for stmt in stmts if isinstance(stmt, Let) and stmt.dtype == "i32")
    yield from (let.value.expr for let in lets if isinstance(let.value, Formula))
