"""Count the rounds of a loop and its tiles by one loop, where a round begins with scalars alone.

Why: Triton keeps loads of the next tiles in flight, but not past the end of an inner loop, and
what the outer loop needs again lies in registers meanwhile.  Grouped heads, d 128, sm_90, 64 x 128
on 8 warps: 34 spill instructions in two loops, none in one, for two divisions of scalars a tile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from attnc.ir.nodes import Formula, Kernel, Let, Level, Loop, Stmt
from attnc.symbols import MAX_LENGTH, names_in

SHORTEST_TILE = 16
MOST = 2**31 * SHORTEST_TILE // MAX_LENGTH - 1  # rounds whose tiles 32 bits can count


@dataclass(frozen=True, slots=True)
class JoinRounds:
    """rounds member < 4   ->   rounds member < 4, joined."""

    name: ClassVar[str] = "join-rounds"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Mark the loops that can be joined."""
        return replace(kernel, body=tuple(map(_joined, kernel.body)))


def _joined(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Loop) or stmt.rounds is None:
        return stmt
    rounds = stmt.rounds
    own = {rounds.index.name, *(let.name for let in rounds.lets)}
    ends = names_in(*(end for piece in stmt.pieces for end in (piece.start, piece.stop)))
    few = rounds.count.is_Integer and rounds.count <= MOST
    if not few or ends & own or not all(map(_is_number, rounds.lets)):
        return stmt
    return replace(stmt, rounds=replace(rounds, joined=True))


def _is_number(let: Let) -> bool:
    """Whether it costs a tile nothing to make it again: neither a load nor a tile of values."""
    return isinstance(let.value, Formula) and not let.axes
