"""64 bits exactly where 32 do not hold a value."""

from __future__ import annotations

import pytest

from attnc.driver import lower_spec
from attnc.ir.functions import Wide
from attnc.ir.nodes import Formula, Loop
from attnc.spec import parse_spec

HEAD = "name: sample\nheads: 2\nhead_dim: 16\n"


def masked_formula(mask: str) -> Formula:
    kernel, *_ = lower_spec(parse_spec(f"{HEAD}mask: {mask}\n")).kernels
    lets = [
        let
        for stmt in kernel.body
        if isinstance(stmt, Loop)
        for let in stmt.body
        if let.name == "visible"
    ]
    assert isinstance(lets[-1].value, Formula)
    return lets[-1].value


@pytest.mark.parametrize(
    ("mask", "wide"),
    [
        ("causal", False),
        ("sliding_window(4096)", False),
        ("causal & ((q_pos - kv_idx) % 5 == 0)", False),
        ("3 * kv_idx <= q_pos", True),
        ("(q_idx * 100003 - kv_idx * 100003) >= 0", True),
        ("(q_pos * kv_idx) % 3 == 0", True),
    ],
)
def test_only_what_may_pass_two_to_the_31_is_wide(mask: str, wide: bool) -> None:
    assert masked_formula(mask).expr.has(Wide) is wide
