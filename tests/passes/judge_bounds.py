"""Judge the bounds of a loop against the dense mask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sympy import Symbol
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Kernel, Let, Load, Loop
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
        names = scalars_of(kernel, case, q_block)
        rows = dense[q_block * case.block_q : (q_block + 1) * case.block_q]
        _judge_rows(kernel, rows, names, case, score)
    return score


def _judge_rows(
    kernel: Kernel, rows: np.ndarray, names: dict[str, Any], case: Case, score: Score
) -> None:
    visits: Counter[int] = Counter()
    block, tiles = case.block_kv, -(-case.kv_len // case.block_kv)
    any_seen, all_seen = rows.any(axis=0), rows.all(axis=0)
    for loop in loops_of(kernel):
        for piece in loop.pieces:
            start, stop = (int(value_of(end, names)) for end in (piece.start, piece.stop))
            here = range(start, stop)
            visits.update(here)
            if not piece.masked:
                score.unmasked += len(here)
                for tile in here:
                    keys = all_seen[tile * block : (tile + 1) * block]
                    if tile < 0 or len(keys) < block or not keys.all():
                        score.wrong.append(f"tile {tile} is not wholly visible: {case} {names}")
            else:
                _judge_reads(loop, here, any_seen, names, block, score)
    held = {t for t in range(tiles) if any_seen[t * block : (t + 1) * block].any()}
    whole = [all_seen[t * block : (t + 1) * block] for t in range(tiles)]
    score.whole += sum(len(keys) == block and bool(keys.all()) for keys in whole)
    score.needed += len(held)
    score.visited += sum(visits.values())
    if max(visits.values(), default=0) > 1 or not held <= set(visits):
        score.wrong.append(f"visited {dict(visits)}, needed {held}: {case} {names}")
    if visits and not 0 <= min(visits) <= max(visits) < tiles:
        score.wrong.append(f"visited {dict(visits)} of {tiles} tiles: {case} {names}")


def _judge_reads(
    loop: Loop, tiles: range, seen: np.ndarray, names: dict[str, Any], block: int, score: Score
) -> None:
    guards = {let.name: let.value.guard for let in loop.body if isinstance(let.value, Load)}
    tests_columns = any(let.name == "seen" for let in loop.body if isinstance(let, Let))
    for tile in tiles:
        keys = np.arange(tile * block, (tile + 1) * block)
        real = np.zeros(block, dtype=bool)
        real[: len(seen[keys[0] : keys[-1] + 1])] = seen[keys[0] : keys[-1] + 1]
        for name in ("k_tile", "v_tile"):
            guard = _without_test(guards[name])
            read = np.broadcast_to(value_of(guard, names | {"kv_idx": keys}), keys.shape)
            if (real & ~read).any() or (read & (keys >= len(seen))).any():
                score.wrong.append(f"{name} of tile {tile} is read at {keys[read]}: {names}")
            if name == "v_tile":
                score.dead_columns += 0 if tests_columns else int((read & ~real).sum())


def _without_test(guard: Boolean) -> Boolean:
    """A guard less the column test, which is exact by its own definition."""
    parts = guard.args if isinstance(guard, And) else (guard,)
    return And(*(part for part in parts if part != Symbol("seen")))
