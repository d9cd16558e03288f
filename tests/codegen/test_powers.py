"""Powers keep the sign of their base, and half ones are roots."""

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
    ],
)
def test_powers_match_the_reference(score: str) -> None:
    spec = parse_spec(f"name: powers\nheads: 2\nhead_dim: 16\nscore: {score}\noutputs: [lse]\n")
    module = load_text(compile_spec(spec).module.source, "powers", interpret=True)
    for dtype in ("fp32", "fp16"):
        case = Case("powers", 1, 2, 20, 33, dtype, tiles=(16, 16))
        assert all(found.ok for found in judge(spec, module, case))
