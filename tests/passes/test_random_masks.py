"""Random masks: bounds are sound for every formula, and what is claimed to be tight is."""

from __future__ import annotations

import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Abs, And, Eq, Ge, Gt, Integer, Le, Lt, Max, Min, Ne, Not, Or, Symbol
from sympy.logic.boolalg import Boolean

from attnc.passes.bound_tiles import BoundTiles
from attnc.passes.drop_implied_bounds import DropImpliedBounds
from attnc.passes.split_phases import SplitPhases
from attnc.symbols import FloorDiv, FloorMod, Where, h, kv_idx, kv_len, q_idx, q_len, q_pos
from tests.passes.judge_bounds import judge
from tests.passes.masks import Case, kernel_with

w, n = Symbol("w", integer=True), Symbol("n", integer=True)
SMALL = st.integers(-30, 60).map(Integer)

rows = st.sampled_from([q_pos, q_idx, q_pos, -q_idx, 2 * q_pos, q_idx * 0 + 1, w * q_idx])
keys = st.sampled_from(
    [kv_idx, kv_idx, 2 * kv_idx, 3 * kv_idx - 5, Integer(0), FloorDiv(kv_idx, 8)]
)
scalars = st.one_of(
    SMALL, st.sampled_from([w, n, w + n, Where(h < 2, Integer(5), w), kv_len - q_len, Min(w, n)])
)


@st.composite
def numbers(draw: st.DrawFn) -> object:
    """A term in the row and scalars, sometimes bent by floor, min, max or where."""
    row, scalar = draw(rows), draw(scalars)
    bend = draw(st.integers(0, 8))
    if bend == 0:
        return FloorDiv(row + scalar, draw(st.sampled_from([2, 7, 16])))
    if bend == 1:
        return Min(row, scalar)
    if bend == 2:
        return Max(row, scalar)
    if bend == 3:
        return Where(row > scalar, row, Integer(3))
    if bend == 4:
        return FloorMod(row + scalar, 5)
    return row + scalar


@st.composite
def atoms(draw: st.DrawFn) -> Boolean:
    kind, key, number = draw(st.integers(0, 9)), draw(keys), draw(numbers())
    if kind == 0:
        return Eq(FloorDiv(kv_idx, 12), FloorDiv(draw(rows), 12))
    if kind == 1:
        return Eq(FloorMod(q_pos - kv_idx, 3), 0)
    if kind == 2:
        return Abs(q_pos - key) <= draw(scalars)
    if kind == 3:
        return draw(st.sampled_from([Eq, Ne]))(key, number)
    if kind == 4:
        return h < draw(st.integers(0, 3))
    if kind == 5:
        return And(q_pos - draw(st.integers(0, 40)) <= kv_idx, kv_idx <= q_pos)
    return draw(st.sampled_from([Lt, Le, Gt, Ge]))(key, number)


masks = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: And(*pair)),
        st.tuples(inner, inner).map(lambda pair: Or(*pair)),
        inner.map(Not),
    ),
    max_leaves=6,
)
cases = st.builds(
    lambda q, k, tile, params, head: Case(
        q, k, *tile, (*zip(("w", "n"), params, strict=True), ("h", head))
    ),
    st.integers(0, 70),
    st.integers(0, 90),
    st.sampled_from([(16, 16), (32, 16), (16, 32), (1, 16), (8, 8)]),
    st.tuples(st.integers(-20, 40), st.integers(-10, 70)),
    st.integers(0, 3),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(masks, st.lists(cases, min_size=6, max_size=6))
def test_bounds_are_sound(mask: Boolean, sizes: list[Case]) -> None:
    start = time.perf_counter()
    kernel = BoundTiles().run(kernel_with(mask))
    assert time.perf_counter() - start < 5
    for case in sizes:
        score = judge(kernel, mask, case)
        assert not score.wrong, score.wrong[0]
        assert score.dead_columns == 0, (mask, case)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(masks)
def test_passes_are_idempotent_and_repeatable(mask: Boolean) -> None:
    kernel = kernel_with(mask, params=("w", "n"))
    once = BoundTiles().run(kernel)
    assert BoundTiles().run(kernel) == once
    short = DropImpliedBounds().run(SplitPhases().run(once))
    assert SplitPhases().run(short) == short
    assert DropImpliedBounds().run(short) == short
