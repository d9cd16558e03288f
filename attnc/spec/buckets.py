"""T5's bucket of a distance, exact for every integer whatever a kernel's log rounds to.

T5 puts distance n >= e into bucket e + floor(L log(n / e) / log(max_distance / e)).  At n = 16, 32,
64 the quotient is a whole number, and a float32 log may land on either side of it.  So the formula
counts the distances at which a bucket begins, found here in exact integer arithmetic: a comparison
each, where a log costs some twenty operations.

With very many buckets the log is cheaper.  It then gets a small rational added before the floor:
half the smallest step by which any distance misses the next whole number.
"""

from __future__ import annotations

import math
from typing import cast

from sympy import Abs, Add, Expr, Ge, Gt, Integer, Max, Min, Rational, log

from attnc.symbols import FloorDiv, Where

MOST_COUNTED = 24  # buckets beyond the exact ones that are counted rather than computed
_ROUNDING = 2.0**-18  # what a float32 log may be off by, relative to L, with room to spare


def bucket(distance: Expr, buckets: int, max_distance: int, bidirectional: bool) -> Expr:
    """Give T5's bucket of a distance (key position minus query position).

    Raises: ValueError, saying what max_distance must be, when the buckets cannot be told apart.
    Source: Raffel et al. 2020, arXiv:1910.10683; `_relative_position_bucket` in their code.
    """
    if not bidirectional:
        return _one_sided(Max(-distance, Integer(0)), buckets, max_distance)
    half = buckets // 2
    side = Where(Gt(distance, 0), Integer(half), Integer(0))
    return side + _one_sided(Abs(distance), half, max_distance)


def _one_sided(n: Expr, buckets: int, max_distance: int) -> Expr:
    """The bucket of a distance n >= 0: exact below buckets // 2, logarithmic above."""
    exact = buckets // 2
    steps = buckets - exact
    if max_distance <= exact:
        raise ValueError(f"above {exact}, the last distance with a bucket of its own")
    if steps - 1 <= MOST_COUNTED:
        begins = (_first_at(k, exact, steps, max_distance) for k in range(1, steps))
        return Add(
            Min(n, exact), *(Where(Ge(n, begin), Integer(1), Integer(0)) for begin in begins)
        )
    nudge = _nudge(exact, steps, max_distance)
    # Max keeps the log away from zero where the other branch is taken.
    far = log(Max(n, exact) / exact) * steps / log(Rational(max_distance, exact)) + nudge
    floor = cast(Expr, FloorDiv(far, Integer(1)))
    return cast(Expr, Where(n < exact, n, Min(exact + floor, buckets - 1)))


def _nudge(exact: int, steps: int, max_distance: int) -> Expr:
    """A power of two, at most half of what any distance misses the next whole number by."""
    gap = 1.0
    for k in range(1, steps):
        below = _first_at(k, exact, steps, max_distance) - 1
        gap = min(gap, k - steps * math.log(below / exact) / math.log(max_distance / exact))
    if gap / 4 < steps * _ROUNDING:
        raise ValueError("smaller, so that float32 can tell the buckets apart")
    return Integer(1) / 2 ** math.ceil(math.log2(2 / gap))


def _first_at(k: int, exact: int, steps: int, max_distance: int) -> int:
    """The smallest n whose quotient is at least k: (n / e)^L >= (max / e)^k, in integers."""
    low, high = exact, max_distance
    while low < high:
        middle = (low + high) // 2
        if middle**steps * exact**k >= max_distance**k * exact**steps:
            high = middle
        else:
            low = middle + 1
    return low
