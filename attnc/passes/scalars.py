"""Scalars of run time, left as written: comparing them would cost sympy much time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from sympy import And, Expr, Ge, Integer, Max, Min
from sympy.logic.boolalg import Boolean

from attnc.passes.affine import Affine
from attnc.symbols import Where


def largest(values: Iterable[Expr]) -> Expr:
    """The max of scalars, left as written."""
    kept = list(dict.fromkeys(values))
    return kept[0] if len(kept) == 1 else Max(*kept, evaluate=False)


def smallest(values: Iterable[Expr]) -> Expr:
    """The min of scalars, left as written."""
    kept = list(dict.fromkeys(values))
    return kept[0] if len(kept) == 1 else Min(*kept, evaluate=False)


def where_all(conditions: list[Boolean], value: Expr) -> Expr:
    """The value where all conditions hold, 0 elsewhere."""
    if not conditions:
        return value
    return Where(all_of(conditions), value, Integer(0))


def all_of(conditions: Iterable[Boolean]) -> Boolean:
    """The conjunction of conditions, left as written."""
    kept = list(dict.fromkeys(conditions))
    if len(kept) == 1:
        return kept[0]
    return cast(Any, And)(*kept, evaluate=False)  # an option that sympy does not declare


def at_most(one: Affine, other: Affine) -> Boolean:
    """one <= other, as a condition for run time."""
    difference = other - one
    positive = Affine({a: f for a, f in difference.terms.items() if f > 0})
    negative = Affine({a: -f for a, f in difference.terms.items() if f < 0}, -difference.constant)
    return Ge(positive.expr(), negative.expr(), evaluate=False)
