"""Write a scalar that is a multiple of a number so that Triton cannot see it.

Why: loads guarded by a visible multiple of the tile are laid out so that a loop on sm_80 spills
(chunks of 8192, d 128: 255 registers and 45 spills against 213 and none).  Row values stay
multiples: there it saves comparisons (the same loop: 673 against 703 instructions).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from sympy import Basic, Expr

from attnc.ir.functions import rebuilt
from attnc.ir.nodes import Formula, Kernel, Let, Level, Stmt
from attnc.ranges import floored_part
from attnc.symbols import FloorMod


@dataclass(frozen=True, slots=True)
class HideMultiples:
    """kv_lo := max(0, 8192 * (x // 8192))   ->   kv_lo := max(0, x - x % 8192)."""

    name: ClassVar[str] = "hide-multiples"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Rewrite the scalars before the loops."""
        return replace(kernel, body=tuple(map(_in_scalar, kernel.body)))


def _in_scalar(stmt: Stmt) -> Stmt:
    match stmt:
        case Let(_, Formula(expr), axes=()):
            return replace(stmt, value=Formula(_hidden(expr)))
        case _:
            return stmt


def _hidden(formula: Basic) -> Any:
    multiple = floored_part(cast(Expr, formula))
    if multiple is not None and multiple.args[0].is_integer and multiple.args[1].is_Integer:
        x, step = _hidden(multiple.args[0]), multiple.args[1]
        return x - FloorMod(x, step)
    args = [_hidden(arg) for arg in formula.args]
    return formula if args == list(formula.args) else rebuilt(formula, args)
