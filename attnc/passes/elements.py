"""What a reduction's element is made of: a unit, an exponential of the score, weighed values."""

from __future__ import annotations

from collections.abc import Mapping

import sympy
from sympy import Expr, S, Symbol, exp, true

from attnc.algebra import factors_along
from attnc.ir.functions import Anchor, Exp2
from attnc.ir.nodes import Load, Loop, Reduce
from attnc.ir.rebuild import reads_of


def unit_of(element: Expr, over: str, varies: Mapping[str, frozenset[str]]) -> tuple[Expr, Expr]:
    """Split c x into (c, x) where the maximum of c x is c times that of x."""
    unit, rest = factors_along(element, over, varies)
    return (unit, rest) if unit.is_positive else (S.One, element)


def vanishes(element: Expr, score: Symbol) -> bool:
    """Whether an element goes to 0 as the score goes to -inf.

    It does where it holds exp of the score, and the score nowhere else but where -inf counts as 0.
    """
    exponentials = [
        f
        for f in sympy.Mul.make_args(element)
        if isinstance(f, Exp2 | exp) and score in f.free_symbols
    ]
    logarithms = [f for f in sympy.Mul.make_args(element) if isinstance(f, Anchor)]
    rest = element / sympy.Mul(*exponentials, *logarithms)
    if len(exponentials) != 1 or score in rest.free_symbols:
        return False
    slope = sympy.diff(exponentials[0].args[0], score)
    return bool(slope.is_positive)


def dot_operands(
    element: Expr, features: frozenset[str], varies: dict[str, frozenset[str]]
) -> tuple[Expr, str | None]:
    """Split p[q, k] * v[k, e] into its operands; a plain row sum has no second one."""
    values = [f for f in sympy.Mul.make_args(element) if varies.get(str(f), frozenset()) & features]
    if not values:
        return element, None
    (value,) = values
    return element / value, str(value)


def is_weighed_by(
    name: str, reduction: Reduce, features: frozenset[str], varies: dict[str, frozenset[str]]
) -> bool:
    """Whether a sum of visible pairs, against no running maximum, is of `name` times its values."""
    if reduction.follows is not None or reduction.where == true:
        return False
    return str(dot_operands(reduction.element, features, varies)[0]) == name


def only_for_sums(
    loop: Loop, features: frozenset[str], varies: Mapping[str, frozenset[str]]
) -> set[str]:
    """Loads of a loop that only a weighted sum reads, as its right operand."""
    loads = {let.name for let in loop.body if isinstance(let.value, Load)}
    loads -= {name for let in loop.body for name in reads_of(let)}
    sums = [reduction for reduction in loop.reductions if reduction.kind == "sum"]
    return loads & {
        str(factor)
        for reduction in sums
        for factor in sympy.Mul.make_args(reduction.element)
        if varies.get(str(factor), frozenset()) & features
    }
