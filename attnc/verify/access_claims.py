"""What must hold of every load and store of a READY kernel, for all sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Basic, Symbol

from attnc.ir.nodes import Let, Load, Loop, Store
from attnc.symbols import FloorDiv, h
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place

Term = Any


@dataclass(frozen=True)
class Access:
    """A load or store, and where it stands."""

    tiling: Tiling
    node: Load | Store
    name: str
    axes: tuple[str, ...]  # of the loaded or stored tile
    loop: int | None = None

    @property
    def place_name(self) -> str:
        """How reports call it."""
        return self.name if self.loop is None else f"loop {self.loop}: {self.name}"

    def place(self, m: Meaning) -> Place:
        """Some lane of the access in some instance and, in a loop, in some visited tile."""
        place = self.tiling.instance(m)
        if self.loop is not None:
            tile = m.pick("tile")
            place = self.tiling.tile_at(m, place, tile)
            visits = self.tiling.visits(m, self.tiling.loops[self.loop], place, tile)
            m.given(m.either(*visits))
        for axis in self.tiling.kernel.axes:
            if axis.name in self.axes:
                place = self.tiling.lane(m, axis, place)
        return Place(place.at, True, None if self.loop is None else self.tiling.loops[self.loop])

    def inside(self, m: Meaning, place: Place) -> Term:
        """Whether the index lies inside of the buffer."""
        sizes = self.tiling.kernel.buffer(self.node.buffer).sizes
        pairs = zip(self.node.index, sizes, strict=True)
        return m.both(*(m.between(0, m.formula(i, place), m.formula(n, place)) for i, n in pairs))


def accesses(tiling: Tiling) -> list[Access]:
    """Every load and store of a kernel."""
    found: list[Access] = []
    for stmt in tiling.kernel.body:
        match stmt:
            case Let(name, Load() as load, dims):
                found.append(Access(tiling, load, name, dims))
            case Loop(_, _, body) if stmt in tiling.loops:
                number = tiling.loops.index(stmt)
                loads = (let for let in body if isinstance(let.value, Load))
                found += [Access(tiling, let.value, let.name, let.axes, number) for let in loads]
            case Store(buffer):
                found.append(Access(tiling, stmt, f"store to {buffer}", _stored_axes(tiling, stmt)))
            case _:
                pass
    return found


def _stored_axes(tiling: Tiling, store: Store) -> tuple[str, ...]:
    named = {str(symbol) for index in (*store.index, store.guard) for symbol in index.free_symbols}
    return tuple(axis.name for axis in tiling.kernel.axes if axis.index.name in named)


def access_claims(tiling: Tiling) -> list[Claim]:
    """Nothing is touched out of bounds, and nothing that counts is left out."""
    claims: list[Claim] = []
    for access in accesses(tiling):
        name = access.place_name
        claims.append(Claim(f"{name} stays in bounds", lambda m, a=access: _in_bounds(a, m)))
        if isinstance(access.node, Load):
            claims.append(Claim(f"{name} leaves out nothing", lambda m, a=access: _complete(a, m)))
        if access.node.buffer in ("q", "k", "v"):
            what = f"{name} reads the elements of its batch, head and position"
            claims.append(Claim(what, lambda m, a=access: _addressed(a, m)))
    return claims


def _in_bounds(access: Access, m: Meaning) -> Term:
    place = access.place(m)
    m.given(m.truth(access.node.guard, place))
    return access.inside(m, place)


def _complete(access: Access, m: Meaning) -> Term:
    """An element that exists is loaded wherever a visible pair may want it."""
    tiling = access.tiling
    place = access.place(m)
    if access.loop is None:
        if tiling.rows.name in access.axes:
            m.given(tiling.exists(m, tiling.rows, place))
    else:
        if tiling.rows.name not in access.axes:
            place = Place(tiling.lane(m, tiling.rows, place).at, True, place.loop)
        if tiling.columns.name not in access.axes:
            place = Place(tiling.lane(m, tiling.columns, place).at, True, place.loop)
        m.given(tiling.visible(m, place))
    m.given(access.inside(m, place))
    return m.truth(access.node.guard, place)


def _addressed(access: Access, m: Meaning) -> Term:
    place = access.place(m)
    dims = access.tiling.kernel.buffer(access.node.buffer).dims
    head = h if access.node.buffer == "q" else FloorDiv(h, m.subject.spec.group)
    columns, rows = access.tiling.columns.index, access.tiling.rows.index
    wanted: dict[str, Basic] = {"b": Symbol("b"), "h": head, "q": rows, "k": columns}
    tile_axes = (a for a in access.tiling.kernel.axes if a.name in access.axes)
    features = [axis for axis in tile_axes if axis.role == "feature"]
    same = [len(features) == 1]
    for dim, index in zip(dims, access.node.index, strict=True):
        expected = wanted.get(dim, features[0].index if features else sympy.S.NaN)
        same.append(m.formula(index, place) == m.formula(expected, place.spec_side()))
    return m.both(*same)


# ---------------------------------------------------------------- keys that nobody sees


def hidden_key_claims(tiling: Tiling) -> list[Claim]:
    """A key tile's guard lets only keys through that some row of the tile sees (rule 4)."""
    return [
        Claim(
            f"{access.place_name} reads no key hidden from every row",
            lambda m, a=access: _seen_by_some_row(a, m),
        )
        for access in accesses(tiling)
        if access.loop is not None and access.node.buffer in ("k", "v")
    ]


def _seen_by_some_row(access: Access, m: Meaning) -> Term:
    tiling = access.tiling
    place = access.place(m)
    m.given(m.truth(access.node.guard, place))
    seen = (
        tiling.visible(m, place.moved(**{tiling.rows.index.name: row}))
        for row in row_witnesses(tiling, m, place)
    )
    return m.either(*seen)


def row_witnesses(tiling: Tiling, m: Meaning, place: Place) -> list[Term]:
    """Rows of the tile that are likely to see a key: the ends, the nearest, a named one."""
    first = m.formula(tiling.rows.first, place)
    length = m.formula(tiling.rows.size, place)
    end = first + m.formula(tiling.rows.tile, place) - 1
    last = m.choose(end < length, end, length - 1)
    shift = m.formula(tiling.columns.size, place) - length
    rows = [first, last]
    for near in (place.at[tiling.columns.index.name] - shift, place.at[tiling.columns.index.name]):
        above = m.choose(near < first, first, near)
        rows.append(m.choose(above > last, last, above))
    rows += m.all_rows(first, last)
    return rows
