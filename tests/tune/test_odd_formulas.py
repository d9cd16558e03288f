"""What Triton's interpreter takes and its compiler does not: scalars and counters of two types."""

from __future__ import annotations

import pytest

from attnc.driver import compile_spec
from attnc.spec import parse_spec
from attnc.tune.operands import operands_of
from attnc.tune.resources import report

HEAD = "heads: 2\nhead_dim: 16\n"
LONG = "tensors: {t: {shape: [kv_len], dtype: int64}}\n"
REAL = "params: {x: {type: float, default: 5}}\n"
SCHEDULE = {"block_q": 32, "block_kv": 32, "warps": 4, "stages": 2}


@pytest.mark.parametrize(
    "body",
    [
        "score: score + where(h == 0, 0.1, 1)",
        "score: score * where(w > 3, w, 0.5)\nparams: {w: {type: int, default: 5}}",
        f"mask: sliding_window(t[h])\n{LONG}",
        f"mask: t[b] // 3 < kv_idx\n{LONG}",
        f"mask: where(h > 0, x * q_idx // 1, 3) >= kv_idx\n{REAL}",
        f"mask: sliding_window(where(x > 2, x // 1, 3)) & (tanh(x) * 9 // 1 < kv_idx)\n{REAL}",
    ],
)
def test_types_agree(body: str) -> None:
    spec = parse_spec(f"{HEAD}{body}\n", "odd.yaml")
    source = compile_spec(spec).module.source
    (found,) = report(source, operands_of(spec), "sm_80", "bf16", SCHEDULE, "odd")
    assert found.fits
