"""Judge the bounds of a loop against the dense mask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from sympy import Symbol
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Kernel, Load, Loop
from tests.passes.masks import Case, loops_of, pairs, scalars_of, value_of


@dataclass
class Score:
    """Counts over all tiles of rows of a case: what was visited, and what had to be."""

    visited: int = 0
    needed: int = 0
    unmasked: int = 0
    whole: int = 0
    dead_columns: int = 0  # columns that a masked tile may read although no row sees them
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Score) -> None:
        """Add the counts of another case."""
        for name in ("visited", "needed", "unmasked", "whole", "dead_columns"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wrong += other.wrong

    @property
    def is_exact(self) -> bool:
        """Whether nothing was visited, masked or read in vain."""
        return self.visited == self.needed and self.unmasked == self.whole


def judge(kernel: Kernel, mask: Boolean, case: Case) -> Score:
    """Run the kernel's bounds for every tile of rows and compare with the dense mask."""
    score, dense = Score(), pairs(mask, case)
    for q_block in range(-(-case.q_len // case.block_q)):
        names = scalars_of(kernel, case, {"q_block": q_block})
        rows = dense[q_block * case.block_q : (q_block + 1) * case.block_q]
        _judge_rows(kernel, rows, names, case.block_kv, score)
    return score


def judge_exchanged(kernel: Kernel, mask: Boolean, case: Case) -> Score:
    """The same for a kernel that holds a tile of keys and loops over queries."""
    score, dense = Score(), pairs(mask, case).T
    for kv_block in range(-(-case.kv_len // case.block_kv)):
        names = scalars_of(kernel, case, {"kv_block": kv_block})
        rows = dense[kv_block * case.block_kv : (kv_block + 1) * case.block_kv]
        _judge_rows(kernel, rows, names, case.block_q, score)
    return score


def _judge_rows(
    kernel: Kernel, rows: np.ndarray, names: dict[str, Any], block: int, score: Score
) -> None:
    visits: Counter[int] = Counter()
    tiles = -(-rows.shape[1] // block)
    any_seen, all_seen = rows.any(axis=0), rows.all(axis=0)
    for loop in loops_of(kernel):
        index = kernel.axis(loop.axis).index.name
        for piece in loop.pieces:
            start, stop = (int(value_of(end, names)) for end in (piece.start, piece.stop))
            here = range(start, stop)
            visits.update(here)
            if piece.masked:
                _judge_reads(loop, here, any_seen, names, index, score)
                continue
            score.unmasked += len(here)
            for tile in here:
                keys = all_seen[tile * block : (tile + 1) * block]
                if tile < 0 or len(keys) < block or not keys.all():
                    score.wrong.append(f"tile {tile} is not wholly visible: {names}")
    held = {t for t in range(tiles) if any_seen[t * block : (t + 1) * block].any()}
    whole = [all_seen[t * block : (t + 1) * block] for t in range(tiles)]
    score.whole += sum(len(keys) == block and bool(keys.all()) for keys in whole)
    score.needed += len(held)
    score.visited += sum(visits.values())
    if max(visits.values(), default=0) > 1 or not held <= set(visits):
        score.wrong.append(f"visited {dict(visits)}, needed {held}: {names}")
    if visits and not 0 <= min(visits) <= max(visits) < tiles:
        score.wrong.append(f"visited {dict(visits)} of {tiles} tiles: {names}")


def _judge_reads(
    loop: Loop, tiles: range, seen: np.ndarray, names: dict[str, Any], index: str, score: Score
) -> None:
    loads = [let for let in loop.body if isinstance(let.value, Load)]
    tests_columns = any(let.name == "seen" for let in loop.body)
    block = names["BLOCK_KV" if index == "kv_idx" else "BLOCK_Q"]
    for tile, let in product(tiles, loads):
        assert isinstance(let.value, Load)
        keys = np.arange(tile * block, (tile + 1) * block)
        real = np.zeros(block, dtype=bool)
        real[: len(seen[keys[0] : keys[-1] + 1])] = seen[keys[0] : keys[-1] + 1]
        guard = value_of(_without_test(let.value.guard), names | {index: keys})
        read = np.broadcast_to(guard, keys.shape)
        if (real & ~read).any() or (read & (keys >= len(seen))).any():
            score.wrong.append(f"{let.name} of tile {tile} is read at {keys[read]}: {names}")
        if not tests_columns:
            score.dead_columns += int((read & ~real).sum())


def _without_test(guard: Boolean) -> Boolean:
    """A guard less the column test, which is exact by its own definition."""
    parts = guard.args if isinstance(guard, And) else (guard,)
    return And(*(part for part in parts if part != Symbol("seen")))
