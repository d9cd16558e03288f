"""What must hold of the tile ranges and masks of a READY kernel, for all sizes.

The spec's own mask decides what is visible; the program's conditions are read from its loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from sympy import Symbol

from attnc.ir.nodes import Axis, Kernel, Loop
from attnc.verify.chains import Chain, key_loops, selects
from attnc.verify.meaning import Meaning, Place

Term = Any


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
    def readable(self) -> bool:
        """Whether claims can speak of it: pairs by row and column, rounds over a group's heads.

        A kernel that sums pairs into a tensor, by band or by batch entry, is none of these.
        """
        rows = [axis for axis in self.kernel.axes if axis.role == "rows"]
        of_group = any(dim.index.name == "h_kv" for dim in self.kernel.grid)
        return len(rows) == 1 and all(loop.rounds is None or of_group for loop in self.loops)

    @cached_property
    def conditions(self) -> list[list[Any]]:
        """For each loop the conditions under which a key counts."""
        return [selects(Chain(self.kernel, loop).steps().values()) for loop in self.loops]

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
        place = self.in_a_round(m, self.loops[0], self.row(m)) if self.loops else self.row(m)
        tile = m.pick("tile") if tile is None else tile
        return self.lane(m, self.columns, self.tile_at(m, place, tile)), tile

    def in_a_round(self, m: Meaning, loop: Loop, place: Place) -> Place:
        """The place in some round of a loop that walks its axis several times."""
        if loop.rounds is None:
            return place
        count = m.formula(loop.rounds.count, place)
        index = loop.rounds.index.name
        return self.round_at(m, loop, place, m.pick_between(index, 0, count))

    def round_at(self, m: Meaning, loop: Loop, place: Place, number: Term) -> Place:
        """The place in the round of that number."""
        assert loop.rounds is not None
        place = place.moved(**{loop.rounds.index.name: number})
        for let in loop.rounds.lets:
            place = place.moved(**{let.name: m.bind(let, place)})
        return place

    def visits(self, m: Meaning, loop: Loop, place: Place, tile: Term) -> list[Term]:
        """For each piece of a loop, whether it visits a tile."""
        pieces = ((m.formula(p.start, place), m.formula(p.stop, place)) for p in loop.pieces)
        return [m.between(start, tile, stop) for start, stop in pieces]

    def visible(self, m: Meaning, place: Place) -> Term:
        """Whether the spec lets the row at a place see the key there."""
        mask = m.truth(m.subject.meant, place.spec_side())
        return m.both(mask, self.exists(m, self.columns, place), self.exists(m, self.rows, place))

    def counted(self, m: Meaning, number: int, place: Place) -> Term:
        """Whether the program lets the key at a place count in its loop."""
        there = Place(place.at, True, self.loops[number])
        return m.both(*(m.truth(condition, there) for condition in self.conditions[number]))


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


def round_claims(tiling: Tiling) -> list[Claim]:
    """A kernel of a key/value head meets every query head that shares it, each in one round."""
    loops = [(n, loop) for n, loop in enumerate(tiling.loops) if loop.rounds is not None]
    name = "loop {}: its rounds are the query heads of the group, each once"
    return [Claim(name.format(n), lambda m, x=x: _head_once(tiling, x, m), False) for n, x in loops]


def _head_once(tiling: Tiling, loop: Loop, m: Meaning) -> Term:
    """As many rounds as heads in the group, each of a head of the group, no two of the same."""
    place = tiling.instance(m)
    group, shared = m.subject.spec.group, place.at["h_kv"]
    assert loop.rounds is not None
    count = m.formula(loop.rounds.count, place)
    rounds = [m.pick_between(f"round {n}", 0, count) for n in (1, 2)]
    one, other = (tiling.round_at(m, loop, place, number).at["h"] for number in rounds)
    own = m.between(shared * group, one, (shared + 1) * group)
    return m.both(count == group, own, m.implies(one == other, rounds[0] == rounds[1]))


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
