"""One loop over the concatenation of several pieces visits each piece's tiles once.

The generated text counts steps 0 .. n through all pieces; these claims show that the map from step
to tile is right for that many pieces, whatever their bounds.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning

Term = Any


def piece_claims(tiling: Tiling) -> list[Claim]:
    """A claim for each number of pieces, and of rounds, that one loop of the kernel counts."""
    counts = sorted({len(loop.pieces) for loop in tiling.loops})
    name = "a counter through {} piece{} visits each tile once"
    claims = [
        Claim(name.format(n, "s" * (n > 1)), lambda m, n=n: _one_to_one(n, m), False)
        for n in counts
    ]
    rounds = [loop.rounds for loop in tiling.loops if loop.rounds is not None]
    joined = sorted({int(str(one.count)) for one in rounds if one.joined})
    name = "a counter through {} joined rounds visits each tile of each once"
    return [*claims, *(Claim(name.format(n), lambda m, n=n: _joined(n, m), False) for n in joined)]


def _joined(count: int, m: Meaning) -> Term:
    """Step + steps * round: all of them lie in the range, and no two are the same number.

    There are as many as the range has numbers.
    """
    steps = m.pick("steps")
    m.given(steps >= 1)
    one, other = (m.pick_between(name, 0, steps) for name in ("step", "another step"))
    inside = (m.between(0, one + steps * n, steps * count) for n in range(count))
    apart = (one + steps * n < other + steps * k for n, k in combinations(range(count), 2))
    return m.both(*inside, *apart)


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
