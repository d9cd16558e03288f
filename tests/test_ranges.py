"""Interval analysis: never too narrow, and exact where it is easy to say what exact means."""

from __future__ import annotations

from itertools import product

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, Expr, Integer, Max, Min, Symbol

from attnc.ir.functions import Clamp
from attnc.ranges import bounds
from attnc.symbols import FloorDiv, FloorMod, Read, Where, kv_idx, q_idx, q_len, tensor_symbol

X, Y = Symbol("x", integer=True), Symbol("y", integer=True)
RANGES = {"x": (-5, 7), "y": (2, 4)}

leaves = st.sampled_from([X, Y]) | st.integers(-4, 4).map(Integer)
PAIRS = [
    lambda a, b: a + b,
    lambda a, b: a - 2 * b,
    lambda a, b: a * b,
    Min,
    Max,
    lambda a, b: FloorDiv(a, b) if b != 0 else a,
    lambda a, b: FloorMod(a, b) if b != 0 else a,
    lambda a, b: Where(a < b, a, b + 1),
    lambda a, b: Clamp(a, Min(b, 1), Max(b, 1)) if a.free_symbols else a,
    lambda a, b: Abs(a) + b**2,
]
formulas = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from(PAIRS), inner, inner).map(lambda t: t[0](t[1], t[2])),
    max_leaves=6,
)


def evaluate(expr: Expr, at: dict[Symbol, int]) -> int | None:
    """The value of a formula at a point; None where it divides by zero."""
    if expr.func.__name__ == "Clamp":
        x, low, high = (evaluate(arg, at) for arg in expr.args)
        return None if None in (x, low, high) else min(max(x, low), high)
    if isinstance(expr, FloorDiv | FloorMod):
        a, b = (evaluate(arg, at) for arg in expr.args)
        if a is None or not b:
            return None
        return a // b if isinstance(expr, FloorDiv) else a % b
    if isinstance(expr, Where):
        sides = [evaluate(arg, at) for arg in (*expr.args[0].args, *expr.args[1:])]
        return None if None in sides else (sides[2] if sides[0] < sides[1] else sides[3])
    if not expr.args:
        return at[expr] if isinstance(expr, Symbol) else int(expr)
    parts = [evaluate(arg, at) for arg in expr.args]
    return None if None in parts else int(expr.func(*parts))


@settings(max_examples=150, deadline=None)
@given(formulas)
def test_no_value_lies_outside(expr: Expr) -> None:
    low, high = bounds(expr, RANGES)
    for x, y in product(range(-5, 8), range(2, 5)):
        value = evaluate(expr, {X: x, Y: y})
        if value is not None:
            assert low is None or low <= value, (expr, x, y)
            assert high is None or value <= high, (expr, x, y)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (X + Y, (-3, 11)),
        (X * Y, (-20, 28)),
        (X**2, (0, 49)),
        (FloorDiv(X, Y), (-3, 3)),
        (FloorMod(X, Y), (0, 3)),
        (FloorMod(X, Integer(-3)), (-2, 0)),
        (FloorMod(Y, Integer(5)), (2, 4)),
        (Abs(X), (0, 7)),
        (Clamp(kv_idx, Integer(0), Integer(9)), (0, 9)),
        (Where(X < 3, Integer(-1), Y), (-1, 4)),
        (FloorDiv(kv_idx, Y), (0, None)),
        (FloorDiv(-kv_idx - 1, Y), (None, -1)),
        (FloorDiv(X, kv_idx), (-7, 7)),  # no whole divisor gives more; by 0 nothing is divided
        (FloorMod(X, q_len + 1), (0, None)),
        (FloorDiv(X / 2, Integer(1)), (-3, 3)),
        (FloorMod(X / 2, Integer(3)), (0, 3)),
        (Min(kv_idx, X), (-5, 7)),
        (Max(kv_idx, X), (0, None)),
        (kv_idx - q_idx, (None, None)),
        (Read(tensor_symbol("ids", "int32"), X), (None, None)),
        (X * sympy.sqrt(2), (-8, 10)),
        (Integer(10) ** 400 * X + kv_idx, (-5 * 10**400, None)),
    ],
)
def test_bounds(expr: Expr, expected: tuple[int | None, int | None]) -> None:
    assert bounds(expr, RANGES) == expected


def test_one_sided_ranges_narrow_the_assumptions() -> None:
    assert bounds(kv_idx - 1, {"kv_idx": (None, 9)}) == (-1, 8)
    assert bounds(X, {"x": (3, None)}) == (3, None)
