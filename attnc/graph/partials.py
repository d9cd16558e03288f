"""The partial derivative of an elementwise formula.

sympy differentiates; what it cannot say in our words is rewritten first.  Maxima and absolute
values become selects whose derivative is that of the branch taken, one half of each on a tie, as
PyTorch has it.  What only rounds (// and %) has the derivative of a constant.

The result is written in terms of the formula's own value where that saves a function: softcap's
1 - tanh(x)**2 is 1 - (y / 50)**2.
"""

from __future__ import annotations

from typing import cast

import sympy
from sympy import Abs, Basic, Dummy, Expr, Function, Integer, Max, Min, Rational, S, Symbol

from attnc.symbols import (
    FloorDiv,
    FloorMod,
    Where,
    arguments,
    nonzero,
    replaced,
    value_symbol,
)

HALF = Rational(1, 2)


def partial(formula: Expr, by: Symbol, value: Symbol) -> Expr:
    """d formula / d by; `value` stands for the formula's own value."""
    slope = _derivative(formula, by)
    factor, inner = formula.as_coeff_Mul()
    if isinstance(inner, Function) and not isinstance(inner, Where) and factor != 0:
        slope = replaced(slope, {inner: value / factor})
    return slope


def _derivative(formula: Basic, by: Symbol) -> Expr:
    """The chain rule over the formula's outermost operation."""
    if formula == by:
        return S.One
    if by not in formula.free_symbols:
        return S.Zero
    if isinstance(formula, Where):
        return _where(formula, by)
    terms = (
        slope * _derivative(arg, by)
        for arg, slope in zip(arguments(formula), _slopes(cast(Expr, formula)), strict=True)
        if by in arg.free_symbols
    )
    return sympy.Add(*terms)


def _where(formula: Where, by: Symbol) -> Expr:
    """A branch not taken adds nothing, whatever its derivative is there.

    A head's gate is the exception: where(g != 0, out g, 0) is out g, which the select only keeps
    from 0 * inf, and a closed gate has a gradient.
    """
    condition, yes, no = formula.args
    if condition == nonzero(value_symbol("head_gate")):
        return _derivative(yes, by)
    return Where(condition, _derivative(yes, by), _derivative(no, by))


def _slopes(formula: Expr) -> tuple[Expr, ...]:
    """The partial derivatives of an operation by each of its arguments."""
    args = arguments(formula)
    if isinstance(formula, FloorDiv):
        return (S.Zero, S.Zero)
    if isinstance(formula, FloorMod):
        return (S.One, -FloorDiv(*args))
    if isinstance(formula, Abs):
        return (_sign(args[0]),)
    if isinstance(formula, Max | Min):
        return _shares(formula)
    stand_ins = [Dummy(real=True) for _ in args]
    whole = formula.func(*stand_ins)
    back = dict(zip(stand_ins, args, strict=True))
    return tuple(replaced(cast(Expr, sympy.diff(whole, x)), back) for x in stand_ins)


def _sign(x: Expr) -> Expr:
    return Where(x > 0, S.One, Where(x < 0, Integer(-1), S.Zero))


def _shares(formula: Expr) -> tuple[Expr, ...]:
    """By each argument of a maximum or minimum, two at a time: 1 for the one, 1/2 on a tie."""
    first, *rest = arguments(formula)
    shares, so_far = [S.One], first
    for arg in rest:
        wins, loses = so_far > arg, arg > so_far
        if isinstance(formula, Min):
            wins, loses = so_far < arg, arg < so_far
        shares = [share * _share(wins, so_far, arg) for share in shares]
        shares.append(_share(loses, arg, so_far))
        so_far = formula.func(so_far, arg)
    return tuple(shares)


def _share(wins: Basic, one: Expr, other: Expr) -> Expr:
    return Where(wins, S.One, Where(sympy.Eq(one, other), HALF, S.Zero))
