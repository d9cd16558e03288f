"""From spans to numbers: the columns that the rows of a tile see, in closed form.

For a span, `lo` and `hi` surround what some row of the tile sees and `every_lo`, `every_hi` what
each of its rows sees.  An edge that grows with the row takes its least value in the first row and
its largest in the last.  hi is 0 where nothing is seen, so that no tile is visited for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from sympy import Expr, Ge, Integer, Lt, Not, Symbol
from sympy.logic.boolalg import Boolean

from attnc.passes.affine import Affine, affine, constant, direction, mentions, substitute
from attnc.passes.box import Box
from attnc.passes.joined_rows import joined_rows
from attnc.passes.regions import Edge, Region, Span, prune_highs, prune_lows
from attnc.passes.scalars import at_most, largest, smallest, where_all
from attnc.symbols import Where

ZERO = constant(0)
ZERO_EXPR = Integer(0)


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows that a part of the mask is about: from <= x < to, under names of their own."""

    start: Symbol
    stop: Symbol
    start_expr: Expr
    stop_expr: Expr
    note: str


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Columns [lo, hi) that some row may see, and [every_lo, every_hi) that each row sees.

    `tight`: some row sees each column of [lo, hi).  `fits`: what every row sees lies inside
    [lo, hi) also where conditions make that empty.
    """

    lo: Expr
    hi: Expr
    every_lo: Expr | None
    every_hi: Expr | None
    tight: bool
    fits: bool
    rows: tuple[RowRange, ...] = ()


def key_ranges(spans: tuple[Span, ...], box: Box) -> tuple[KeyRange, ...]:
    """Evaluate spans over a tile; ranges that start at the same column become one."""
    rest = _rows_that_do_not_see_all(spans, box)
    suffixes = [f"_{n}" if len(spans) > 1 else "" for n in range(1, len(spans) + 1)]
    waiting = list(zip(spans, suffixes, strict=True))
    merged: list[KeyRange] = []
    while waiting:
        span, suffix = waiting.pop(0)
        other = next((pair for pair in waiting if _alternative(span, pair[0]) is not None), None)
        if other is None:
            _merge(merged, _evaluate(span, box, rest, suffix))
            continue
        waiting.remove(other)
        guard = _alternative(span, other[0])
        assert guard is not None
        then = _evaluate(_without(span, guard), box, rest, suffix)
        otherwise = _evaluate(_without(other[0], Not(guard)), box, rest, other[1])
        _merge(merged, _either(guard, then, otherwise))
    return tuple(merged)


def _alternative(one: Span, other: Span) -> Boolean | None:
    """A condition on which the first span depends, and the second on its opposite."""
    return next((g for g in one.outer.guards if Not(g) in other.outer.guards), None)


def _without(span: Span, guard: Boolean) -> Span:
    def less(region: Region) -> Region:
        return replace(region, guards=tuple(g for g in region.guards if g != guard))

    outer = less(span.outer)
    if span.inner is None:
        return Span(outer, None)
    return Span(outer, outer if span.is_exact else less(span.inner))


def _either(guard: Boolean, then: KeyRange, other: KeyRange) -> KeyRange:
    """One range whose ends depend on a condition; where nothing is seen by all, an empty one."""
    every_lo = every_hi = None
    if then.every_hi is not None or other.every_hi is not None:
        sides = [
            (r.lo, ZERO_EXPR)
            if r.every_lo is None or r.every_hi is None
            else (r.every_lo, r.every_hi)
            for r in (then, other)
        ]
        (lo, hi), (other_lo, other_hi) = sides
        every_lo, every_hi = Where(guard, lo, other_lo), Where(guard, hi, other_hi)
    return KeyRange(
        Where(guard, then.lo, other.lo),
        Where(guard, then.hi, other.hi),
        every_lo,
        every_hi,
        tight=then.tight and other.tight,
        fits=False,
        rows=(*then.rows, *other.rows),
    )


def _merge(ranges: list[KeyRange], new: KeyRange) -> None:
    for index, old in enumerate(ranges):
        same_every = None in (old.every_lo, new.every_lo) or old.every_lo == new.every_lo
        if old.lo == new.lo and same_every:
            highs = [hi for hi in (old.every_hi, new.every_hi) if hi is not None]
            ranges[index] = replace(
                old,
                hi=largest([old.hi, new.hi]),
                every_lo=new.every_lo if old.every_lo is None else old.every_lo,
                every_hi=largest(highs) if highs else None,
                tight=old.tight and new.tight,
                fits=old.fits and new.fits,
                rows=tuple(dict.fromkeys((*old.rows, *new.rows))),
            )
            return
    ranges.append(new)


# ---------------------------------------------------------------- one span


def _evaluate(span: Span, box: Box, rest: RowRange | None, suffix: str) -> KeyRange:
    region, rows = _name_rows(span.outer, box, suffix)
    first = affine(rows.start if rows else box.first)
    last = affine(rows.stop if rows else box.end) - 1
    lows = tuple(_extremes(edge, box, first, last, greatest=False) for edge in region.lows)
    highs = tuple(_extremes(edge, box, first, last, greatest=True) for edge in region.highs)
    is_tight, widths = joined_rows(region, box)
    lo, hi = _low_expr(box, lows), _clipped(box, highs)
    conditions = [*region.guards, *_some_row(region, box)]
    conditions += [Ge(width.expr(), 1, evaluate=False) for width in widths]
    if not _ordered(box, lows, highs, widths):
        conditions.append(Lt(lo, hi, evaluate=False))
    every = None if span.inner is None else _every(span.inner, box, rest)
    fits = span.is_exact and not conditions and rest is None
    return KeyRange(
        lo,
        where_all(conditions, hi),
        every[0] if every else None,
        every[1] if every else None,
        tight=is_tight and span.is_exact,
        fits=fits and every is not None and _below_all(box, every[2], highs),
        rows=tuple(r for r in (rows, rest if every else None) if r is not None),
    )


def _every(region: Region, box: Box, rest: RowRange | None) -> tuple[Expr, Expr, tuple[Edge, ...]]:
    """The columns that each row of the tile sees (of those rows that do not see every column)."""
    whole_rows = rest is not None and not _sees_all_columns(region, box)
    first = affine(rest.start if rest and whole_rows else box.first)
    end = affine(rest.stop if rest and whole_rows else box.end)
    lows = tuple(_extremes(e, box, first, end - 1, greatest=True) for e in region.lows)
    highs = tuple(_extremes(e, box, first, end - 1, greatest=False) for e in region.highs)
    conditions = list(region.guards)
    conditions += [at_most(a, first) for a in region.rows_from if not box.implies(a, first)]
    conditions += [at_most(end, b) for b in region.rows_to if not box.implies(end, b)]
    return _low_expr(box, lows), where_all(conditions, _clipped(box, highs)), lows


def _name_rows(region: Region, box: Box, suffix: str) -> tuple[Region, RowRange | None]:
    """Name the rows of a region, where its edges depend on them and they are not the tile's."""
    start = tuple(a for a in region.rows_from if not box.implies(a, affine(box.first)))
    stop = tuple(b for b in region.rows_to if not box.implies(affine(box.end), b))
    region = replace(region, rows_from=start, rows_to=stop)
    edges = (*region.lows, *region.highs)
    moving = any(mentions(atom, box.x) for edge in edges for form in edge for atom in form.terms)
    if not moving or not (start or stop):
        return region, None
    outer = box.x.name.removesuffix("_idx")
    rows = RowRange(
        Symbol(f"{outer}_from{suffix}", integer=True),
        Symbol(f"{outer}_to{suffix}", integer=True),
        largest([box.first, *(a.expr() for a in start)]),
        smallest([box.end, *(b.expr() for b in stop)]),
        "rows of the tile that this part of the mask is about",
    )
    return region, rows


