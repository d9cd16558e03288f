"""Every key tile that a program visits holds a pair that the spec lets see each other.

Nothing is wrong with a program that visits more, it is only slow; so for masks with parts beyond
the interval algebra (tensor reads by position, remainders, real bounds) the claim is not made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy
from sympy import Basic
from sympy.core.relational import Relational

from attnc.symbols import FloorDiv, FloorMod, Read
from attnc.verify.access_claims import key_witnesses, row_witnesses
from attnc.verify.claims import Claim, Tiling
from attnc.verify.concrete_meaning import ConcreteMeaning
from attnc.verify.meaning import Meaning, Place

Term = Any

_POSITIONS = {"q_idx", "q_pos", "kv_idx"}


def tightness_claims(tiling: Tiling, mask: Basic) -> list[Claim]:
    """One claim for all loops of a kernel; none where parts of the mask are beyond the algebra."""
    if not is_claimed(mask):
        return []
    return [Claim("every visited tile holds a visible pair", lambda m: _wanted(tiling, m))]


def is_claimed(mask: Basic) -> bool:
    """Whether the interval algebra can solve every part of a mask exactly."""
    parts = sympy.preorder_traversal(mask)
    beyond = any(isinstance(part, Read | FloorMod) and _moves(part) for part in parts)
    relations: set[Any] = mask.atoms(Relational)
    return not beyond and all(r.lhs.is_integer and r.rhs.is_integer for r in relations)


def _divisors(mask: Basic) -> list[Basic]:
    """Run-time divisors; the claim is made for positive ones, others fall back to every tile."""
    found = {part.args[1] for part in mask.atoms(FloorDiv) if not part.args[1].is_number}
    return sorted(found, key=str)


def _moves(part: Basic) -> bool:
    return any(str(symbol) in _POSITIONS for symbol in part.free_symbols)


def _wanted(tiling: Tiling, m: Meaning) -> Term:
    """Look for a visible pair among the corners, the diagonal and the edges of the mask's parts."""
    instance = tiling.instance(m)
    tile = m.pick("tile")
    place = tiling.tile_at(m, instance, tile)
    visits = (v for loop in tiling.loops for v in tiling.visits(m, loop, place, tile))
    m.given(m.either(*visits))
    for divisor in _divisors(m.subject.spec.mask):
        m.given(m.formula(divisor, place.spec_side()) > 0)
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
