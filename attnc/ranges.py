"""Interval analysis of integer formulas: between which numbers does an expression stay?

Sound, never exact by promise: each occurrence of a symbol ranges on its own.  Used where a bound
must hold whatever the run-time values are: in-bounds guards, index widths, tile ranges of masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from itertools import product
from math import ceil, floor, inf, isfinite, log
from typing import cast

from sympy import Abs, Add, Expr, LessThan, Max, Min, Mul, Pow, Rational, StrictLessThan, Symbol
from sympy import floor as sympy_floor

from attnc.symbols import FloorDiv, FloorMod, Where, arguments

# An end is (-1, 0) for -infinity, (0, x) for x, (1, 0) for +infinity: tuples compare as ends do.
End = tuple[int, Fraction]
Interval = tuple[End, End]

_ZERO: End = (0, Fraction(0))
_ONE: End = (0, Fraction(1))
_BELOW: End = (-1, Fraction(0))
_ABOVE: End = (1, Fraction(0))
_ANYTHING: Interval = (_BELOW, _ABOVE)
_LARGEST_EXPONENT = 64
_ROUNDING = Fraction(1, 2**40)  # generous: what float() of pi or sqrt(2) may be off by


def bounds(
    expr: Expr, ranges: Mapping[str, tuple[int | None, int | None]]
) -> tuple[int | None, int | None]:
    """Bound an expression, given inclusive ranges of the symbols in it by name.

    Units: both ends are inclusive; None is an end that is not known.  A symbol without a range is
    bounded by its sympy assumptions (positive, nonnegative ...) alone.
    Returns: (lo, hi) with lo <= expr <= hi for every choice of the symbols; a formula that is no
    integer is rounded outwards.
    """
    low, high = _interval(expr, ranges)
    down, up = (ceil, floor) if expr.is_integer else (floor, ceil)
    return (None if low[0] else down(low[1])), (None if high[0] else up(high[1]))


def _interval(expr: Expr, ranges: Mapping[str, tuple[int | None, int | None]]) -> Interval:
    if isinstance(expr, Symbol):
        return _symbol(expr, ranges)
    if isinstance(expr, Where):
        return _either(expr, ranges)
    if (quotient := floored_part(expr)) is not None:
        return _near(quotient, ranges)
    parts = [_interval(arg, ranges) for arg in arguments(expr)]
    if isinstance(expr, FloorMod):
        return _floor_modulo(parts, whole=bool(expr.is_integer))
    if isinstance(expr, FloorDiv) and not all(arg.is_integer for arg in expr.args):
        return _ANYTHING if _contains_zero(parts[1]) else _floor_divide(parts)
    found = _RULES[expr.func.__name__](parts) if expr.func.__name__ in _RULES else _ANYTHING
    if found != _ANYTHING:
        return found
    return _number(expr) if expr.is_number else _assumed(expr)


def _either(expr: Where, ranges: Mapping[str, tuple[int | None, int | None]]) -> Interval:
    """Where(x < c, x, y): the first branch lies below c."""
    condition, then, otherwise = expr.args
    first, second = _interval(then, ranges), _interval(otherwise, ranges)
    if isinstance(condition, StrictLessThan | LessThan) and condition.lhs == then:
        first = first[0], min(first[1], _interval(cast(Expr, condition.rhs), ranges)[1])
    return _union(first, second)


def floored_part(expr: Expr) -> FloorDiv | None:
    """The quotient in c * floor(x / c)."""
    if not isinstance(expr, Mul) or len(expr.args) != 2:
        return None
    found = (arg for arg in expr.args if isinstance(arg, FloorDiv) and arg.args[1] in expr.args)
    return next(found, None)


def _near(quotient: FloorDiv, ranges: Mapping[str, tuple[int | None, int | None]]) -> Interval:
    """c * floor(x / c) lies less than |c| from x."""
    x, step = (_interval(arg, ranges) for arg in quotient.args)
    size = _absolute([step])[1]
    return _plus(x[0], _times(size, (0, Fraction(-1)))), _plus(x[1], size)


def _number(expr: Expr) -> Interval:
    if isinstance(expr, Rational):
        end = (0, Fraction(int(expr.p), int(expr.q)))
        return end, end
    value = abs(float(expr)) if expr.is_comparable else inf
    if not isfinite(value):
        return _ANYTHING
    near, far = Fraction(value) * (1 - _ROUNDING), Fraction(value) * (1 + _ROUNDING)
    return ((0, near), (0, far)) if expr.is_nonnegative else ((0, -far), (0, -near))


def _symbol(expr: Symbol, ranges: Mapping[str, tuple[int | None, int | None]]) -> Interval:
    low, high = _assumed(expr)
    if expr.name in ranges:
        first, last = ranges[expr.name]
        low = low if first is None else max(low, (0, Fraction(first)))
        high = high if last is None else min(high, (0, Fraction(last)))
    return low, high


def _assumed(expr: Expr) -> Interval:
    if expr.is_positive:
        return (_ONE if expr.is_integer else _ZERO), _ABOVE
    if expr.is_nonnegative:
        return _ZERO, _ABOVE
    return (_BELOW, _ZERO) if expr.is_nonpositive else _ANYTHING


def _sign(end: End) -> int:
    return end[0] or (end[1] > 0) - (end[1] < 0)


def _hull(ends: list[End]) -> Interval:
    return min(ends), max(ends)


def _union(one: Interval, other: Interval) -> Interval:
    return min(one[0], other[0]), max(one[1], other[1])


def _contains_zero(one: Interval) -> bool:
    return one[0] <= _ZERO <= one[1]


def _plus(one: End, other: End) -> End:
    return (one[0] or other[0], Fraction(0) if one[0] or other[0] else one[1] + other[1])


def _times(one: End, other: End) -> End:
    if _ZERO in (one, other):
        return _ZERO
    if one[0] or other[0]:
        return _sign(one) * _sign(other), Fraction(0)
    return 0, one[1] * other[1]


def _floor_quotient(one: End, other: End) -> End:
    if other[0]:  # the limit for a finite a; for an infinite one the other corners say more
        return (0, Fraction(0 if _sign(one) * _sign(other) >= 0 else -1))
    if one[0]:
        return _sign(one) * _sign(other), Fraction(0)
    return 0, Fraction(floor(one[1] / other[1]))


def _add(parts: list[Interval]) -> Interval:
    return reduce(lambda x, y: (_plus(x[0], y[0]), _plus(x[1], y[1])), parts)


def _multiply(parts: list[Interval]) -> Interval:
    return reduce(lambda x, y: _hull([_times(a, b) for a, b in product(x, y)]), parts)


def _power(parts: list[Interval]) -> Interval:
    base, exponent = parts
    if exponent[0] != exponent[1] or exponent[0][0] or exponent[0][1].denominator != 1:
        return _ANYTHING
    times = int(exponent[0][1])
    if not 0 < times <= _LARGEST_EXPONENT:
        return _ANYTHING
    ends = [reduce(_times, [end] * times) for end in base]
    return _hull([*ends, _ZERO] if times % 2 == 0 and _contains_zero(base) else ends)


def _floor_divide(parts: list[Interval]) -> Interval:
    one, other = parts
    if _contains_zero(other):
        return _whole_quotient(one)
    return _hull([_floor_quotient(a, b) for a, b in product(one, other)])


def _whole_quotient(one: Interval) -> Interval:
    """By a whole divisor other than 0 no size grows; by 0 nothing is divided."""
    size = max(_absolute([one])[1], _ONE)
    return _times(size, (0, Fraction(-1))), size


def _floor_modulo(parts: list[Interval], whole: bool) -> Interval:
    one, other = parts
    if _contains_zero(other):
        return _ANYTHING
    step = (0, Fraction(1 if whole else 0))
    if other[1] < _ZERO:
        return _plus(other[0], step), _ZERO
    if one[0] >= _ZERO and one[1] < other[0]:
        return one
    last = _plus(other[1], (0, -step[1]))
    return _ZERO, min(last, one[1]) if one[0] >= _ZERO else last


def _largest(parts: list[Interval]) -> Interval:
    return max(low for low, _ in parts), max(high for _, high in parts)


def _smallest(parts: list[Interval]) -> Interval:
    return min(low for low, _ in parts), min(high for _, high in parts)


def _absolute(parts: list[Interval]) -> Interval:
    low, high = parts[0]
    ends = [low if _sign(low) >= 0 else _times(low, (0, Fraction(-1)))]
    ends.append(high if _sign(high) >= 0 else _times(high, (0, Fraction(-1))))
    return _hull([*ends, _ZERO] if _contains_zero(parts[0]) else ends)


def _logarithm(parts: list[Interval]) -> Interval:
    low, high = parts[0]
    if _sign(low) <= 0:
        return _ANYTHING
    first = Fraction(log(low[1])) - _ROUNDING if not low[0] else Fraction(0)
    last = (0, Fraction(log(high[1])) + _ROUNDING) if not high[0] else _ABOVE
    return (0, first), last


def _clamp(parts: list[Interval]) -> Interval:
    x, low, high = parts
    return _smallest([_largest([x, low]), high])


# By name, because Clamp and Wide belong to the IR, which the ground floor does not know.
_RULES: dict[str, Callable[[list[Interval]], Interval]] = {
    Add.__name__: _add,
    Mul.__name__: _multiply,
    Pow.__name__: _power,
    FloorDiv.__name__: _floor_divide,
    Max.__name__: _largest,
    Min.__name__: _smallest,
    Abs.__name__: _absolute,
    sympy_floor.__name__: lambda parts: _floor_divide([parts[0], (_ONE, _ONE)]),
    "log": _logarithm,
    "tanh": lambda parts: ((0, Fraction(-1)), _ONE),
    "sigmoid": lambda parts: (_ZERO, _ONE),
    "Random": lambda parts: ((0, Fraction(-(2**31))), (0, Fraction(2**31 - 1))),
    "Clamp": _clamp,
    "Wide": lambda parts: parts[0],
}
