"""What must hold of every load and store of a READY kernel, for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import sympy
from sympy import Basic, Expr, Symbol
from sympy.core.relational import Relational

from attnc.ir.nodes import Dot, Let, Load, Loop, Store
from attnc.symbols import Q_POS, FloorDiv, h, q_pos
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place

Term = Any


@dataclass(frozen=True)
class Access:
    """A load or store, and where it stands."""

    tiling: Tiling
    node: Load | Store
    name: str  # how reports call it; the pieces of a split axis share a name
    axes: tuple[str, ...]  # of the loaded or stored tile
    loop: int | None = None
    rounds: Loop | None = None  # at the beginning of whose rounds it stands

    def place(self, m: Meaning) -> Place:
        """Some lane of the access in some instance and, in a loop, in some visited tile."""
        place = self.tiling.instance(m)
        if self.rounds is not None:
            place = self.tiling.in_a_round(m, self.rounds, place)
        if self.loop is not None:
            tile = m.pick("tile")
            loop = self.tiling.loops[self.loop]
            place = self.tiling.tile_at(m, self.tiling.in_a_round(m, loop, place), tile)
            visits = self.tiling.visits(m, loop, place, tile)
            m.given(m.either(*visits))
        own = self.tiling.own_column
        if own is not None and self.loop is None:
            first = m.formula(own.first, place)
            place = place.moved(**{str(self.tiling.columns.first): first})
        for axis in self.tiling.kernel.axes:
            if axis.name in self.axes:
                place = self.tiling.lane(m, axis, place)
        loop = self.rounds if self.loop is None else self.tiling.loops[self.loop]
        return Place(place.at, True, loop)

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
            case Let(_, Load() as load, axes):
                found.append(Access(tiling, load, load.buffer, axes))
            case Store(buffer):
                found.append(Access(tiling, stmt, f"store to {buffer}", _stored_axes(tiling, stmt)))
            case _:
                pass
    for number, loop in enumerate(tiling.loops):
        loads = [(let.value, let.axes) for let in loop.body if isinstance(let.value, Load)]
        name = f"loop {number}: {{}}"
        found += [Access(tiling, x, name.format(x.buffer), axes, number) for x, axes in loads]
        lets = () if loop.rounds is None else loop.rounds.lets
        begun = [(let.value, let.axes) for let in lets if isinstance(let.value, Load)]
        name = f"rounds of loop {number}: {{}}"
        found += [Access(tiling, x, name.format(x.buffer), axes, rounds=loop) for x, axes in begun]
    return found


def _by_name(found: list[Access]) -> dict[str, list[Access]]:
    groups: dict[str, list[Access]] = {}
    for access in found:
        groups.setdefault(access.name, []).append(access)
    return groups


def _stored_axes(tiling: Tiling, store: Store) -> tuple[str, ...]:
    named = {str(symbol) for index in (*store.index, store.guard) for symbol in index.free_symbols}
    axes = tiling.kernel.axes
    return tuple(a.name for a in axes if a.index.name in named or a.within.name in named)


def access_claims(tiling: Tiling) -> list[Claim]:
    """Nothing is touched out of bounds, and nothing that counts is left out."""
    claims: list[Claim] = []
    for name, group in _by_name(accesses(tiling)).items():
        claims.append(for_each(f"{name} stays in bounds", group, _in_bounds))
        if isinstance(group[0].node, Load):
            claims.append(for_each(f"{name} leaves out nothing", group, _complete))
        if tiling.kernel.buffer(group[0].node.buffer).dims[:2] == ("b", "h"):
            what = f"{name} reads the elements of its batch, head and position"
            claims.append(replace(for_each(what, group, _addressed), depends_on_tiles=False))
    return claims


def for_each(
    name: str, group: list[Access], statement: Callable[[Access, Meaning, Place], Term]
) -> Claim:
    """Say the same of every access of a group."""

    def build(m: Meaning) -> Term:
        return m.both(*(statement(access, m, access.place(m)) for access in group))

    return Claim(name, build)


def _in_bounds(access: Access, m: Meaning, place: Place) -> Term:
    return m.implies(m.truth(access.node.guard, place), access.inside(m, place))


def _complete(access: Access, m: Meaning, place: Place) -> Term:
    """An element that exists is loaded wherever a visible pair may want it."""
    tiling = access.tiling
    wanted: list[Term] = [access.inside(m, place)]
    if access.loop is not None:
        for axis in (tiling.rows, tiling.columns):
            if axis.name not in access.axes:
                place = Place(tiling.lane(m, axis, place).at, True, place.loop)
        wanted.append(tiling.visible(m, place))
    elif tiling.rows.name in access.axes:
        wanted.append(tiling.exists(m, tiling.rows, place))
    return m.implies(m.both(*wanted), m.truth(access.node.guard, place))


def _addressed(access: Access, m: Meaning, place: Place) -> Term:
    dims = access.tiling.kernel.buffer(access.node.buffer).dims
    kernel = access.tiling.kernel
    shared = str(kernel.buffer(access.node.buffer).sizes[1]) == "kv_heads"
    of_group = any(dim.index.name == "h_kv" for dim in kernel.grid)
    head = Symbol("h_kv") if of_group else FloorDiv(h, m.subject.spec.group)
    wanted: dict[str, Any] = {axis.name: axis.index for axis in kernel.axes}
    wanted |= {"b": Symbol("b"), "h": head if shared else h}
    tile_axes = (a for a in access.tiling.kernel.axes if a.name in access.axes)
    features = [axis for axis in tile_axes if axis.role == "feature"]
    same = [len(features) <= 1]
    for dim, index in zip(dims, access.node.index, strict=True):
        expected = wanted.get(dim, index if dim.endswith("block") else sympy.S.NaN)
        if kernel.buffer(access.node.buffer).sizes[dims.index(dim)].is_number:
            expected = features[0].index if features else sympy.S.NaN
        same.append(m.formula(index, place) == m.formula(expected, place.spec_side()))
    return m.both(*same)


# ---------------------------------------------------------------- keys that nobody sees


def hidden_key_claims(tiling: Tiling) -> list[Claim]:
    """What meets weights is read only of columns that some row of the tile sees (rule 4).

    Else a hidden column does no harm: its score is selected away.
    """
    summed = {name for loop in tiling.loops for name in _summed(tiling, loop)}
    values = [a for a in accesses(tiling) if a.loop is not None and a.node.buffer in summed]
    keys = tiling.walks and tiling.columns.name == "k"
    what = f"{{}} reads no {'key' if keys else 'query'} hidden from every row"
    return [
        for_each(what.format(name), group, _seen_by_some_row)
        for name, group in _by_name(values).items()
    ]


def _summed(tiling: Tiling, loop: Loop) -> Iterator[str]:
    """Buffers whose elements are multiplied by weights and summed over columns."""
    loads = {let.name: let.value.buffer for let in loop.body if isinstance(let.value, Load)}
    for let in loop.body:
        if isinstance(let.value, Dot) and let.value.over == tiling.columns.name:
            yield from (loads[name] for name in (let.value.right,) if name in loads)


def _seen_by_some_row(access: Access, m: Meaning, place: Place) -> Term:
    tiling = access.tiling
    read = m.truth(access.node.guard, place)
    seen = (
        tiling.visible(m, place.moved(**{tiling.rows.index.name: row}))
        for row in row_witnesses(tiling, m, place)
    )
    return m.implies(read, m.either(*seen))


def row_witnesses(tiling: Tiling, m: Meaning, place: Place) -> list[Term]:
    """Rows of the tile that are likely to see a key: the ends, the nearest, edges, named ones."""
    rows = tiling.rows
    first = m.formula(rows.first, place)
    length = m.formula(rows.size, place)
    end = first + m.formula(rows.tile, place) - 1
    last = m.choose(end < length, end, length - 1)
    nearest = place.at[tiling.columns.index.name] - m.formula(tiling.columns.size, place) + length
    turns = (m.formula(edge, place.spec_side()) for edge in edges(m.subject.spec.mask, rows.index))
    inside = [_clamped(m, first, row, last) for row in (nearest, *turns)]
    return [first, last, *inside, *m.all_rows(first, last)]


def key_witnesses(m: Meaning, place: Place, key: Symbol, first: Term, last: Term) -> list[Term]:
    """Keys from first to last at which the row at a place may begin or cease to see."""
    turns = (m.formula(edge, place.spec_side()) for edge in edges(m.subject.spec.mask, key))
    return [_clamped(m, first, turn, last) for turn in turns]


def _clamped(m: Meaning, first: Term, value: Term, last: Term) -> Term:
    above = m.choose(value < first, first, value)
    return m.choose(above > last, last, above)


@cache
def edges(mask: Basic, index: Symbol) -> tuple[Expr, ...]:
    """Positions along an axis at which a part of the mask just holds, as its relations stand."""
    found: list[Expr] = []
    relations: list[Any] = sorted(mask.atoms(Relational), key=str)  # a set has no order
    for relation in relations:
        difference = sympy.expand((relation.lhs - relation.rhs).xreplace({q_pos: Q_POS}))
        slope = difference.coeff(index)
        rest = difference - slope * index
        if slope in (1, -1) and rest.is_integer and not rest.has(index):
            reached = isinstance(relation, sympy.Le | sympy.Ge | sympy.Eq)
            found += [-rest / slope + step for step in ((0,) if reached else (-1, 1))]
    return tuple(dict.fromkeys(found))
