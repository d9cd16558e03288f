"""What must hold of the tile ranges and masks of a READY kernel, for all sizes.

The spec's own mask decides what is visible; the program's conditions are read from its loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, cast

from sympy import Expr, Symbol, true
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Axis, Formula, Kernel, Loop, Rounds, Store
from attnc.symbols import FloorDiv, FloorMod, kv_idx, q_idx, q_len
from attnc.verify.chains import Chain, key_loops, landing_conditions, selects
from attnc.verify.meaning import Meaning, Place

Term = Any

MOST_PROGRAMS = 2**31  # that a grid holds


@dataclass(frozen=True)
class Claim:
    """A statement about a kernel: `build` gives its conclusion and adds its hypotheses."""

    name: str
    build: Callable[[Meaning], Term]
    depends_on_tiles: bool = True


@dataclass(frozen=True)
class Tiling:
    """The parts of a kernel that claims speak of, and the indices they range over."""

    kernel: Kernel

    @cached_property
    def rows(self) -> Axis:
        """The axis of query rows."""
        return next(axis for axis in self.kernel.axes if axis.role == "rows")

    @cached_property
    def columns(self) -> Axis:
        """The axis of keys."""
        return next(axis for axis in self.kernel.axes if axis.role == "columns")

    @cached_property
    def loops(self) -> list[Loop]:
        """The loops over the columns."""
        return key_loops(self.kernel)

    @cached_property
    def walks(self) -> bool:
        """Whether the kernel meets pairs at all; one that only sums along rows does not."""
        return any(axis.role == "columns" for axis in self.kernel.axes)

    @cached_property
    def band(self) -> Axis | None:
        """The axis of distances, where a program sums the pairs of some of them."""
        _, *bands = (axis for axis in self.kernel.axes if axis.role == "rows")
        return bands[0] if bands else None

    @cached_property
    def own_column(self) -> Axis | None:
        """The columns that a program owns, where it stores at their positions."""
        if not self.walks:
            return None
        stores = (stmt for stmt in self.kernel.body if isinstance(stmt, Store))
        within = self.columns.within
        firsts = [index - within for s in stores for index in s.index if index.has(within)]
        return replace(self.columns, first=firsts[0]) if firsts else None

    @cached_property
    def owned(self) -> Boolean:
        """Which pairs of its rows a program sums: by distance, by column, or (true) all."""
        if self.band is not None:
            axis, at = self.band, kv_idx - q_idx + q_len - 1
        elif self.own_column is not None:
            axis, at = self.own_column, self.columns.index
        else:
            return true
        return And(axis.first <= at, at < axis.first + axis.tile)

    @cached_property
    def conditions(self) -> list[list[Any]]:
        """For each loop the conditions under which a key counts."""
        if self.owned == true:
            return [selects(Chain(self.kernel, loop).steps().values()) for loop in self.loops]
        return [landing_conditions(loop) for loop in self.loops]

    @cached_property
    def rounds_bring_rows(self) -> bool:
        """Whether each round of the loops has rows of its own."""
        rounds = (loop.rounds for loop in self.loops if loop.rounds is not None)
        return any(let.name == str(self.rows.first) for one in rounds for let in one.lets)

    def instance(self, m: Meaning) -> Place:
        """Some program instance."""
        place = Place({})
        for dim in self.kernel.grid:
            extent = m.formula(dim.extent, place)
            place = place.moved(**{dim.index.name: m.pick_between(dim.index.name, 0, extent)})
        if "h" not in place.at and m.subject.spec.group == 1:
            place = place.moved(h=place.at["h_kv"])  # a group of one: its only query head
        return place

    def lane(self, m: Meaning, axis: Axis, place: Place, tag: str = "") -> Place:
        """Some position of an axis's tile."""
        first, length = m.formula(axis.first, place), m.formula(axis.tile, place)
        lane = m.pick_between(f"{axis.name} lane{tag}", 0, length)
        return place.moved(**{axis.index.name: first + lane})

    def row(self, m: Meaning) -> Place:
        """Some row of some instance that exists."""
        place = self.lane(m, self.rows, self.instance(m))
        m.given(self.exists(m, self.rows, place))
        return place

    def exists(self, m: Meaning, axis: Axis, place: Place) -> Term:
        """Whether the position of an axis lies inside of the axis."""
        return m.between(0, place.at[axis.index.name], m.formula(axis.size, place))

    def tile_at(self, m: Meaning, place: Place, tile: Term) -> Place:
        """The place with the key tile of that number."""
        axis = self.columns
        if isinstance(axis.first, Symbol):
            return place.moved(**{axis.first.name: tile * m.formula(axis.tile, place)})
        (number,) = {str(s) for s in axis.first.free_symbols} - {"BLOCK_Q", "BLOCK_KV"}
        return place.moved(**{number: tile})

    def pair(self, m: Meaning, tile: Term | None = None) -> tuple[Place, Term]:
        """Some existing row, and some position of some key tile, with the tile's number."""
        if self.rounds_bring_rows:
            place = self.lane(m, self.rows, self.in_a_round(m, self.loops[0], self.instance(m)))
            m.given(self.exists(m, self.rows, place))
        else:
            place = self.row(m)
            place = self.in_a_round(m, self.loops[0], place) if self.loops else place
        tile = m.pick("tile") if tile is None else tile
        return self.lane(m, self.columns, self.tile_at(m, place, tile)), tile

    def in_a_round(self, m: Meaning, loop: Loop, place: Place) -> Place:
        """The place in some round of a loop that walks its axis several times."""
        if loop.rounds is None:
            return place
        digits = digits_of(loop.rounds)
        if len(digits) > 1:  # there are no more rounds than programs of the forward
            number = loop.rounds.index.name
            place = place.moved(**{number: m.pick_between(number, 0, MOST_PROGRAMS)})
        picked = {n: m.pick_between(n, 0, m.formula(extent, place)) for n, extent in digits.items()}
        return self.round_of(m, loop, place, picked)

    def round_of(self, m: Meaning, loop: Loop, place: Place, digits: Mapping[str, Term]) -> Place:
        """The place in the round with these digits."""
        assert loop.rounds is not None
        place = place.moved(**digits)
        for let in loop.rounds.lets:
            if not let.axes and let.name not in digits:
                place = place.moved(**{let.name: m.bind(let, place)})
        return place

    def visits(self, m: Meaning, loop: Loop, place: Place, tile: Term) -> list[Term]:
        """For each piece of a loop, whether it visits a tile."""
        pieces = ((m.formula(p.start, place), m.formula(p.stop, place)) for p in loop.pieces)
        return [m.between(start, tile, stop) for start, stop in pieces]

    def visible(self, m: Meaning, place: Place) -> Term:
        """Whether the spec lets the row at a place see the key there; of a pair that is its own."""
        mask = m.truth(m.subject.meant, place.spec_side())
        exist = (self.exists(m, axis, place) for axis in (self.columns, self.rows))
        own = () if self.owned == true else (m.truth(self.owned, place),)
        return m.both(mask, *exist, *own)

    def counted(self, m: Meaning, number: int, place: Place) -> Term:
        """Whether the program lets the key at a place count in its loop."""
        there = Place(place.at, True, self.loops[number])
        return m.both(*(m.truth(condition, there) for condition in self.conditions[number]))


