"""Write key ranges down: scalar lets, and the pieces of a loop.

Of n ranges, sorted by their first column, range i contributes the tiles V_i = [tile_lo, tile_hi)
that hold a visible pair and F_i = [full_lo, full_hi) that hold nothing else.  With reach_i the
furthest tile_hi so far, the masked tiles are

    head_i = [max(tile_lo_i, reach_{i-1}), full_lo_i)
    tail_i = [full_hi_i, min(reach_i, full_lo_{i+1}))

and the unmasked ones F_1 .. F_n.  An empty F_i stands where the next one begins, so that its head
runs that far.  Together they are the union of all V, each tile once; a piece may be empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sympy import Expr, Ge, Integer, Le, Lt, Or, Symbol
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Formula, Let, Piece
from attnc.passes.key_ranges import KeyRange
from attnc.passes.scalars import all_of, largest, smallest
from attnc.symbols import FloorDiv, Where, replaced

ZERO = Integer(0)


@dataclass(slots=True)
class Scope:
    """Collects scalar lets under fresh names."""

    taken: set[str]
    lets: list[Let] = field(default_factory=list)

    def let(self, name: str, value: Expr, note: str) -> Expr:
        """Name a scalar; numbers and names stay what they are."""
        if value.is_Symbol or value.is_number:
            return value
        for let in self.lets:
            if isinstance(let.value, Formula) and let.value.expr == value:
                return Symbol(let.name, integer=True)
        return self.define(self.fresh(name), value, note)

    def define(self, name: str, value: Expr, note: str) -> Symbol:
        """Bind exactly this name."""
        self.taken.add(name)
        self.lets.append(Let(name, Formula(value), (), "i32", note))
        return Symbol(name, integer=True)

    def reserve(self, name: str) -> str:
        """A fresh name that nothing later gets."""
        found = self.fresh(name)
        self.taken.add(found)
        return found

    def fresh(self, name: str) -> str:
        """The name itself, or one like it that nothing else has."""
        found, number = name, 1
        while found in self.taken:
            number += 1
            found = f"{name}_v{number}"
        return found


@dataclass(frozen=True, slots=True)
class Bounds:
    """What was found for one loop: its pieces, and the columns that its tiles may read."""

    pieces: tuple[Piece, ...]
    inside: Boolean  # over the inner index; true: every column of every visited tile
    tight: bool


@dataclass(frozen=True, slots=True)
class TileWriter:
    """Writes the ranges of one loop over tiles of `block` columns."""

    scope: Scope
    inner: Symbol
    block: Expr
    column: str = "key"  # what the reader of the notes calls a column and a row
    row: str = "query"

    def write(self, ranges: tuple[KeyRange, ...]) -> Bounds:
        """Name the scalars of all ranges and list the pieces."""
        for rows in dict.fromkeys(row for r in ranges for row in r.rows):
            self.scope.define(rows.start.name, rows.start_expr, rows.note)
            self.scope.define(rows.stop.name, rows.stop_expr, rows.note)
        suffixes = [f"_{n}" if len(ranges) > 1 else "" for n in range(1, len(ranges) + 1)]
        named = [self._columns(r, s) for r, s in zip(ranges, suffixes, strict=True)]
        ordered = self._sort(named)
        inside = Or(*(self._inside(r) for r in ordered))
        pieces = self._one(ordered[0]) if len(ordered) == 1 else self._several(ordered)
        return Bounds(pieces, inside, all(r.tight for r in ranges))

    # ------------------------------------------------------------ columns

    def _columns(self, found: KeyRange, suffix: str) -> KeyRange:
        keys = self.inner.name.removesuffix("_idx")
        lo = self.scope.let(
            f"{keys}_lo{suffix}",
            found.lo,
            f"first {self.column} that some {self.row} {_sees(found)}",
        )
        shown = replaced(found.hi, {found.lo: lo}) if found.lo.args else found.hi
        hi = self.scope.let(
            f"{keys}_hi{suffix}",
            shown,
            f"one past the last {self.column} that some {self.row} {_sees(found)}",
        )
        if found.every_lo is None or found.every_hi is None:
            return replace(found, lo=lo, hi=hi)
        every_lo = lo if found.every_lo == found.lo else found.every_lo
        every_hi = hi if found.every_hi == found.hi else found.every_hi
        if suffix:
            note = f"first {self.column} that every {self.row} sees"
            every_lo = self.scope.let(f"{keys}_every_lo{suffix}", every_lo, note)
            note = f"one past the last {self.column} that every {self.row} sees"
            every_hi = self.scope.let(f"{keys}_every_hi{suffix}", every_hi, note)
        return replace(found, lo=lo, hi=hi, every_lo=every_lo, every_hi=every_hi)

    def _inside(self, found: KeyRange) -> Boolean:
        parts = [self.inner >= found.lo] if found.lo != ZERO else []
        return And(*parts, Lt(self.inner, found.hi, evaluate=False))

    def _sort(self, ranges: list[KeyRange]) -> list[KeyRange]:
        """Order ranges by lo: by what is known, or by exchanging the scalars at run time."""
        ranges = sorted(ranges, key=lambda r: r.lo != ZERO)
        start = sum(r.lo == ZERO for r in ranges)
        for last in range(len(ranges) - 1, start, -1):
            for index in range(start, last):
                ranges[index : index + 2] = self._exchange(ranges[index], ranges[index + 1])
        return ranges

    def _exchange(self, one: KeyRange, other: KeyRange) -> tuple[KeyRange, KeyRange]:
        in_order = Le(one.lo, other.lo, evaluate=False)
        earlier, later = {}, {}
        for part in ("lo", "hi", "every_lo", "every_hi"):
            a, b = getattr(one, part), getattr(other, part)
            a, b = (ZERO if value is None else value for value in (a, b))
            name = f"{self.inner.name.removesuffix('_idx')}_{part}"
            earlier[part] = self.scope.let(
                f"{name}_first", Where(in_order, a, b), "the earlier range"
            )
            later[part] = self.scope.let(f"{name}_second", Where(in_order, b, a), "the later range")
        both = {"tight": one.tight and other.tight, "fits": False}
        return replace(one, **earlier, **both), replace(other, **later, **both)

    # ------------------------------------------------------------ tiles

    def _down(self, column: Expr) -> Expr:
        return ZERO if column == ZERO else FloorDiv(column, self.block)

    def _up(self, column: Expr) -> Expr:
        return ZERO if column == ZERO else FloorDiv(column + self.block - 1, self.block)

    def _one(self, found: KeyRange) -> tuple[Piece, ...]:
        let = self.scope.let
        tile_lo = let("tile_lo", self._down(found.lo), f"first tile {_holding(found)}")
        tile_hi = let("tile_hi", self._up(found.hi), f"one past the last tile {_holding(found)}")
        if found.every_lo is None or found.every_hi is None:
            return (Piece(tile_lo, tile_hi),)
        full_lo, full_hi = self._up(found.every_lo), self._down(found.every_hi)
        if not found.fits:
            full_lo, full_hi = (_at_most(value, tile_hi) for value in (full_lo, full_hi))
        full_lo = let("full_lo", full_lo, "first wholly visible tile")
        full_hi = full_hi if full_lo == ZERO else largest([full_lo, full_hi])
        full_hi = let("full_hi", full_hi, "one past the last wholly visible tile")
        return _present(
            Piece(full_lo, full_hi, masked=False), Piece(tile_lo, full_lo), Piece(full_hi, tile_hi)
        )

    def _several(self, ranges: list[KeyRange]) -> tuple[Piece, ...]:
        count = len(ranges)
        names = [f"_{n}" for n in range(1, count + 1)]
        let = self.scope.let
        lows, highs, reach = [], [], []
        for found, n in zip(ranges, names, strict=True):
            note = f"tile {_holding(found)}"
            lows.append(let(f"tile_lo{n}", self._down(found.lo), f"first {note}"))
            highs.append(let(f"tile_hi{n}", self._up(found.hi), f"one past the last {note}"))
            furthest = largest([reach[-1], highs[-1]]) if reach else highs[-1]
            reach.append(let(f"reach{n}", furthest, "where the furthest range so far ends"))
        starts, stops = self._full(ranges, names, highs)
        return self._cut(lows, reach, starts, stops, names)

    def _full(
        self, ranges: list[KeyRange], names: list[str], highs: list[Expr]
    ) -> tuple[list[Expr], list[Expr]]:
        """Tiles that every row sees whole, sorted; a tile that two ranges fill together counts."""
        let = self.scope.let
        starts: list[Expr] = []
        stops: list[Expr] = []
        used: Expr = ZERO
        for i, (found, n) in enumerate(zip(ranges, names, strict=True)):
            if found.every_lo is None or found.every_hi is None:
                starts.append(ZERO)
                stops.append(ZERO)
                continue
            start: Expr = self._up(found.every_lo)
            if i:
                start = self._after(ranges[i - 1], found, start, starts, stops)
            if used != ZERO:
                start = largest([start, used])
            stop = self._down(found.every_hi)
            stop = stop if found.fits else _at_most(stop, highs[i])
            note = "one past the last wholly visible tile"
            starts.append(let(f"whole_lo{n}", start, "first wholly visible tile"))
            name = "full_hi" if start == ZERO else "whole_hi"
            stops.append(let(f"{name}{n}", stop, note))
            if i + 1 < len(ranges):
                used = self._used(starts[-1], stops[-1], used)
        return starts, stops

    def _after(
        self,
        before: KeyRange,
        found: KeyRange,
        start: Expr,
        starts: list[Expr],
        stops: list[Expr],
    ) -> Expr:
        """The first whole tile of a range that may continue the one before it."""
        if before.every_lo is None or before.every_hi is None or start == ZERO:
            return start
        touches = Le(found.every_lo, before.every_hi, evaluate=False)
        if before.every_lo != ZERO:
            later = Ge(found.every_lo, before.every_lo, evaluate=False)
            touches = all_of((later, touches))
        both = stops[-1] if starts[-1] == ZERO else largest([starts[-1], stops[-1]])
        return Where(touches, both, start)

    def _used(self, start: Expr, stop: Expr, used: Expr) -> Expr:
        if start == ZERO:
            return stop if used == ZERO else largest([used, stop])
        return Where(Lt(start, stop, evaluate=False), stop, used)

    def _cut(
        self,
        lows: list[Expr],
        reach: list[Expr],
        starts: list[Expr],
        stops: list[Expr],
        names: list[str],
    ) -> tuple[Piece, ...]:
        """Lay the pieces out, from the last range to the first."""
        unmasked: list[Piece] = []
        masked: list[Piece] = []
        following = reach[-1]
        for i in reversed(range(len(lows))):
            here = _at_most(reach[i], following) if following != reach[i] else reach[i]
            full_lo, full_hi = self._place(starts[i], stops[i], here, names[i])
            head_from = largest([lows[i], reach[i - 1]]) if i else lows[i]
            head_from = reach[i - 1] if i and lows[i] == ZERO else head_from
            unmasked.insert(0, Piece(full_lo, full_hi, masked=False))
            tail = Piece(full_hi, here)
            masked[0:0] = [Piece(head_from, full_lo), tail]
            following = full_lo
        return _present(*unmasked, *masked)

    def _place(self, start: Expr, stop: Expr, here: Expr, n: str) -> tuple[Expr, Expr]:
        """Where the whole tiles stand; where there are none, an empty range at the next ones."""
        if start == stop == ZERO:
            return here, here
        if start == ZERO:
            return ZERO, stop
        there = Lt(start, stop, evaluate=False)
        note = "first wholly visible tile, or where the next ones begin"
        full_lo = self.scope.let(f"full_lo{n}", Where(there, start, here), note)
        full_hi = self.scope.let(
            f"full_hi{n}", Where(there, stop, here), "one past the last wholly visible tile"
        )
        return full_lo, full_hi


def _at_most(value: Expr, limit: Expr) -> Expr:
    return ZERO if value == ZERO else smallest([value, limit])


def _sees(found: KeyRange) -> str:
    return "sees" if found.tight else "may see"


def _holding(found: KeyRange) -> str:
    return "with a visible pair" if found.tight else "that may hold a visible pair"


def _present(*pieces: Piece) -> tuple[Piece, ...]:
    """The pieces that are not empty by their very text."""
    return tuple(piece for piece in pieces if piece.start != piece.stop)
