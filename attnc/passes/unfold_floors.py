"""Compare a key with the ends of its row's block, where the mask compares block numbers.

Why: the ends are row values, computed once; the block number of a key costs a division for every
key of every tile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import sympy
from sympy import Eq, Expr
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Kernel, Level, Loop
from attnc.ir.rebuild import axes_by_name
from attnc.symbols import FloorDiv, arguments, names_in


@dataclass(frozen=True, slots=True)
class UnfoldFloors:
    """kv // 64 == q // 64   ->   64 (q // 64) <= kv & kv < 64 (q // 64) + 64.

    The second bound goes where the mask already says kv <= q, the first where it says kv >= q.
    """

    name: ClassVar[str] = "unfold-floors"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.STREAMED

    def run(self, kernel: Kernel) -> Kernel:
        """Rewrite what the reductions of every loop are over."""
        axes = axes_by_name(kernel.body)
        body = []
        for stmt in kernel.body:
            if isinstance(stmt, Loop):
                moving = {name for name, along in axes.items() if stmt.axis in along}
                moving |= {kernel.axis(stmt.axis).index.name}
                stmt = _unfold_loop(stmt, moving)
            body.append(stmt)
        return replace(kernel, body=tuple(body))


def _unfold_loop(loop: Loop, moving: set[str]) -> Loop:
    reductions = tuple(
        replace(reduction, where=_unfold(reduction.where, moving)) for reduction in loop.reductions
    )
    return replace(loop, reductions=reductions)


def _unfold(where: Boolean, moving: set[str]) -> Boolean:
    parts = list(And.make_args(where))
    found = [(part, sides) for part in parts if (sides := _block_equality(part, moving))]
    for part, (blocks, row) in found:
        key, size = blocks.args
        others = [other for other in parts if other is not part]
        parts = others + _within_block(key, row, size, others)
    return And(*parts) if found else where


def _block_equality(part: Boolean, moving: set[str]) -> tuple[FloorDiv, Expr] | None:
    """The sides of floor(key / c) == row, c a positive number."""
    if not isinstance(part, Eq):
        return None
    left, right = arguments(part)
    for side, other in ((left, right), (right, left)):
        if not (isinstance(side, FloorDiv) and side.args[1].is_Integer and side.args[1] > 0):
            continue
        if names_in(side) & moving and not names_in(other) & moving:
            return side, other
    return None


def _within_block(key: Expr, row: Expr, size: Expr, others: list[Boolean]) -> list[Boolean]:
    """Bounds of the key, less the one that the other conditions imply."""
    position = row.args[0] if isinstance(row, FloorDiv) and row.args[1] == size else None
    first = sympy.Mul(size, row, evaluate=False)
    bounds = []
    if position is None or not _says(others, position, key):
        bounds.append(first <= key)
    if position is None or not _says(others, key, position):
        bounds.append(key < first + size)
    return bounds


def _says(others: list[Boolean], low: Expr, high: Expr) -> bool:
    """Whether low <= high stands among the conditions, as it is."""
    return any(other in (sympy.Le(low, high), sympy.Ge(high, low)) for other in others)
