"""What a box proves holds for every row of every tile."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Integer, Symbol

from attnc.passes.affine import Affine, affine, floor_divide, substitute
from attnc.passes.box import Box
from attnc.symbols import FloorDiv, kv_idx, kv_len, q_idx, q_len
from tests.passes.masks import Q_FIRST, value_of

END = Symbol("q_end", integer=True, positive=True)
BOX = Box(q_idx, Q_FIRST, END, q_len, kv_idx, kv_len)
SYMBOLS = (q_idx, Q_FIRST, END, q_len, kv_len)
NAMES = [symbol.name for symbol in SYMBOLS]

linear = st.builds(
    lambda factors, constant: sum(
        (f * s for f, s in zip(factors, SYMBOLS, strict=True)), Integer(constant)
    ),
    st.lists(st.integers(-3, 3), min_size=5, max_size=5),
    st.integers(-15, 15),
)
floors = st.builds(
    lambda inside, by, factor: factor * FloorDiv(inside, by),
    linear,
    st.sampled_from([Integer(2), Integer(5), Integer(12)]),
    st.integers(-12, 12),
)
ROWS = [
    dict(zip(NAMES, (first + before, first, first + before + 1 + after, size, kv), strict=True))
    for first, before, after, more, kv in product((0, 5, 16), (0, 1, 9), (0, 4), (0, 7), (0, 3, 40))
    for size in (first + before + 1 + after + more,)
]


@settings(max_examples=400, deadline=None)
@given(linear, floors, floors)
def test_what_is_proved_holds(one: object, other: object, third: object) -> None:
    for expr in (one, one + other, one + other + third):  # type: ignore[operator]
        if BOX.proves(affine(expr)):
            assert all(value_of(expr, row) >= 0 for row in ROWS), expr


def test_known_proofs() -> None:
    position = q_idx + kv_len - q_len
    for expr in (
        kv_len - position - 1,
        END - q_idx - 1,
        q_len - Q_FIRST - 1,
        q_idx - 24 * FloorDiv(q_idx, 24),
        24 * FloorDiv(position, 24) + 24 - 24 * FloorDiv(position + 1, 24),
    ):
        assert BOX.proves(affine(expr)), expr
    assert not BOX.proves(affine(position))
    assert not BOX.proves(affine(-kv_len))  # a lone negative factor
    assert not BOX.proves(affine(-12 * FloorDiv(-q_idx, 12) - 11))  # 0 - 11 at the first row


@settings(max_examples=200, deadline=None)
@given(linear, linear, st.integers(1, 9))
def test_forms_compute(one: object, other: object, by: int) -> None:
    quotient = floor_divide(affine(one), affine(Integer(by)))
    moved = substitute(quotient, q_idx, affine(other))
    for row in ROWS[::5]:
        assert value_of(quotient.expr(), row) == value_of(one, row) // by
        there = row | {"q_idx": value_of(other, row)}
        assert value_of(moved.expr(), row) == value_of(one, there) // by


def test_equal_forms_are_equal() -> None:
    assert affine(2 * (q_idx + 1) - q_idx) == Affine({q_idx: 1}, 2)
    assert affine(q_idx - q_idx + 3) == Affine({}, 3)
    assert affine(FloorDiv(6 * q_idx + 7, Integer(3))) == Affine({q_idx: 2}, 2)
