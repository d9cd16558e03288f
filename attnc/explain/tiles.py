"""Count the tiles a READY program visits, from its loop ranges alone: nothing dense, any length.

The ranges are formulas over the tile's number, lengths and params, so counting for a million tokens
takes a few thousand evaluations of integers.  Of more than MOST_VISITS tiles of queries some are
counted, evenly spread, each for its neighbours too.  `needed_tiles` counts by brute force, for
small sizes, what the loops ought to visit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import cast

from sympy import Basic

from attnc.explain.evaluate import Number, compile_formula, names_in
from attnc.explain.masks import mask_rows
from attnc.explain.situation import Situation
from attnc.ir.nodes import (
    BLOCK_KV,
    BLOCK_Q,
    Collapse,
    Fill,
    Formula,
    Kernel,
    Let,
    Load,
    Loop,
    Piece,
    Value,
)
from attnc.ir.rebuild import reads_of_value
from attnc.spec.schema import AttentionSpec
from attnc.symbols import Read

Values = dict[str, "Number | list[Number]"]
BRUTE_FORCE_PAIRS = 2**20  # over all heads that differ: about 0.1 s in plain Python
MOST_VISITS = 2**14  # counted one by one: a fraction of a second in plain Python
MOST_HEADS = 64  # of all batch entries, where not every visit is counted
GOLDEN_SECTION = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Range:
    """Key tiles [start, stop) that one query tile visits in one piece of a loop."""

    start: int
    stop: int
    masked: bool

    @property
    def tiles(self) -> int:
        """How many; start >= stop is none."""
        return max(0, self.stop - self.start)


@dataclass(frozen=True, slots=True)
class Visit:
    """What one query tile of one head does."""

    b: int
    h: int
    q_tile: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class TileCount:
    """Tiles over all heads and batch entries; areas are pairs that exist, padding left out."""

    total: int
    visited: int
    masked: int
    unmasked: int
    total_pairs: int
    visited_pairs: int
    unmasked_pairs: int
    visits: tuple[Visit, ...]  # counted, of the heads and batch entries that differ
    differing: int  # how many visits there are of these; more than counted: an estimate

    @property
    def density(self) -> float:
        """Share of all tiles that are visited, 0 ... 1; 0 where there are none."""
        return self.visited / self.total if self.total else 0.0

    @property
    def visited_area(self) -> float:
        """Share of all pairs that lie in visited tiles, 0 ... 1."""
        return self.visited_pairs / self.total_pairs if self.total_pairs else 0.0


def pieces_of(kernel: Kernel) -> list[Piece]:
    """The pieces of all loops of a kernel, in order."""
    return [piece for stmt in kernel.body if isinstance(stmt, Loop) for piece in stmt.pieces]


def range_lets(kernel: Kernel) -> list[Let]:
    """The statements on which the range of some loop depends, in order."""
    return _before(kernel)[0]


def _before(kernel: Kernel) -> tuple[list[Let], set[str]]:
    """These statements, and every name that they or the ranges read."""
    pieces = pieces_of(kernel)
    wanted = {name for p in pieces for part in (p.start, p.stop) for name in names_in(part)}
    rows = next((axis for axis in kernel.axes if axis.role == "rows"), None)
    found: list[Let] = []
    for let in reversed([stmt for stmt in kernel.body if isinstance(stmt, Let)]):
        if let.name in wanted:
            found.insert(0, let)
            wanted |= reads_of_value(let.value)
            wanted |= names_in(rows.first) if let.axes and rows else set()
    return found, wanted


def tensors_in_ranges(kernel: Kernel) -> frozenset[str]:
    """The tensors whose contents decide what the loops of a kernel visit."""
    values = [let.value for let in range_lets(kernel)]
    loaded = {value.buffer for value in values if isinstance(value, Load)}
    formulas = [end for piece in pieces_of(kernel) for end in (piece.start, piece.stop)]
    formulas += [value.expr for value in values if isinstance(value, Formula)]
    return frozenset(loaded | {read.tensor for f in formulas for read in f.atoms(Read)})


class LoopRanges:
    """The ranges of a kernel's loops, as functions of (b, h, tile number)."""

    def __init__(self, kernel: Kernel, situation: Situation, block_q: int, block_kv: int) -> None:
        self.kernel, self.situation = kernel, situation
        self.rows = next((axis for axis in kernel.axes if axis.role == "rows"), None)
        self.digit = next((str(d.index) for d in kernel.grid if "BLOCK_Q" in str(d.extent)), "")
        self.pieces = pieces_of(kernel)
        self.constants: Values = dict(situation.names())
        inference = {scalar.name: False for scalar in kernel.scalars if scalar.kind == "switch"}
        self.constants |= {str(BLOCK_Q): block_q, str(BLOCK_KV): block_kv} | inference
        self.lets, self.wanted = _before(kernel)
        self.functions: dict[Basic, tuple[Callable, tuple[str, ...]]] = {}

    def depends_on(self, name: str) -> bool:
        """Whether some range reads this digit of the grid."""
        return name in self.wanted

    def at(self, b: int, h: int, q_tile: int, **others: int) -> tuple[Range, ...]:
        """The ranges of one query tile; others: further digits of the grid, by name."""
        values: Values = dict(self.constants, b=b, h=h, **others)
        values[self.digit] = q_tile
        for let in self.lets:
            values[let.name] = self._evaluate(let, values)
        return tuple(
            Range(self._whole(p.start, values), self._whole(p.stop, values), p.masked)
            for p in self.pieces
        )

    def _whole(self, formula: Basic, values: Values) -> int:
        return int(self._formula(formula, values))

    def _formula(self, formula: Basic, values: Values) -> Number:
        if formula not in self.functions:
            names = tuple(sorted(names_in(formula)))
            self.functions[formula] = (compile_formula(formula, names, self._read), names)
        function, names = self.functions[formula]
        return function(*(values[name] for name in names))

    def _read(self, name: str, *index: int) -> Number:
        return self.situation.read(name, *index)

    def _evaluate(self, let: Let, values: Values) -> Number | list[Number]:
        if not let.axes:
            return self._value(let.value, values)
        if self.rows is None or let.axes != (self.rows.name,):
            raise ValueError(
                f"explain cannot follow {let.name}{list(let.axes)} into a loop's range"
            )
        return [self._value(let.value, at_row) for at_row in self._rows(values)]

    def _rows(self, values: Values) -> Iterator[Values]:
        """The values as each row of the tile sees them, its position filled in."""
        assert self.rows is not None
        first = self._whole(self.rows.first, values)
        for p in range(self._whole(self.rows.tile, values)):
            own: Values = {n: v[p] if isinstance(v, list) else v for n, v in values.items()}
            yield own | {str(self.rows.index): first + p}

    def _value(self, value: Value, values: Values) -> Number:
        match value:
            case Formula(expr):
                return self._formula(expr, values)
            case Fill(number):
                return self._formula(number, values)
            case Load(buffer, index, guard):
                if not self._formula(guard, values):
                    return 0
                return self._read(buffer, *(self._whole(i, values) for i in index))
            case Collapse(kind, name, _):
                column = values[name]
                return {"max": max, "sum": sum, "any": any}[kind](cast(list[Number], column))
            case _:
                raise ValueError(
                    f"explain cannot follow {type(value).__name__} into a loop's range"
                )


