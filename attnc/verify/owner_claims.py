"""A kernel that sums pairs into a tensor gives each visible pair one place, once.

Its programs own columns or distances.  That each is owned once is a claim of its stores, that a
program meets the pairs it owns once is one of its ranges.  What is left: a pair lands in its own
place, and the rounds go through all batch entries, heads and rows that the program does not fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Symbol, true

from attnc.ir.nodes import Loop, Pick, Rounds
from attnc.symbols import kv_idx, q_idx, q_len
from attnc.verify.claims import Claim, Tiling, digits_of
from attnc.verify.meaning import Meaning, Place
from attnc.verify.output_claims import owns
from attnc.verify.tiles import names_read

Term = Any


def owner_claims(tiling: Tiling) -> list[Claim]:
    """None for a kernel that sums all pairs of its rows."""
    if tiling.owned == true:
        return []
    claims: list[Claim] = []
    for number, loop in enumerate(tiling.loops):
        name = f"loop {number}: a pair lands in its own place"
        claims.append(Claim(name, lambda m, n=number: _lands(tiling, n, m)))
        if loop.rounds is not None:
            name = f"loop {number}: its rounds are all that a program sums over, each once"
            claims.append(Claim(name, lambda m, x=loop: _each_once(tiling, x, m)))
    return claims


def _lands(tiling: Tiling, number: int, m: Meaning) -> Term:
    """A column of the tile is the element's, or it is picked for its distance."""
    loop = tiling.loops[number]
    place, tile = tiling.pair(m)
    m.given(m.either(*tiling.visits(m, loop, place, tile)), tiling.visible(m, place))
    place = Place(place.at, True, loop)
    column = m.formula(tiling.columns.index, place)
    picks = [let.value for let in loop.body if isinstance(let.value, Pick)]
    if not picks and tiling.own_column is not None:
        first = m.formula(tiling.own_column.first, place)
        return first == m.formula(tiling.columns.first, place)
    slots = {let.name: let for let in loop.body}
    if tiling.band is None:
        return False
    distance = m.formula(kv_idx - q_idx + q_len - 1, place)
    place = place.moved(**{tiling.band.index.name: distance})
    lane = column - m.formula(tiling.columns.first, place)
    return m.both(*(m.bind(slots[pick.slot], place) == lane for pick in picks))


def _each_once(tiling: Tiling, loop: Loop, m: Meaning) -> Term:
    """A batch entry, head and row of any choice is met in one round and in no other."""
    assert loop.rounds is not None
    place = tiling.instance(m)
    extents = {n: m.formula(extent, place) for n, extent in digits_of(loop.rounds).items()}
    wanted, its_digits = _anything(tiling, loop.rounds, m, place)
    if extents.keys() != its_digits.keys():
        return False

    def is_met(digits: Mapping[str, Term]) -> Term:
        found = tiling.round_of(m, loop, place, digits)
        row = tiling.rows.index.name
        same = [found.at[name] == value for name, value in wanted.items() if name != row]
        if row in wanted:
            same.append(owns(tiling.rows, m, found.moved(**{row: wanted[row]})))
        return m.both(*same)

    inside = (m.between(0, its_digits[name], extent) for name, extent in extents.items())
    rounds = [
        {name: m.pick_between(f"{name} {n}", 0, extent) for name, extent in extents.items()}
        for n in (1, 2)
    ]
    same = m.both(*(rounds[0][name] == rounds[1][name] for name in extents))
    once = m.implies(m.both(*map(is_met, rounds)), same)
    return m.both(*inside, is_met(its_digits), once)


def _anything(
    tiling: Tiling, rounds: Rounds, m: Meaning, place: Place
) -> tuple[dict[str, Term], dict[str, Term]]:
    """A choice of all that a program does not fix, and the digits of its round."""
    wanted: dict[str, Term] = {}
    digits: dict[str, Term] = {}
    if tiling.rounds_bring_rows:
        rows = tiling.rows
        row = wanted[rows.index.name] = m.pick_between("row", 0, m.formula(rows.size, place))
        tile, length = m.pick("tile of the row"), m.formula(rows.tile, place)
        m.given(m.between(0, row - tile * length, length))
        first = next(let.value for let in rounds.lets if let.name == str(rows.first))
        digits |= {n: tile for n in digits_of(rounds) if n in names_read(first)}
    if "h" not in place.at and "h_kv" in place.at:
        group = m.subject.spec.group
        digits["member"] = m.pick_between("head of the group", 0, group)
        wanted["h"] = place.at["h_kv"] * group + digits["member"]
    for name, size in (("h", "heads"), ("b", "batch")):
        if name not in {**place.at, **wanted}:
            extent = m.formula(Symbol(size, integer=True), place)
            wanted[name] = digits[name] = m.pick_between(f"{name} wanted", 0, extent)
    return wanted, digits
