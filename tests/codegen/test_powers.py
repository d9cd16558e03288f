"""Powers keep the sign of their base, and are as near as the other functions."""

from __future__ import annotations

import pytest

from attnc.driver import compile_spec
from attnc.runtime.loader import load_text
from attnc.spec import parse_spec
from attnc.verify.cases import Case
from attnc.verify.numbers import judge


@pytest.mark.parametrize(
    "score",
    [
        "score ** 3",
        "score ** 9 / 1000",
        "1 / (2 + score ** 10)",
        "abs(score) ** 1.5",
        "(1 + abs(score)) ** -2.5",
        "(1 + kv_idx) ** -0.5 + score",
        "(1 + kv_idx) ** -1 * score",
        "abs(score) ** 0.3 + abs(score) ** 2.7 - (1 + abs(score)) ** -1.3",
        "4 ** score",
        "1 ** score + score",
        "score * 0.25 ** h + 10 ** -h",
        "score * 3 ** h + 1.5 ** (kv_idx % 4)",
        "score * (2 ** h + 1) + where(h == 0, 2 ** h, 1)",
        "exp2(h) * n ** 2 + 2 ** n * score + 3 ** n",
        "8 ** (score / 9) + 2 ** (q_pos - kv_idx - 40)",
    ],
)
def test_powers_match_the_reference(score: str) -> None:
    params = "params: {n: {type: int, default: 2}}\n" if "n **" in score else ""
    agrees(f"{params}score: {score}\n")


@pytest.mark.parametrize(
    "mask",
    [
        "q_pos - kv_idx < 2 ** h",
        "kv_idx < 4 * 3 ** h",
        "(kv_idx // 2 ** h) % 2 == 0",
        "kv_idx % 3 ** h == 0",
        "kv_idx < min(2 ** h, 64)",
        "kv_idx < w[h] * 2 ** h",
        "sliding_window((2 ** (h + 1)) // 1)",
        "window(exp2(h) // 1, 0)",
        "kv_idx <= w[(2 ** h) // 1]",
        "sliding_window((2 ** (35 * h + 1)) // 1)",
        "kv_idx > -exp(90 * h) // 1",
        "2 ** (q_pos - kv_idx) < 9",
    ],
)
def test_powers_in_masks_match_the_reference(mask: str) -> None:
    tensors = "tensors: {w: {shape: [heads], dtype: int32}}\n" if "w[" in mask else ""
    agrees(f"{tensors}mask: {mask}\n")


def agrees(keys: str) -> None:
    spec = parse_spec(f"name: powers\nheads: 2\nhead_dim: 16\noutputs: [lse]\n{keys}")
    module = load_text(compile_spec(spec).module.source, "powers", interpret=True)
    params = (("n", 2),) if spec.params else ()
    for dtype in ("fp32", "fp16"):
        case = Case("powers", 1, 2, 20, 33, dtype, tiles=(16, 16), params=params)
        assert all(found.ok for found in judge(spec, module, case))


@pytest.mark.parametrize(
    ("key", "asks"),
    [
        ("mask: kv_idx < 3 ** h", False),
        ("mask: (kv_idx // 1.5) % 3 < 2", False),
        ("score: score ** 9", False),
        ("score: 3 ** score", True),
        ("score: tanh(score)", True),
    ],
)
def test_only_a_kernel_that_asks_for_the_precise_forms_says_which(key: str, asks: bool) -> None:
    spec = parse_spec(f"name: powers\nheads: 2\nhead_dim: 16\n{key}\n")
    source = compile_spec(spec).module.source
    assert ("\n    PRECISE: tl.constexpr = " in source) is asks
