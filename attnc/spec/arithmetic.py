"""The operations of the formula language on sympy, each kept within what a kernel can compute.

Constants fold exactly.  A fold that has no finite real value, or that sympy would take for ever
over (2**(10**9)), raises `BadArithmetic` with the mistake's class; the caller knows the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import sympy
from sympy import Basic, Expr, Integer, Rational
from sympy.logic.boolalg import And, Boolean, Or

from attnc import symbols
from attnc.errors import SpecError
from attnc.spec import formula_mistakes as mistakes

MAX_INTEGER = 2**53  # literals and mask constants: exact in int64 and in float64
MAX_COEFFICIENT = 2**30  # of a whole number that stands for a fraction
MAX_FLOAT = 34 * 10**37  # just below the largest float32; exact, as what is compared with it
MIN_FLOAT = 1e-38  # just below the smallest normal float32
MAX_EXPONENT = 64
MAX_BITS = 128  # of an exact fraction's two numbers
INFINITE = (sympy.zoo, sympy.nan, sympy.oo, -sympy.oo)


class BadArithmetic(Exception):
    """Carry the mistake's class and facts up to where its place is known."""

    def __init__(self, kind: type[SpecError], **facts: object) -> None:
        super().__init__(kind, facts)
        self.kind = kind
        self.facts = facts


def checked(value: Any) -> Expr:
    """Return a number or formula after checking that a constant is real, finite and a float32."""
    if isinstance(value, Rational):
        if value and abs(value) < MIN_FLOAT:
            raise BadArithmetic(mistakes.NumberTooSmall)
        if max(abs(value.p).bit_length(), value.q.bit_length()) > MAX_BITS:
            raise BadArithmetic(mistakes.NumberTooLarge, limit="shorten its fractions to decimals")
        if abs(value) > MAX_FLOAT:
            raise BadArithmetic(mistakes.NumberTooLarge, limit="at most 3.4e38 in size")
        return value
    if value in INFINITE:
        raise BadArithmetic(mistakes.NotFinite)
    if not value.is_number:
        return value
    number = value.evalf(15)
    if not (number.is_real and number.is_finite):
        raise BadArithmetic(mistakes.NotFinite)
    if abs(number) > MAX_FLOAT:
        raise BadArithmetic(mistakes.NumberTooLarge, limit="at most 3.4e38 in size")
    if number and abs(number) < MIN_FLOAT:
        raise BadArithmetic(mistakes.NumberTooSmall)
    return value


def divide(a: Expr, b: Expr) -> Expr:
    """Give a / b."""
    _refuse_zero(b)
    return checked(a / b)


def floor_divide(a: Expr, b: Expr) -> Expr:
    """Give floor(a / b)."""
    _refuse_zero(b)
    quotient, whole = a / b, _whole_multiple(a / b)
    if whole is None or (a.is_integer and b.is_integer):
        return checked(symbols.FloorDiv(a, b))
    return checked(symbols.FloorDiv(quotient * whole, Integer(whole)))


def modulo(a: Expr, b: Expr) -> Expr:
    """Give a - b * floor(a / b)."""
    _refuse_zero(b)
    quotient, whole = a / b, _whole_multiple(a / b)
    if whole is None or (a.is_integer and b.is_integer):
        return checked(symbols.FloorMod(a, b))
    return checked(symbols.FloorMod(quotient * whole, Integer(whole)) * b / whole)


def _compare(relation: Callable[[Expr, Expr], Any]) -> Callable[[Expr, Expr], Any]:
    """Compare fractions of whole numbers as whole numbers.

    Why: float32 rounds kv_idx / 49, and 49 / 49 comes out below 1.
    """

    def compared(a: Expr, b: Expr) -> Any:
        multiples = [_whole_multiple(side) for side in (a, b)]
        if None in multiples or (a.is_integer and b.is_integer):
            return relation(a, b)
        factor = math.lcm(*(multiple for multiple in multiples if multiple))
        scaled = [side * factor for side in (a, b)]
        return relation(*scaled) if all(_is_small(side) for side in scaled) else relation(a, b)

    return compared


def _whole_multiple(x: Expr) -> int | None:
    """The least n for which n x is a whole number for sure, and small; None where there is none."""
    coefficients = [cast(Rational, c) for c in x.as_coefficients_dict().values()]
    if not all(coefficient.is_Rational for coefficient in coefficients) or x.has(symbols.Read):
        return None  # a multiple of a 64-bit element of a tensor might wrap
    multiple = math.lcm(*(int(coefficient.q) for coefficient in coefficients))
    whole = x * multiple
    return multiple if whole.is_integer and _is_small(whole) else None


def _is_small(x: Expr) -> bool:
    """Whether positions times the coefficients stay well within 64 bits."""
    for term, coefficient in x.as_coefficients_dict().items():
        limit = 2 if term.is_Mul or term.is_Pow else MAX_COEFFICIENT
        if abs(coefficient) > (MAX_INTEGER if term.is_number else limit):
            return False
    return True


def _refuse_zero(b: Expr) -> None:
    if b.is_zero:
        raise BadArithmetic(mistakes.DivisionByZero)


def power(a: Expr, b: Expr) -> Expr:
    """Give a ** b, where b is a small constant or a is a positive constant."""
    if b.is_Rational and (abs(b) <= MAX_EXPONENT or a in (0, 1, -1)):
        if a.is_zero and b < 0:
            raise BadArithmetic(mistakes.DivisionByZero)
        return checked(symbols.power(a, b))
    if not (a.is_Rational and a > 0):
        raise BadArithmetic(mistakes.BadPower, limit=MAX_EXPONENT)
    if b.is_number and abs(complex(b.evalf(15)).real) * abs(math.log2(a)) > 128:
        raise BadArithmetic(mistakes.NumberTooLarge, limit="at most 3.4e38 in size")
    return checked(symbols.power(a, b))


