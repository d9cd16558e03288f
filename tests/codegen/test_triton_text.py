"""Formulas as Triton text: what varies by row is computed by row, and nothing binds wrongly."""

from __future__ import annotations

import ast

import pytest
from sympy import (
    Abs,
    And,
    Basic,
    Eq,
    Float,
    Max,
    Min,
    Ne,
    Not,
    Or,
    Rational,
    Symbol,
    exp,
    log,
    sqrt,
    tanh,
)

from attnc.codegen.texts import Name
from attnc.codegen.triton_text import TritonText
from attnc.ir.functions import Anchor, Clamp, Exp2, InverseOrZero, Log2, Wide
from attnc.symbols import FloorDiv, FloorMod, Where, sigmoid

s, r, c, w = (
    Symbol(name, real=True) for name in "srcw"
)  # a tile, a row value, a column value, a scalar
q, n = Symbol("q_pos", integer=True), Symbol("n", integer=True)
k = Symbol("kv_idx", integer=True, nonnegative=True)
NAMES = {
    "s": Name("s", ("q", "k")), "r": Name("r", ("q",)), "c": Name("c", ("k",)), "w": Name("w"),
    "q_pos": Name("q_pos", ("q",), True), "kv_idx": Name("kv_idx", ("k",), True),
    "n": Name("n", (), True),
}  # fmt: skip
RANGES = {"q_pos": (-(2**30), 2**30 - 1), "kv_idx": (0, 2**30 - 1), "n": (-(2**29), 2**29)}

TABLE: list[tuple[Basic, str]] = [
    (s * w + r, "s * w + r[:, None]"),
    (s - r, "s - r[:, None]"),
    (r - s, "r[:, None] - s"),
    (-r - s, "-(s + r[:, None])"),
    (s - (r - c), "s + c[None, :] - r[:, None]"),
    ((r + c) * s, "(c[None, :] + r[:, None]) * s"),
    (s / r, "s / r[:, None]"),
    ((s + 1) / (r - c), "(s + 1) / (r[:, None] - c[None, :])"),
    (1 / s, "1.0 / s"),
    (s**2, "s * s"),
    (s**-2, "1.0 / (s * s)"),
    (1 / sqrt(r), "(1.0 / tl.sqrt(r))[:, None]"),
    (2**s, "tl.exp2(s)"),
    (s / 2, "s * 0.5"),
    (-s / 4, "s * -0.25"),
    (exp(r) * s, "s * exp(r, PRECISE)[:, None]"),
    (tanh(s), "tanh(s, PRECISE)"),
    (log(r + 1) - s, "log(r + 1, PRECISE)[:, None] - s"),
    (sigmoid(-s), "sigmoid(-s, PRECISE)"),
    (Abs(q - k), "tl.abs(kv_idx[None, :] - q_pos[:, None])"),
    (Max(r, 0) + s, "s + tl.maximum(r, 0)[:, None]"),
    (Min(Max(s, -1), c), "tl.minimum(tl.maximum(s, -1), c[None, :])"),
    (k < q - n, "kv_idx[None, :] < (q_pos - n)[:, None]"),
    ((k <= q) & (k >= n), "(kv_idx[None, :] <= q_pos[:, None]) & (kv_idx >= n)[None, :]"),
    (
        Or(And(k <= q, Ne(FloorMod(q - k, 5), 0)), k < 3),
        "(kv_idx < 3)[None, :] | (((q_pos[:, None] - kv_idx[None, :]) % 5 != 0) "
        "& (kv_idx[None, :] <= q_pos[:, None]))",
    ),
    (Not(And(k <= q, n > 3)), "(kv_idx[None, :] > q_pos[:, None]) | (n <= 3)"),
    (FloorDiv(k, 3), "(kv_idx // 3)[None, :]"),
    (FloorDiv(q, 3), "floor_div(q_pos, 3)[:, None]"),
    (FloorMod(k, n), "floor_mod(kv_idx, n)[None, :]"),
    (FloorMod(q - k, 7), "floor_mod(q_pos[:, None] - kv_idx[None, :], 7)"),
    (FloorMod(r, Rational(5, 2)), "real_mod(r, 2.5)[:, None]"),
    (Where(k <= q, s, -s), "tl.where(kv_idx[None, :] <= q_pos[:, None], s, -s)"),
    (Where(n > 3, w, 1 - w), "(w if n > 3 else 1 - w)"),
    (Eq(FloorDiv(q, 16), FloorDiv(k, 16)),
        "floor_div(q_pos, 16)[:, None] == (kv_idx // 16)[None, :]"),
    (Anchor(r), 'tl.where(r == float("-inf"), 0.0, r)[:, None]'),
    (InverseOrZero(r), "(1.0 / tl.where(r == 0.0, 1.0, r))[:, None]"),
    (Exp2(s * w - r), "tl.exp2(s * w - r[:, None])"),
    (Log2(r) * log(2), "(tl.log2(r) * 0.6931471805599453)[:, None]"),
    (Clamp(q - k, -3, 3), "tl.minimum(tl.maximum(q_pos[:, None] - kv_idx[None, :], -3), 3)"),
    (s * Float("1e-45"), "s * 0.0"),  # below the normal range: float64
]  # fmt: skip
WIDE: list[tuple[Basic, str]] = [
    (Wide(3 * k) < q, "(tl.cast(kv_idx, tl.int64) * 3)[None, :] < q_pos[:, None]"),
    (k - q, "kv_idx[None, :] - q_pos[:, None]"),
]


def printed(formula: Basic) -> str:
    return TritonText(dict(NAMES), dict(RANGES)).over(formula, ("q", "k"))


@pytest.mark.parametrize(("formula", "text"), TABLE, ids=[text for _, text in TABLE])
def test_prints(formula: Basic, text: str) -> None:
    assert printed(formula) == text
    ast.parse(text, mode="eval")


@pytest.mark.parametrize(("formula", "text"), WIDE, ids=[text for _, text in WIDE])
def test_prints_wide(formula: Basic, text: str) -> None:
    assert printed(formula) == text


def test_remembers_the_helpers_that_a_text_needs() -> None:
    text = TritonText(dict(NAMES), dict(RANGES))
    text.over(tanh(s) + FloorMod(q, 3) + exp(r), ("q", "k"))
    assert text.used == {"tanh", "floor_mod", "exp"}
