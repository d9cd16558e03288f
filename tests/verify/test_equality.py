"""Two formulas at points: one where a formula has no real value says nothing."""

from __future__ import annotations

import pytest
from sympy import Expr, Symbol, log, sqrt

from attnc.symbols import Where
from attnc.verify.equality import Sampler, equal

X, Y = Symbol("x", real=True), Symbol("y", real=True)
SAMPLER = Sampler(heads=4, integers=frozenset())


@pytest.mark.parametrize("formula", [X / (X * log(Y) - 1), sqrt(X) + sqrt(Y), log(Y) ** 2])
def test_a_formula_of_half_of_the_numbers_is_compared_on_that_half(formula: Expr) -> None:
    other = Where(Y > 10**9, X, formula)  # sympy cannot tell: points decide
    assert equal("same", formula, other, SAMPLER).status == "checked numerically"
    assert equal("same", formula, other + 1, SAMPLER).status == "refuted"


def test_a_formula_without_a_value_anywhere_is_undecided() -> None:
    nowhere = log(-(Y**2) - 1)
    found = equal("same", nowhere, Where(Y > 10**9, X, nowhere), SAMPLER)
    assert (found.status, found.detail) == (
        "undecided",
        "too few points where both formulas have a value",
    )
