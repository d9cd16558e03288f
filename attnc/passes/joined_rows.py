"""Whether the intervals of a tile's rows leave no gap: then some row sees each column between."""

from __future__ import annotations

from itertools import product

from sympy import Symbol

from attnc.passes.affine import Affine, affine, constant, direction, mentions, substitute
from attnc.passes.box import Box
from attnc.passes.regions import Edge, Region


def joined_rows(region: Region, box: Box) -> tuple[bool, list[Affine]]:
    """Tell whether the rows' intervals fill [lo, hi), and which widths must be positive.

    They do where one row attains every edge.  They do where all edges move the same way and each
    row's interval reaches the next row's: high(x) >= low(x + 1).  Proof: of the rows whose lows
    are at most y take the last, x; either it is the tile's last row, or some low of x + 1 is
    above y, so y is below each high of x.
    Returns: (whether they fill it, forms each of which is at least 1 unless every row is empty).
    """
    lows = [(edge, _edge_direction(edge, box.x)) for edge in region.lows]
    highs = [(edge, _edge_direction(edge, box.x)) for edge in region.highs]
    ways = {way for _, way in (*lows, *highs)}
    if None in ways:
        return False, []
    reached_at = {way for _, way in lows} | {-way for _, way in highs if way is not None}
    if not {1, -1} <= reached_at:
        return True, []
    found = [
        _reaches_next(low, high, way, box)
        for (low, way), (high, other) in product(lows, highs)
        if way and other
    ]
    fills = not {1, -1} <= ways and all(fine for fine, _ in found)
    return fills, [width for _, width in found if width is not None]


def _reaches_next(low: Edge, high: Edge, way: int, box: Box) -> tuple[bool, Affine | None]:
    """Whether each row's interval reaches the next one's, and a width that must be positive."""
    following = affine(box.x) + way  # the row whose low is the next one up
    moved = tuple(substitute(form, box.x, following) for form in low)
    if any(box.implies(one, other) for one, other in product(moved, high)):
        return True, None
    first = low[0]
    width = high[0] - first
    if len(low) > 1 or len(high) > 1 or any(mentions(atom, box.x) for atom in width.terms):
        return False, None
    one_by_one = moved[0] - first == constant(1)
    return one_by_one, None if box.proves(width - 1) else width


def _edge_direction(edge: Edge, x: Symbol) -> int | None:
    ways = {direction(form, x) for form in edge} - {0}
    if None in ways or len(ways) > 1:
        return None
    return ways.pop() if ways else 0
