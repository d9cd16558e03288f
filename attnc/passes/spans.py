"""The interval algebra: which columns a condition lets the rows of a tile see, as a few spans.

    spans(True)  = every column of every row
    spans(A & B) = intersections, pair by pair       spans(A | B) = one after the other
    an atom      = solved for the column, or for the row where it has no column; neither: a guard

After each step the provably empty are dropped, what lies inside another is absorbed, and
neighbours that share an edge are merged.  What cannot be solved (an unknown tensor read, a
remainder, a product of row and column) is opaque: it may hold everything and surely holds
nothing, which is always sound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

from sympy.logic.boolalg import Boolean

from attnc.passes.affine import affine, constant
from attnc.passes.box import Box
from attnc.passes.conditions import (
    All,
    AtMostZero,
    Condition,
    Divisible,
    Either,
    Guard,
    Opaque,
    Reader,
)
from attnc.passes.regions import (
    Congruence,
    Region,
    Span,
    contains,
    exactly,
    hull,
    hull_is_union,
    intersect,
    is_empty,
)
from attnc.passes.solve import solve

MOST_SPANS = 4
Spans = tuple[Span, ...]


def spans_of(condition: Boolean, box: Box, varying: frozenset[str]) -> Spans:
    """List the spans of a condition inside the columns that exist.

    `varying` names what differs from element to element of a tile.  No spans: nothing is visible.
    """
    columns = exactly(Region(lows=((constant(0),),), highs=((affine(box.columns),),)))
    algebra = _Algebra(box, varying)
    return algebra.both((columns,), algebra.spans(Reader(varying).read(condition)))


@dataclass(frozen=True, slots=True)
class _Algebra:
    box: Box
    varying: frozenset[str]

    def spans(self, condition: Condition) -> Spans:
        match condition:
            case All(parts):
                found: Spans = (exactly(Region()),)
                for part in sorted((self.spans(part) for part in parts), key=len):
                    found = self.both(found, part)
                return found
            case Either(parts):
                return self._thin(span for part in parts for span in self.spans(part))
            case Guard(guard):
                return (exactly(Region(guards=(guard,))),)
            case Divisible(form, modulus):
                return (Span(Region(congruences=(Congruence(form, modulus),)), None),)
            case AtMostZero():
                region = solve(self.box, condition, self.varying)
                return (Span(Region(), None) if region is None else exactly(region),)
            case Opaque():
                return (Span(Region(), None),)

    def both(self, left: Spans, right: Spans) -> Spans:
        return self._thin(self._meet(one, other) for one, other in product(left, right))

    def _meet(self, one: Span, other: Span) -> Span:
        outer = intersect(self.box, one.outer, other.outer)
        if one.inner is None or other.inner is None:
            return Span(outer, None)
        if one.is_exact and other.is_exact:
            return exactly(outer)
        return Span(outer, intersect(self.box, one.inner, other.inner))

    def _thin(self, spans: Iterable[Span]) -> Spans:
        kept: list[Span] = []
        for span in spans:
            if not is_empty(self.box, span.outer):
                self._absorb(kept, span)
            if len(kept) > MOST_SPANS:
                kept.append(self._hull(kept.pop(-2), kept.pop()))
        return tuple(kept)

    def _absorb(self, kept: list[Span], span: Span) -> None:
        """Add a span to a list, joined with one that it can be joined with."""
        for index, other in enumerate(kept):
            joined = self._join(other, span)
            if joined is not None:
                del kept[index]
                self._absorb(kept, joined)
                return
        kept.append(span)

    def _join(self, one: Span, other: Span) -> Span | None:
        for large, small in ((one, other), (other, one)):
            if contains(self.box, large.outer, small.outer):
                return self._widen(large, small)
        return self._hull(one, other) if hull_is_union(one.outer, other.outer) else None

    def _widen(self, large: Span, small: Span) -> Span:
        """The larger of two spans, less the congruences that only it obeys."""
        if large.is_exact:
            return large
        shared = tuple(c for c in large.outer.congruences if c in small.outer.congruences)
        inner = large.inner if large.inner is not None else small.inner
        return Span(replace(large.outer, congruences=shared), inner)

    def _hull(self, one: Span, other: Span) -> Span:
        outer = hull(self.box, one.outer, other.outer)
        if one.is_exact and other.is_exact and hull_is_union(one.outer, other.outer):
            return exactly(outer)
        return Span(outer, one.inner if one.inner is not None else other.inner)
