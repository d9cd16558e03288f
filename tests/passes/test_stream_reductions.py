"""Which sums may follow a running maximum, and what their repair is."""

from __future__ import annotations

import pytest
from sympy import Expr, Integer, cos, exp

from attnc.ir.functions import new, old, tile_symbol
from attnc.ir.nodes import Reduce
from attnc.passes.stream_reductions import CannotStream, repair_of

m, t, v, total = (tile_symbol(name) for name in ("m", "t", "v", "total"))
VARIES = {"t", "v", "kv_idx"}


def summed(element: Expr) -> Reduce:
    return Reduce("total", "sum", "k", element, ("q",), Integer(0))


@pytest.mark.parametrize(
    ("element", "repair"),
    [
        (exp(t - m), total * exp(old("m") - new("m"))),
        (exp(t - m) * v, total * exp(old("m") - new("m"))),
        (exp(2 * (t - m)), total * exp(2 * old("m") - 2 * new("m"))),
        (exp(t - m) * t, total * exp(old("m") - new("m"))),
    ],
)
def test_a_sum_that_scales_with_the_maximum_may_follow_it(element: Expr, repair: Expr) -> None:
    assert repair_of(summed(element), "m", VARIES).equals(repair)


@pytest.mark.parametrize("element", [exp((t - m) ** 2), cos(t - m), exp(t - m) + v])
def test_a_sum_that_no_factor_repairs_is_refused(element: Expr) -> None:
    with pytest.raises(CannotStream, match="a change of m cannot be repaired on the sum of"):
        repair_of(summed(element), "m", VARIES)