def count_tiles(kernel: Kernel, situation: Situation, block_q: int, block_kv: int) -> TileCount:
    """Count what the loops of one kernel visit; block_q, block_kv: rows and keys of a tile."""
    ranges = LoopRanges(kernel, situation, block_q, block_kv)
    batches = situation.batch if ranges.depends_on("b") else min(1, situation.batch)
    heads = situation.heads if ranges.depends_on("h") else 1
    times = (situation.batch * situation.heads) // (batches * heads) if batches else 0
    down, across = -(-situation.q_len // block_q), -(-situation.kv_len // block_kv)
    visits: list[Visit] = []
    counted = {True: [0, 0], False: [0, 0]}  # masked -> tiles, pairs
    for places, tiles in _groups(batches * heads, down):
        b, h = divmod(_one_of(places), heads)
        visit = Visit(b, h, tiles[len(tiles) // 2], ranges.at(b, h, tiles[len(tiles) // 2]))
        visits.append(visit)
        rows = min(tiles.stop * block_q, situation.q_len) - tiles.start * block_q
        for one in visit.ranges:
            columns = _columns(one, block_kv, situation.kv_len)
            counted[one.masked][0] += len(places) * len(tiles) * one.tiles
            counted[one.masked][1] += len(places) * rows * columns
    copies = situation.batch * situation.heads
    return TileCount(
        total=down * across * copies,
        visited=(counted[True][0] + counted[False][0]) * times,
        masked=counted[True][0] * times,
        unmasked=counted[False][0] * times,
        total_pairs=situation.q_len * situation.kv_len * copies,
        visited_pairs=(counted[True][1] + counted[False][1]) * times,
        unmasked_pairs=counted[False][1] * times,
        visits=tuple(visits),
        differing=batches * heads * down,
    )


def _groups(places: int, tiles: int) -> Iterator[tuple[range, range]]:
    """Heads of batch entries, and tiles of queries, that one visit stands for: few or itself."""
    if places * tiles <= MOST_VISITS:
        return product(_parts(range(places), places), _parts(range(tiles), tiles))
    some = _parts(range(places), MOST_HEADS)
    most = MOST_VISITS // len(some)
    if tiles <= most:
        return product(some, _parts(range(tiles), tiles))
    # the first and the last stand for themselves alone: there a mask is like nowhere else
    inner = _parts(range(1, tiles - 1), most - 2)
    return product(some, (range(1), *inner, range(tiles - 1, tiles)))


def _parts(whole: range, most: int) -> list[range]:
    """Cut a range into parts of one length, at most so many."""
    step = max(1, -(-len(whole) // max(1, most)))
    return [whole[start : start + step] for start in range(0, len(whole), step)]


def _one_of(places: range) -> int:
    """One place of a part, at an offset that keeps step with no number of heads."""
    return places[int(len(places) * (places.start * GOLDEN_SECTION % 1))]


def _columns(one: Range, block_kv: int, kv_len: int) -> int:
    return max(0, min(one.stop * block_kv, kv_len) - one.start * block_kv) if one.tiles else 0


@dataclass(frozen=True, slots=True)
class Needed:
    """What brute force finds over all heads: tiles with a visible pair, and visible pairs."""

    tiles: int
    pairs: int


def needed_tiles(
    spec: AttentionSpec, situation: Situation, block_q: int, block_kv: int
) -> Needed | None:
    """Evaluate the whole mask; None where that would take too long."""
    varies = names_in(spec.mask) | {str(symbol) for symbol in spec.mask.free_symbols}
    by_batch = situation.batch if "b" in varies else min(1, situation.batch)
    by_head = situation.heads if varies & {"h", "h_kv"} else 1
    if by_batch * by_head * situation.q_len * situation.kv_len > BRUTE_FORCE_PAIRS:
        return None
    times = (situation.batch * situation.heads) // (by_batch * by_head) if by_batch else 0
    visible = mask_rows(spec, situation)
    tiles = pairs = 0
    for b in range(by_batch):
        for h in range(by_head):
            rows = [visible(b, h, i) for i in range(situation.q_len)]
            pairs += sum(map(sum, rows))
            tiles += _tiles_with_a_pair(rows, block_q, block_kv)
    return Needed(tiles * times, pairs * times)


def _tiles_with_a_pair(rows: list[list[bool]], block_q: int, block_kv: int) -> int:
    found = set()
    for i, row in enumerate(rows):
        starts = range(0, len(row), block_kv)
        found |= {(i // block_q, j) for j in starts if any(row[j : j + block_kv])}
    return len(found)
