"""What is known of a score before it is exponentiated: its size, and the factor that leaves it."""

from __future__ import annotations

import sympy
from sympy import Expr, S, exp, log

from attnc import symbols
from attnc.algebra import factors_along
from attnc.ir.nodes import Formula, Kernel, Let, Load, Loop
from attnc.ir.rebuild import axes_by_name, lets_in
from attnc.symbols import names_in

LOG2_E = 1 / log(2)
LARGE = 2**100


def may_be_huge(formula: Expr, loop: Loop, kernel: Kernel) -> bool:
    """Whether a score may come near the largest float32.

    That is where it holds a value from memory other than q . k, a huge number, or an exponential.
    """
    if any(abs(number) > LARGE for number in formula.atoms(sympy.Number)):
        return True
    if formula.has(exp) or any(power.exp.free_symbols for power in formula.atoms(sympy.Pow)):
        return True
    lets = _lets(loop, kernel)
    return any(isinstance(lets[name].value, Load) for name in _made_of(formula, lets) & set(lets))


def holds_real_param(moving: Expr, loop: Loop, kernel: Kernel) -> bool:
    """Whether a float param is more than a factor of the score: it may stand in for -inf.

    As a factor (a temperature) it is as harmless as the scale.
    """
    real = {scalar.name for scalar in kernel.scalars if scalar.kind == "f32"}
    return not real.isdisjoint(_made_of(moving, _lets(loop, kernel)) - {str(symbols.scale)})


def _lets(loop: Loop, kernel: Kernel) -> dict[str, Let]:
    return {let.name: let for let in (*lets_in(loop), *kernel.body) if isinstance(let, Let)}


def _made_of(formula: Expr, lets: dict[str, Let]) -> set[str]:
    """The names in a formula, and in the formulas that these stand for."""
    found: set[str] = set()
    todo = list(names_in(formula))
    while todo:
        name = todo.pop()
        let = lets.get(name)
        if name not in found and let is not None and isinstance(let.value, Formula):
            todo += names_in(let.value.expr)
        found.add(name)
    return found


def constant_factor(formula: Expr, kernel: Kernel) -> tuple[Expr, Expr]:
    """Split c * x into (c, x), c free of the tile's axes."""
    varies = {name: frozenset(axes) for name, axes in axes_by_name(kernel.body).items()}
    varies |= {"q_idx": frozenset("q"), "q_pos": frozenset("q"), "kv_idx": frozenset("k")}
    constant, rest = formula, S.One
    for axis in ("q", "k"):
        constant, moving = factors_along(constant, axis, varies)
        rest *= moving
    return constant, rest