def _rows_that_do_not_see_all(spans: tuple[Span, ...], box: Box) -> RowRange | None:
    """Rows for which it takes more than one span's row condition to see every column."""
    regions = [s.outer for s in spans if s.is_exact and _sees_all_columns(s.outer, box)]
    skipped_below = [r.rows_to[0] for r in regions if len(r.rows_to) == 1 and not r.rows_from]
    skipped_above = [r.rows_from[0] for r in regions if len(r.rows_from) == 1 and not r.rows_to]
    if len(spans) == 1 or not (skipped_below or skipped_above):
        return None
    outer = box.x.name.removesuffix("_idx")
    return RowRange(
        Symbol(f"{outer}_partial_from", integer=True),
        Symbol(f"{outer}_partial_to", integer=True),
        largest([box.first, *(b.expr() for b in skipped_below)]),
        smallest([box.end, *(a.expr() for a in skipped_above)]),
        "rows of the tile that do not see everything",
    )


def _sees_all_columns(region: Region, box: Box) -> bool:
    """Whether a region's rows see every column that exists, on no other condition."""
    return (
        not region.guards
        and region.lows == ((ZERO,),)
        and region.highs == ((affine(box.columns),),)
    )


def _some_row(region: Region, box: Box) -> list[Boolean]:
    """Conditions under which the tile has a row that the region is about."""
    first, end = affine(box.first), affine(box.end)
    pairs = [(a, end) for a in region.rows_from] + [(first, b) for b in region.rows_to]
    pairs += list(product(region.rows_from, region.rows_to))
    return [at_most(a + 1, b) for a, b in pairs if not box.implies(a + 1, b)]


# ---------------------------------------------------------------- numbers


def _extremes(edge: Edge, box: Box, first: Affine, last: Affine, *, greatest: bool) -> Edge:
    return tuple(_extreme(form, box.x, first, last, greatest) for form in edge)


def _extreme(form: Affine, x: Symbol, first: Affine, last: Affine, greatest: bool) -> Affine:
    """The largest or smallest value of a form over the rows, term by term."""
    total = Affine({}, form.constant)
    for atom, factor in form.terms.items():
        way = direction(Affine({atom: factor}), x)
        at = last if (way == 1) is greatest else first
        total += substitute(Affine({atom: factor}), x, at)
    return total


def _low_expr(box: Box, lows: tuple[Edge, ...]) -> Expr:
    kept = prune_lows(box, lows)
    return largest([smallest([form.expr() for form in edge]) for edge in kept])


def _clipped(box: Box, highs: tuple[Edge, ...]) -> Expr:
    kept = prune_highs(box, highs)
    least = smallest([largest([form.expr() for form in edge]) for edge in kept])
    if all(any(box.proves(form) for form in edge) for edge in kept):
        return least
    return largest([Integer(0), least])


def _ordered(
    box: Box, lows: tuple[Edge, ...], highs: tuple[Edge, ...], widths: list[Affine]
) -> bool:
    """Whether lo < hi wherever hi > 0, given that the widths are at least 1."""
    spare = [constant(0), *(width - 1 for width in widths)]  # what is at least 0
    above_zero = [edge for edge in lows if edge != (ZERO,)]
    return all(
        any(box.implies(a + 1 + given, b) for a in low for b in high for given in spare)
        for low, high in product(above_zero, highs)
    )


def _below_all(box: Box, lows: tuple[Edge, ...], highs: tuple[Edge, ...]) -> bool:
    above_zero = [edge for edge in lows if edge != (ZERO,)]
    return all(
        any(box.implies(a, b) for a in low for b in high)
        for low, high in product(above_zero, highs)
    )