def digits_of(rounds: Rounds) -> dict[str, Expr]:
    """The digits of a round's number and their extents, innermost first; one where it has no more.

    Digits and numbers match one to one: that is a claim of every grid.
    """
    digits: dict[str, Expr] = {}
    rest: Expr = rounds.index
    left: Expr = rounds.count
    for let in rounds.lets:
        match let.value:
            case Formula(FloorMod() as digit) if digit.args[0] == rest:
                extent = cast(Expr, digit.args[1])
                digits[let.name] = extent
                rest, left = FloorDiv(rest, extent), left / extent
            case Formula(expr) if digits and expr == rest:
                return {**digits, let.name: left}
            case _:
                break
    return {rounds.index.name: rounds.count}


def coverage_claims(tiling: Tiling) -> list[Claim]:
    """Every visible pair is visited exactly once, and only visible pairs count."""
    if not tiling.walks:
        return []
    claims = [
        Claim("every visible pair is visited", lambda m: _visited(tiling, m)),
        Claim("no visible pair is visited twice", lambda m: _once(tiling, m)),
    ]
    for number, conditions in enumerate(tiling.conditions):
        if conditions:
            name = f"loop {number}: exactly the visible pairs are selected"
            claims.append(Claim(name, lambda m, n=number: _selected(tiling, n, m)))
        else:
            name = f"loop {number}: has no mask and visits visible pairs only"
            claims.append(Claim(name, lambda m, n=number: _unmasked(tiling, n, m)))
    return claims


def _visited(tiling: Tiling, m: Meaning) -> Term:
    place, tile = tiling.pair(m)
    m.given(tiling.visible(m, place))
    return m.either(*(v for loop in tiling.loops for v in tiling.visits(m, loop, place, tile)))


def _once(tiling: Tiling, m: Meaning) -> Term:
    place, tile = tiling.pair(m)
    m.given(tiling.visible(m, place))
    visits = [v for loop in tiling.loops for v in tiling.visits(m, loop, place, tile)]
    return m.both(*(m.negate(m.both(one, other)) for one, other in combinations(visits, 2)))


def _in_loop(tiling: Tiling, number: int, m: Meaning) -> Place:
    """Some existing row and some position of a tile that the loop visits."""
    place, tile = tiling.pair(m)
    m.given(m.either(*tiling.visits(m, tiling.loops[number], place, tile)))
    return place


def _unmasked(tiling: Tiling, number: int, m: Meaning) -> Term:
    place = _in_loop(tiling, number, m)
    return tiling.visible(m, place)


def _selected(tiling: Tiling, number: int, m: Meaning) -> Term:
    place = _in_loop(tiling, number, m)
    return m.same(tiling.counted(m, number, place), tiling.visible(m, place))
