"""A kernel that sums pairs into a tensor gives each visible pair one place, once.

Its programs own columns or distances.  That each is owned once is a claim of its stores, that a
program meets the pairs it owns once is one of its ranges and one of its rounds.  What is left: a
pair lands in its own place.
"""

from __future__ import annotations

from typing import Any

from sympy import true

from attnc.ir.nodes import Pick
from attnc.symbols import kv_idx, q_idx, q_len
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place

Term = Any


def owner_claims(tiling: Tiling) -> list[Claim]:
    """None for a kernel that sums all pairs of its rows."""
    if tiling.owned == true:
        return []
    name = "loop {}: a pair lands in its own place"
    loops = range(len(tiling.loops))
    return [Claim(name.format(n), lambda m, n=n: _lands(tiling, n, m)) for n in loops]


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
    if tiling.band is None or not picks:
        return False
    distance = m.formula(kv_idx - q_idx + q_len - 1, place)
    place = place.moved(**{tiling.band.index.name: distance})
    lane = column - m.formula(tiling.columns.first, place)
    return m.both(*(m.bind(slots[pick.slot], place) == lane for pick in picks))
