"""Regions: for each row an interval of columns, in a form that can be joined, compared and proved.

A region says, for the row x of a tile, which columns y it holds:

    max(lows) <= y < min(highs)   each low the min, each high the max of linear forms in x: an Edge
    rows_from <= x < rows_to      forms without x: rows outside hold nothing
    guards                        conditions without x and y: if one fails, nothing is held
    congruences                   form(x, y) % modulus == 0; kept only to tighten the edges

Nothing is evaluated at the tile's ends before the very end (key_ranges.py), so that the
conjunction of two regions loses nothing: its rows still know which of their bounds belong
together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeVar

from sympy.logic.boolalg import Boolean

from attnc.passes.affine import Affine
from attnc.passes.box import Box

Bound = TypeVar("Bound")
Edge = tuple[Affine, ...]
_MOST_EDGES = 6


@dataclass(frozen=True, slots=True)
class Congruence:
    """form % modulus == 0."""

    form: Affine
    modulus: int


@dataclass(frozen=True, slots=True)
class Region:
    """For each row an interval of columns; the bare one holds every column of every row."""

    lows: tuple[Edge, ...] = ()
    highs: tuple[Edge, ...] = ()
    rows_from: tuple[Affine, ...] = ()
    rows_to: tuple[Affine, ...] = ()
    guards: tuple[Boolean, ...] = ()
    congruences: tuple[Congruence, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Span:
    """`outer` holds every visible pair of this part of the mask, `inner`, if any, no hidden one."""

    outer: Region
    inner: Region | None

    @property
    def is_exact(self) -> bool:
        """Whether outer holds nothing but visible pairs."""
        return self.outer is self.inner


def exactly(region: Region) -> Span:
    """The span of a condition that was solved."""
    return Span(region, region)


# ---------------------------------------------------------------- edges


def high_within(box: Box, one: Edge, other: Edge) -> bool:
    """Whether the high `one` (a max) is at most `other`, row by row."""
    return all(any(box.implies(a, b) for b in other) for a in one)


def low_within(box: Box, one: Edge, other: Edge) -> bool:
    """Whether the low `one` (a min) is at least `other`, row by row."""
    return all(any(box.implies(b, a) for b in other) for a in one)


def prune_highs(box: Box, edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """The highs that no other one implies."""
    return _prune(edges, lambda one, other: high_within(box, one, other))


def prune_lows(box: Box, edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """The lows that no other one implies."""
    return _prune(edges, lambda one, other: low_within(box, one, other))


def _prune(
    edges: tuple[Bound, ...], implied_by: Callable[[Bound, Bound], bool]
) -> tuple[Bound, ...]:
    """Drop what another one implies; of equals the first stays."""
    kept: list[Bound] = []
    for edge in edges:
        if any(implied_by(other, edge) for other in kept):
            continue
        kept = [other for other in kept if not implied_by(edge, other)]
        kept.append(edge)
    return tuple(kept)


def _join_high(box: Box, one: Edge, other: Edge) -> Edge:
    return _prune((*one, *other), lambda a, b: box.implies(b, a))


def _join_low(box: Box, one: Edge, other: Edge) -> Edge:
    return _prune((*one, *other), lambda a, b: box.implies(a, b))


# ---------------------------------------------------------------- regions


def intersect(box: Box, one: Region, other: Region) -> Region:
    """The pairs that both regions hold."""
    merged = Region(
        (*one.lows, *other.lows),
        (*one.highs, *other.highs),
        _prune((*one.rows_from, *other.rows_from), lambda a, b: box.implies(b, a)),
        _prune((*one.rows_to, *other.rows_to), lambda a, b: box.implies(a, b)),
        tuple(dict.fromkeys((*one.guards, *other.guards))),
        (*one.congruences, *other.congruences),
    )
    if merged.congruences:
        merged = _tighten(merged, box)
    return replace(merged, lows=prune_lows(box, merged.lows), highs=prune_highs(box, merged.highs))


def _tighten(region: Region, box: Box) -> Region:
    """Move edges to the nearest column that a congruence allows."""
    lows, highs = region.lows, region.highs
    for rule in region.congruences:
        lows = tuple(tuple(_next_allowed(a, rule, box) for a in edge) for edge in lows)
        highs = tuple(tuple(-_next_allowed(-a, rule, box, -1) for a in edge) for edge in highs)
    return replace(region, lows=lows, highs=highs)


def _next_allowed(low: Affine, rule: Congruence, box: Box, sign: int = 1) -> Affine:
    """The least allowed column from `low` on, where it is the same distance away in every row.

    With sign -1: minus the greatest allowed column plus 1 below -low.
    """
    slope = rule.form.of(box.y)
    if slope not in (1, -1):
        return low
    at = low if sign == 1 else -low - 1  # the first candidate, still as a column
    residue = rule.form.without(box.y).times(slope) + at
    if residue.terms:
        return low
    missing = -residue.constant % rule.modulus if sign == 1 else residue.constant % rule.modulus
    return low + int(missing)


def is_empty(box: Box, region: Region) -> bool:
    """Whether a region provably holds no pair."""
    rows = any(box.implies(b, a) for a, b in product(region.rows_from, region.rows_to))
    rows = rows or any(box.implies(Affine({box.end: 1}), a) for a in region.rows_from)
    rows = rows or any(box.implies(b, Affine({box.first: 1})) for b in region.rows_to)
    return rows or any(
        all(box.implies(h, low_form) for h in high for low_form in low)
        for low, high in product(region.lows, region.highs)
    )


def contains(box: Box, large: Region, small: Region) -> bool:
    """Whether `large` provably holds all that `small` holds."""
    return (
        set(large.guards) <= set(small.guards)
        and all(any(low_within(box, s, e) for s in small.lows) for e in large.lows)
        and all(any(high_within(box, s, e) for s in small.highs) for e in large.highs)
        and all(any(box.implies(e, s) for s in small.rows_from) for e in large.rows_from)
        and all(any(box.implies(s, e) for s in small.rows_to) for e in large.rows_to)
    )


def hull(box: Box, one: Region, other: Region) -> Region:
    """For each row an interval around what the two regions hold."""
    lows = [_join_low(box, a, b) for a, b in product(one.lows, other.lows)]
    highs = [_join_high(box, a, b) for a, b in product(one.highs, other.highs)]
    return Region(
        prune_lows(box, tuple(lows))[:_MOST_EDGES],
        prune_highs(box, tuple(highs))[:_MOST_EDGES],
        tuple(a for a in one.rows_from if any(box.implies(a, b) for b in other.rows_from)),
        tuple(a for a in one.rows_to if any(box.implies(b, a) for b in other.rows_to)),
        tuple(guard for guard in one.guards if guard in other.guards),
    )


def hull_is_union(one: Region, other: Region) -> bool:
    """Whether the hull of two regions holds nothing that neither holds."""
    if (one.rows_from, one.rows_to) != (other.rows_from, other.rows_to):
        return False
    if set(one.guards) != set(other.guards) or one.congruences or other.congruences:
        return False
    small = len(one.lows) * len(other.lows) <= _MOST_EDGES
    small = small and len(one.highs) * len(other.highs) <= _MOST_EDGES
    return small and (_same(one.lows, other.lows) or _same(one.highs, other.highs))


def _same(one: tuple[Edge, ...], other: tuple[Edge, ...]) -> bool:
    return len(one) == len(other) and all(edge in other for edge in one)
