"""No integer of a READY kernel that matters leaves its 32 bits, for all sizes.

What a tile holds for a row past the last one is thrown away by the guards of the stores, so it may
wrap there: q_pos lies beyond 2**30, and twice of it beyond 2**31.  That does not hold for what
decides which memory is touched, nor for what rows tell one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy
from sympy import Add, And, Basic, Mul, Symbol, true

from attnc.ir.functions import Clamp, Wide
from attnc.ir.nodes import Collapse, Dot, Formula, Let, Load, Loop, Stmt, Store, Value
from attnc.symbols import FloorDiv, FloorMod, Where, names_in
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place
from attnc.verify.tiles import names_read

Term = Any

INT32 = 2**31


@dataclass
class _Integers:
    """Finds the integers of a formula that must fit; inside of sums and products they may wrap."""

    tiling: Tiling
    dtypes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stmt in self.tiling.kernel.body:
            lets = (
                (*_begun(stmt), *stmt.body)
                if isinstance(stmt, Loop)
                else [stmt]
                if isinstance(stmt, Let)
                else []
            )
            self.dtypes |= {let.name: let.dtype for let in lets}

    def whole(self, formula: Basic) -> bool:
        """Whether a formula is computed in integers."""
        if isinstance(formula, Symbol):
            return self.dtypes.get(formula.name, "i32" if formula.is_integer else "f32") == "i32"
        if isinstance(formula, FloorDiv):  # that of a real is kept in 32 bits, too
            return all(self.whole(arg) for arg in formula.args if arg.is_integer)
        if isinstance(formula, FloorMod | Clamp | Add | Mul | sympy.Max | sympy.Min):
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
        if isinstance(formula, And):
            yield from self._in_conjuncts(formula)
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

    def _in_conjuncts(self, formula: And) -> Iterator[Any]:
        """What a conjunct computes must fit where those hold that compute no integers."""
        computing = {part: list(self.within(part)) for part in formula.args}
        plain = And(*(part for part, integers in computing.items() if not integers))
        for integers in computing.values():
            yield from (Where(plain, integer, sympy.S.Zero) for integer in integers)


def overflow_claims(tiling: Tiling) -> list[Claim]:
    """No integer computed in 32 bits leaves them in a lane that matters."""
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
        place = tiling.tile_at(m, tiling.in_a_round(m, loop, place), tile)
        m.given(m.either(*tiling.visits(m, loop, place, tile)))
    for axis in tiling.kernel.axes:
        if axis.role != "columns" or loop is not None or tiling.owned != true:
            place = tiling.lane(m, axis, place)
    place = Place(place.at, True, loop)
    integers, shared = _Integers(tiling), _shared(tiling)
    exists = tiling.exists(m, tiling.rows, place)
    fitting: list[Term] = []
    for stmt in tiling.kernel.body if loop is None else (*_begun(loop), *loop.body):
        parts = dict.fromkeys(_claimed(stmt, integers))
        fits = m.both(*(m.between(-INT32, m.formula(part, place), INT32) for part in parts))
        fitting.append(fits if _reaches_beyond(stmt, shared) else m.implies(exists, fits))
    return m.both(*fitting)


def _begun(loop: Loop) -> tuple[Let, ...]:
    """What each of its rounds begins with."""
    return () if loop.rounds is None else loop.rounds.lets


def _reaches_beyond(stmt: Stmt, shared: set[str]) -> bool:
    """Whether what a statement computes for a row that does not exist may do harm."""
    if isinstance(stmt, Let):
        return isinstance(stmt.value, Load) or stmt.name in shared
    return isinstance(stmt, Store)


def _shared(tiling: Tiling) -> set[str]:
    """Values on which it depends what memory is touched, or what other rows compute."""
    inside = (let for loop in tiling.loops for let in (*_begun(loop), *loop.body))
    stmts = [*tiling.kernel.body, *inside]
    lets = [stmt for stmt in stmts if isinstance(stmt, Let)]
    reads = [(let.name, names_read(let.value)) for let in lets]
    reads += [(update.name, {update.value}) for loop in tiling.loops for update in loop.updates]
    found = set[str]().union(*(_across(let.value, tiling.rows.name) for let in lets))
    found |= names_in(*(f for s in stmts if isinstance(s, Store) for f in (*s.index, s.guard)))
    while more := set[str]().union(*(names for name, names in reads if name in found)) - found:
        found |= more
    return found


def _across(value: Value, rows: str) -> set[str]:
    """What a value reads in other rows, or to find its address."""
    match value:
        case Load():
            return names_read(value)
        case Collapse(_, _, over) | Dot(_, _, over) if over == rows:
            return names_read(value)
        case _:
            return set()


def _claimed(stmt: Stmt, integers: _Integers) -> Iterator[Any]:
    """Integers of a statement that must fit; what is kept in 32 bits, however computed, too."""
    match stmt:
        case Let(_, Formula(expr)):
            yield from integers.within(expr)
            if stmt.dtype == "i32":
                yield expr
        case Let(_, Load() as access) | (Store() as access):
            yield from integers.within(access.guard)
            touched = (part for index in access.index for part in integers.within(index))
            yield from (Where(access.guard, part, sympy.S.Zero) for part in touched)
        case Loop():
            for piece in stmt.pieces:
                yield from (*integers.within(piece.start), *integers.within(piece.stop))
            if stmt.rounds is not None and stmt.rounds.joined:
                steps = (sympy.Max(piece.stop - piece.start, 0) for piece in stmt.pieces)
                yield stmt.rounds.count * Add(*steps)
        case _:
            pass
