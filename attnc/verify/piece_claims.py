"""One loop over the concatenation of several pieces visits each piece's tiles once.

The generated text counts steps 0 .. n through all pieces; these claims show that the map from step
to tile is right for that many pieces, whatever their bounds.
"""

from __future__ import annotations

from typing import Any

from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning

Term = Any


def piece_claims(tiling: Tiling) -> list[Claim]:
    """A claim for each number of pieces that a loop of the kernel has."""
    counts = sorted({len(loop.pieces) for loop in tiling.loops})
    name = "a counter through {} piece{} visits each tile once"
    return [
        Claim(name.format(n, "s" * (n > 1)), lambda m, n=n: _one_to_one(n, m), False)
        for n in counts
    ]


def _one_to_one(count: int, m: Meaning) -> Term:
    """The map lands in the pieces, hits each of their tiles, and no tile twice."""
    starts = [m.pick(f"start {n}") for n in range(count)]
    stops = [m.pick(f"stop {n}") for n in range(count)]
    ends: list[Term] = []  # steps that the pieces up to this one take
    before: Term = 0
    for start, stop in zip(starts, stops, strict=True):
        before = before + m.choose(stop > start, stop - start, 0)
        ends.append(before)
    step, other = (m.pick_between(name, 0, before) for name in ("step", "another step"))
    tile = m.pick("tile")
    lands = m.either(*_holding(m, starts, stops, _tile(m, starts, ends, step)))
    holding = _holding(m, starts, stops, tile)
    hits = (
        m.implies(held, _tile(m, starts, ends, tile - start + end - (stop - start)) == tile)
        for held, start, stop, end in zip(holding, starts, stops, ends, strict=True)
    )
    disjoint = m.both(
        *(
            m.negate(m.both(one, two))
            for n, one in enumerate(_holding(m, starts, stops, _tile(m, starts, ends, step)))
            for two in _holding(m, starts, stops, _tile(m, starts, ends, step))[:n]
        )
    )
    same_tile = _tile(m, starts, ends, step) == _tile(m, starts, ends, other)
    once = m.implies(m.both(disjoint, same_tile), step == other)
    return m.both(lands, *hits, once)


def _tile(m: Meaning, starts: list[Term], ends: list[Term], step: Term) -> Term:
    """The tile of a step: the first piece whose end lies beyond it."""
    offsets = [start - end for start, end in zip(starts, [0, *ends], strict=False)]
    tile = step + offsets[-1]
    for offset, end in reversed(list(zip(offsets[:-1], ends, strict=False))):
        tile = m.choose(step < end, step + offset, tile)
    return tile


def _holding(m: Meaning, starts: list[Term], stops: list[Term], tile: Term) -> list[Term]:
    return [m.between(start, tile, stop) for start, stop in zip(starts, stops, strict=True)]
