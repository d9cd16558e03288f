"""Every key tile that a program visits holds a pair that the spec lets see each other.

Nothing is wrong with a program that visits more, it is only slow.  A program whose ranges may hold
keys that nobody sees has to ask each column whether some row sees it, for the sake of rule 4: so
it tells itself whether its ranges are exact, and the claim is made where it asks no column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sympy import true

from attnc.ir.nodes import Collapse
from attnc.verify.access_claims import key_witnesses, row_witnesses
from attnc.verify.claims import Claim, Tiling
from attnc.verify.concrete_meaning import ConcreteMeaning
from attnc.verify.meaning import Meaning, Place

Term = Any


def tightness_claims(tiling: Tiling) -> list[Claim]:
    """One claim for all loops of a kernel; none where one of them asks its columns."""
    if not tiling.walks or tiling.owned != true:
        return []
    values = [let.value for loop in tiling.loops for let in loop.body]
    if any(isinstance(v, Collapse) and v.over == tiling.rows.name for v in values):
        return []
    return [Claim("every visited tile holds a visible pair", lambda m: _wanted(tiling, m))]


def _wanted(tiling: Tiling, m: Meaning) -> Term:
    """Look for a visible pair among the corners, the diagonal and the edges of the mask's parts."""
    instance = tiling.instance(m)
    tile = m.pick("tile")
    place = tiling.tile_at(m, tiling.in_a_round(m, tiling.loops[0], instance), tile)
    visits = (v for loop in tiling.loops for v in tiling.visits(m, loop, place, tile))
    m.given(m.either(*visits))
    if isinstance(m, ConcreteMeaning):
        return _some_pair(tiling, m, place)
    return m.either(*(tiling.visible(m, there) for there in _candidates(tiling, m, place)))


def _some_pair(tiling: Tiling, m: ConcreteMeaning, place: Place) -> bool:
    """Whether any pair of the tile is visible, looked up one by one."""
    grids = []
    for axis in (tiling.rows, tiling.columns):
        first = m.formula(axis.first, place)
        last = min(first + m.formula(axis.tile, place), m.formula(axis.size, place))
        grids.append(np.arange(first, last))
    rows, keys = np.meshgrid(*grids, indexing="ij")
    there = place.moved(**{tiling.rows.index.name: rows, tiling.columns.index.name: keys})
    return bool(np.any(m.array(m.subject.meant, there.spec_side()) & (rows >= 0)))


def _candidates(tiling: Tiling, m: Meaning, place: Place) -> Iterator[Place]:
    rows, columns = tiling.rows, tiling.columns
    first_key = m.formula(columns.first, place)
    end = first_key + m.formula(columns.tile, place) - 1
    keys = m.formula(columns.size, place)
    last_key = m.choose(end < keys, end, keys - 1)
    for key in (first_key, last_key):
        there = place.moved(**{columns.index.name: key})
        for row in row_witnesses(tiling, m, there):
            yield there.moved(**{rows.index.name: row})
    at_first = place.moved(**{columns.index.name: first_key})
    for row in row_witnesses(tiling, m, at_first)[:2]:
        there = place.moved(**{rows.index.name: row})
        for key in key_witnesses(m, there, columns.index, first_key, last_key):
            yield there.moved(**{columns.index.name: key})
