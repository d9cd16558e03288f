"""Formulas that once came out wrong: fractions, a tensor at two places, large and lone numbers."""

from __future__ import annotations

import pytest
import torch

from tests.faults.judge import Build, agree, inputs


@pytest.mark.parametrize(
    "mask",
    [
        "kv_idx / 49 >= 1",
        "kv_idx * 0.1 + 0.2 >= q_pos * 0.3",
        "abs(kv_idx / 3 - q_pos / 3) <= 2 / 3",
        "(q_pos - kv_idx) // 2.5 == 2",
        "(q_pos - kv_idx) / 2.5 % 2 < 1",
        "kv_idx / 49 // 1 == q_pos // 49",
        "kv_idx % 0.7 == 0",
        "kv_idx * 0.333333333 < 3",
        "kv_idx / 2 * q_pos < 99.5",
    ],
)
def test_fractions_of_positions_are_exact(build: Build, mask: str) -> None:
    built = build(f"mask: {mask}")
    agree(built, inputs(built.spec, 60, 100))


@pytest.mark.parametrize("score", ["(kv_idx - q_pos) // -2.5", "kv_idx / 49 // 1", "kv_idx % 0.7"])
def test_floors_of_fractions_are_exact(build: Build, score: str) -> None:
    built = build(f"score: score + {score}")
    agree(built, inputs(built.spec, 20, 100))


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ("kv_len", "mask: t[b] * t[h] > kv_idx"),
        ("kv_len", "mask: t[h] <= kv_idx\nscore: score + t[b] - t[0]"),
        ("9, 9", "score: score + t[h, kv_idx] - t[kv_idx, h]"),
        ("9, 9", "score: score + t[h, q_idx] * t[h + 1, q_idx]"),
    ],
)
def test_one_tensor_is_read_at_several_places(build: Build, shape: str, body: str) -> None:
    built = build(f"tensors: {{t: {{shape: [{shape}], dtype: int32}}}}\n{body}")
    draw = torch.Generator().manual_seed(1)
    sizes = [37 if size == "kv_len" else 9 for size in shape.split(", ")]
    t = torch.randint(1, 7, sizes, generator=draw, dtype=torch.int32)
    agree(built, inputs(built.spec, 19, 37, batch=2, t=t))


@pytest.mark.parametrize("body", ["score: sigmoid(score) * sqrt(d) ** 3", "mask: kv_idx < d"])
def test_the_head_dim_is_a_number_everywhere(build: Build, body: str) -> None:
    built = build(body)
    agree(built, inputs(built.spec, 19, 37))


@pytest.mark.parametrize(
    "score",
    [
        "score - 1e30",
        "score - 3.4e38",
        "1e38",
        "softcap(score, 1e30)",
        "log(kv_idx + 1)",
        "kv_idx ** -2",
    ],
)
def test_large_numbers_and_scores_without_the_product(build: Build, score: str) -> None:
    built = build(f"score: {score}\nmask: kv_idx > 0")
    call = inputs(built.spec, 19, 37)
    got = agree(built, call)
    tensors = [call.tensors[name] for name in "qkv"]
    torch.testing.assert_close(built.module.reference(*tensors), got.out, rtol=1e-4, atol=1e-4)