def logarithm(x: Expr, base: int | None = None) -> Expr:
    """Give the logarithm of x, natural without a base."""
    if x.is_number and not x.is_positive:
        raise BadArithmetic(mistakes.NotFinite)
    return checked(sympy.log(x) if base is None else sympy.log(x) / sympy.log(base))


def absolute(x: Expr) -> Expr:
    """Give |x|; sympy alone would leave an Abs around what is known not to be positive."""
    if x.is_nonnegative:
        return x
    if x.is_nonpositive:
        return -x
    multiple = _whole_multiple(x)
    return sympy.Abs(x) if multiple in (None, 1) else sympy.Abs(x * multiple) / multiple


def square_root(x: Expr) -> Expr:
    """Give the root of x, which must not be known to be negative."""
    if x.is_negative:
        raise BadArithmetic(mistakes.NotFinite)
    return checked(sympy.sqrt(x))


BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Add": lambda a, b: checked(a + b),
    "Sub": lambda a, b: checked(a - b),
    "Mult": lambda a, b: checked(a * b),
    "Div": divide,
    "FloorDiv": floor_divide,
    "Mod": modulo,
    "Pow": power,
}

COMPARE: dict[str, Callable[[Expr, Expr], Any]] = {
    "Lt": _compare(sympy.Lt),
    "LtE": _compare(sympy.Le),
    "Gt": _compare(sympy.Gt),
    "GtE": _compare(sympy.Ge),
    "Eq": _compare(sympy.Eq),
    "NotEq": _compare(sympy.Ne),
}

FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    "abs": lambda x: checked(absolute(x)),
    "exp": lambda x: _exponential(x, sympy.exp, 88),
    "exp2": lambda x: _exponential(x, symbols.exp2, 128),
    "log": logarithm,
    "log2": lambda x: logarithm(x, 2),
    "sqrt": square_root,
    "tanh": lambda x: checked(sympy.tanh(x)),
    "sigmoid": lambda x: checked(symbols.sigmoid(x)),
    "relu": lambda x: checked(sympy.Max(x, Integer(0))),
}

EXTREMES: dict[str, Callable[..., Expr]] = {"min": sympy.Min, "max": sympy.Max}


def _exponential(x: Expr, function: Callable[[Expr], Expr], limit: int) -> Expr:
    """Give exp or exp2 of x; a constant above the limit is refused before anything evaluates it."""
    if x.is_number and x > limit:
        raise BadArithmetic(mistakes.NumberTooLarge, limit="at most 3.4e38 in size")
    return checked(function(x))


def number(text: str) -> Expr:
    """The exact value of a literal: 0.1 is one tenth."""
    if text.isdigit():
        if int(text) > MAX_INTEGER:
            raise BadArithmetic(mistakes.NumberTooLarge, limit="whole numbers go up to 2**53")
        return Integer(int(text))
    near = float(text)
    if not math.isfinite(near) or near > MAX_FLOAT:
        raise BadArithmetic(mistakes.NumberTooLarge, limit="at most 3.4e38 in size")
    if near == 0 and any(c in "123456789" for c in text.lower().split("e")[0]):
        raise BadArithmetic(mistakes.NumberTooSmall)
    return checked(Rational(text))


def negation(condition: Boolean) -> Boolean:
    """Give the opposite condition, with the negation carried down to the comparisons."""
    if isinstance(condition, (And, Or)):
        join = Or if isinstance(condition, And) else And
        return join(*(negation(arg) for arg in condition.args))
    return sympy.Not(condition)


def differ(a: Boolean, b: Boolean) -> Boolean:
    """Give the condition that just one of two holds."""
    return Or(And(a, negation(b)), And(negation(a), b))


AGREE: dict[str, Callable[..., Boolean]] = {
    "Eq": lambda a, b: differ(a, negation(b)),
    "NotEq": differ,
}


def at_head_dim(formula: Basic, size: int) -> Basic:
    """The formula with `d` a number, each part checked unless a `where` passes it over."""
    if formula == symbols.d:
        return Integer(size)
    if not formula.args:
        return formula
    if isinstance(formula, symbols.Where):
        condition, then, otherwise = formula.args
        condition = at_head_dim(condition, size)
        if condition in (sympy.true, sympy.false):
            return at_head_dim(then if condition else otherwise, size)
    args: list[Any] = [at_head_dim(arg, size) for arg in formula.args]
    if isinstance(formula, sympy.Pow) and all(arg.is_number for arg in args):
        args[0] = args[0].evalf(20)  # an exact power might be endless
    if isinstance(formula, symbols.FloorDiv | symbols.FloorMod):
        _refuse_zero(args[1])
    value = formula.func(*args)
    return checked(value) if isinstance(value, Expr) else value


def settled(formula: Basic) -> Basic:
    """Rebuild a formula until sympy changes nothing more, so that its text reads back to the same.

    sympy leaves -(a + b) and nested conditions as they were put together, but not when built anew.
    """
    for _ in range(4):
        again = _rebuilt(formula, {})
        if again == formula:
            break
        formula = again
    return formula


def _rebuilt(formula: Basic, done: dict[Basic, Basic]) -> Basic:
    if not formula.args:
        return formula
    if formula not in done:
        done[formula] = formula.func(*(_rebuilt(arg, done) for arg in formula.args))
    return done[formula]
