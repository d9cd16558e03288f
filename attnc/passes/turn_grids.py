"""Say where a schedule may launch a kernel's tiles from the last one to the first.

Why: under a causal mask the last queries see the most keys.  Programs start in the order of their
numbers, so the longest should come first: the short ones then fill what the long ones leave free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from attnc.ir.nodes import Kernel, Let, Level, Loop
from attnc.ir.rebuild import reads_of
from attnc.symbols import names_in


@dataclass(frozen=True, slots=True)
class TurnGrids:
    """Mark the tiles' digit where the ranges of loops follow from it.

    grid q_block < q_blocks   ->   the same, or counted down
    """

    name: ClassVar[str] = "turn-grids"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Mark the innermost digit where the loops' ranges follow from it."""
        digit, *others = kernel.grid
        if str(digit.index) not in _behind_ranges(kernel):
            return kernel
        return replace(kernel, grid=(replace(digit, turned=True), *others))


def _behind_ranges(kernel: Kernel) -> set[str]:
    """Every name that the ranges of the loops are made of."""
    loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    wanted = {n for loop in loops for p in loop.pieces for n in names_in(p.start, p.stop)}
    for stmt in reversed(kernel.body):
        if isinstance(stmt, Let) and stmt.name in wanted:
            wanted |= reads_of(stmt)
    return wanted
