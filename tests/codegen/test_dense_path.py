"""The generated file's dense path: a CPU outside Triton's interpreter."""

from __future__ import annotations

import pytest

from attnc.driver import compile_spec
from attnc.runtime.loader import load_text
from attnc.spec import parse_spec
from attnc.verify.cases import Case
from attnc.verify.numbers import judge


@pytest.mark.parametrize(
    "key",
    [
        "score: sigmoid(score) * sqrt(d)",
        "score: score * log(d)",
        "score: max(score, d) - score",
        "mask: kv_idx < max(d, 20) // 2",
    ],
)
@pytest.mark.parametrize("way", ["cpu", "reference"])
def test_the_head_dim_may_stand_in_a_function(key: str, way: str) -> None:
    spec = parse_spec(f"name: depth\nheads: 2\nhead_dim: 16\n{key}\n")
    module = load_text(compile_spec(spec).module.source, "depth", interpret=False)
    assert all(found.ok for found in judge(spec, module, Case("d", 1, 2, 9, 33, "fp32"), way))
