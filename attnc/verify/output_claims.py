"""Every element of every output of a READY kernel is written once, whatever the sizes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from sympy import Symbol

from attnc.ir.nodes import Axis, Formula, Let, Start, Store
from attnc.symbols import names_in
from attnc.verify.access_claims import Access, accesses
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place

Term = Any


def store_claims(tiling: Tiling) -> list[Claim]:
    """Every element of every output is written, once."""
    outputs = [buffer.name for buffer in tiling.kernel.buffers if buffer.role == "output"]
    what = "every element of {} is stored once"
    return [Claim(what.format(n), lambda m, n=n: _stored_once(tiling, n, m)) for n in outputs]


def _stored_once(tiling: Tiling, buffer: str, m: Meaning) -> Term:
    """Pick any element; count the stores of which some lane of some instance hits it."""
    sizes = tiling.kernel.buffer(buffer).sizes
    target = [
        m.pick_between(f"element {n}", 0, m.formula(size, Place({})))
        for n, size in enumerate(sizes)
    ]
    stores = [a for a in accesses(tiling) if isinstance(a.node, Store) and a.node.buffer == buffer]
    hits = [_hit(store, target, number, m) for number, store in enumerate(stores)]
    unique = (m.negate(m.both(one, other)) for one, other in combinations(hits, 2))
    return m.both(m.either(*hits), *unique)


def _hit(store: Access, target: list[Term], number: int, m: Meaning) -> Term:
    """Whether the one lane that has the indices of the element exists and stores it."""
    tiling = store.tiling
    at: dict[str, Term] = {}
    own = tiling.own_column
    for index, wanted in zip(store.node.index, target, strict=True):
        if own is not None and index == own.first + tiling.columns.within:
            index = own.index
        if not isinstance(index, Symbol) or index.name in at:
            return False
        at[index.name] = wanted
    place = Place(at)
    conditions: list[Term] = []
    lanes = [axis for axis in _tiled(tiling) if axis.index.name in at]
    if not {axis.name for axis in lanes} >= _needed(tiling, store):
        return False
    for dim in tiling.kernel.grid:
        digit = at.get(dim.index.name)
        if digit is None:
            digit = _tile_of(tiling, m, place, dim.index.name, number)
        place = place.moved(**{dim.index.name: digit})
        conditions.append(m.between(0, digit, m.formula(dim.extent, place)))
    if (
        own is not None
    ):  # the lane of its position; where the tile that is walked stands means nothing
        first = m.formula(own.first, place)
        place = place.moved(**{str(tiling.columns.first): first})
    conditions += [owns(axis, m, place) for axis in lanes]
    return m.both(*conditions, m.truth(store.node.guard, place))


def _tiled(tiling: Tiling) -> list[Axis]:
    """The axes, that of columns as the program owns it where it does."""
    own = tiling.own_column
    return [own if own and own.name == axis.name else axis for axis in tiling.kernel.axes]


def _needed(tiling: Tiling, store: Access) -> set[str]:
    """Axes of the stored value."""
    assert isinstance(store.node, Store)
    named = (stmt for stmt in tiling.kernel.body if isinstance(stmt, Let | Start))
    return set(next(stmt for stmt in named if stmt.name == store.node.value).axes)


def _axis_of(tiling: Tiling, dim: str) -> Axis | None:
    """The axis whose tiles a digit of the grid counts."""
    lets = {stmt.name: stmt.value for stmt in tiling.kernel.body if isinstance(stmt, Let)}
    for axis in _tiled(tiling):
        names = set(names_in(axis.first))
        made = (
            value.expr
            for name, value in lets.items()
            if name in names and isinstance(value, Formula)
        )
        if dim in names.union(*map(names_in, made)):
            return axis
    return None


def _tile_of(tiling: Tiling, m: Meaning, place: Place, dim: str, number: int) -> Term:
    """The position in question by its tile's length, rounded down: there is one such number."""
    axis = _axis_of(tiling, dim) or tiling.rows
    tile, length = m.pick(f"{dim} {number}"), m.formula(axis.tile, place)
    m.given(m.between(0, place.at[axis.index.name] - tile * length, length))
    return tile


def owns(axis: Axis, m: Meaning, place: Place) -> Term:
    """Whether the tile of an axis holds the position in question."""
    first, length = m.formula(axis.first, place), m.formula(axis.tile, place)
    return m.between(first, place.at[axis.index.name], first + length)


def grid_claims(tiling: Tiling) -> list[Claim]:
    """Distinct program numbers are distinct instances, and no two own the same row."""
    return [
        Claim("the grid's numbers and its instances match one to one", lambda m: _radix(m), False),
        Claim("no row belongs to two tiles", lambda m: _one_tile(tiling, m)),
    ]


def _radix(m: Meaning) -> Term:
    """Digit + extent * rest has one solution with 0 <= digit < extent, whatever extent and rest."""
    extent, rests = m.pick("extent"), [m.pick("rest 1"), m.pick("rest 2")]
    m.given(extent >= 1)
    digits = [m.pick_between(f"digit {n}", 0, extent) for n in (1, 2)]
    m.given(digits[0] + extent * rests[0] == digits[1] + extent * rests[1])
    return m.both(digits[0] == digits[1], rests[0] == rests[1])


def _one_tile(tiling: Tiling, m: Meaning) -> Term:
    apart: list[Term] = []
    for dim in (dim.index.name for dim in tiling.kernel.grid):
        axis = _axis_of(tiling, dim)
        if axis is not None:
            row = m.pick(f"{axis.name} position")
            tiles = [m.pick(f"{dim} {n}") for n in (1, 2)]
            m.given(*(owns(axis, m, Place({dim: t, axis.index.name: row})) for t in tiles))
            apart.append(tiles[0] == tiles[1])
    return m.both(*apart)
