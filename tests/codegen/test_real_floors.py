"""The floor of a real is a whole number of 64 bits, however far out."""

from __future__ import annotations

import pytest

from tests.faults.judge import Build, agree, inputs

MASKS = (
    "x * q_idx // 1 - x * kv_idx // 1 < 1000",
    "where(h > 0, x * q_idx // 1, 3) >= kv_idx * x // 1",
    "2 * (x * q_idx // 1) >= kv_idx + x * q_idx // 1",
    "abs(x * q_idx // 1) < 3000000000",
    "max(x * q_idx // 1, 5) + 2147483647 > kv_idx",
    "(x * q_idx * 1000 // 1) // 1000 == (x * kv_idx * 1000 // 1) // 1000",
    "sliding_window(x * x // 1)",
    "prefix(x * x // 1 + 5) & (kv_idx >= x // 1 - 5)",
    "x ** 5 // 1 + kv_idx > kv_idx",
    "tanh(x) * 9 // 1 <= kv_idx",
)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("x", [1.0, 2.0**29, 2.0**31, 2.0**40, -(2.0**33)])
def test_masks_hold_beyond_32_bits(build: Build, mask: str, x: float) -> None:
    built = build(f"params: {{x: {{type: float, default: 1}}}}\nmask: {mask}")
    call = inputs(built.spec, 21, 35, x=x)
    got = agree(built, call)
    found = built.module.reference(**call.tensors, **call.params)
    assert (found - got.out).abs().max() < 1e-5
