"""Formulas on plain numbers, as IEEE has them where Python raises."""

from __future__ import annotations

import math

import pytest
from sympy import Integer

from attnc.explain.evaluate import compile_formula
from attnc.symbols import log2, param_symbol, power

X = param_symbol("x", "float")


@pytest.mark.parametrize(
    ("exponent", "x", "wanted"),
    [(3, -1e200, -math.inf), (2, -1e200, math.inf), (-1, -0.0, -math.inf), (-2, -0.0, math.inf)],
)
def test_a_power_that_leaves_the_numbers_keeps_its_sign(
    exponent: int, x: float, wanted: float
) -> None:
    assert compile_formula(power(X, Integer(exponent)), ("x",))(x) == wanted


def test_a_logarithm_has_a_value_everywhere() -> None:
    function = compile_formula(log2(X), ("x",))
    assert function(0.0) == -math.inf and math.isnan(function(-1.0))
