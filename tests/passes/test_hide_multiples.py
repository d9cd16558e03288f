"""Scalars that are multiples of a number, and what they become."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Basic, Expr, Max, Symbol

from attnc.ir.functions import Wide
from attnc.ir.nodes import Formula, Let
from attnc.passes.hide_multiples import HideMultiples
from attnc.symbols import FloorDiv, FloorMod, q_pos
from attnc.verify.evaluation import Environment, evaluate
from tests.ir.programs import kernel

A, B, N = (Symbol(name, integer=True) for name in "abn")
X = Symbol("x", real=True)


def rewritten(formula: Expr, axes: tuple[str, ...] = ()) -> Basic:
    let = Let("lo", Formula(formula), axes, "i32")
    changed = HideMultiples().run(replace(kernel(), body=(let,))).body[0]
    assert isinstance(changed, Let) and isinstance(changed.value, Formula)
    assert replace(changed, value=let.value) == let
    return changed.value.expr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (64 * FloorDiv(A, 64), A - FloorMod(A, 64)),
        (Max(0, 64 * FloorDiv(A + B, 64)), Max(0, A + B - FloorMod(A + B, 64))),
        (Wide(64 * FloorDiv(A, 64)), Wide(A - FloorMod(A, 64))),
    ],
)
def test_a_scalar_keeps_no_visible_multiple(before: Expr, after: Expr) -> None:
    assert rewritten(before) == after


@pytest.mark.parametrize(
    ("formula", "axes"),
    [
        (64 * FloorDiv(q_pos, 64), ("q",)),  # a row value
        (N * FloorDiv(A, N), ()),  # no number that Triton could see
        (64 * FloorDiv(X, 64), ()),  # x - x % c would round
        (32 * FloorDiv(A, 64), ()),
    ],
)
def test_the_rest_stays(formula: Expr, axes: tuple[str, ...]) -> None:
    assert rewritten(formula, axes) == formula


@st.composite
def scalars(draw: st.DrawFn) -> Expr:
    """A bound as the range passes write it: multiples within sums, extrema and quotients."""
    found: Expr = draw(st.sampled_from([A, B])) + draw(st.integers(-99, 99))
    for _ in range(draw(st.integers(1, 3))):
        step = draw(st.sampled_from([1, 7, 16, 64]))
        found = step * FloorDiv(found, step) + draw(st.sampled_from([A, B, 0, 1 - step]))
        found = draw(st.sampled_from([found, Max(0, found), FloorDiv(found + B, 16)]))
    return found


@given(scalars(), st.integers(-300, 300), st.integers(-300, 300))
def test_keeps_the_meaning(formula: Expr, a: int, b: int) -> None:
    env = Environment({"a": a, "b": b})
    assert evaluate(rewritten(formula), env) == evaluate(formula, env)
