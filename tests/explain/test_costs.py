from __future__ import annotations

import pytest

from attnc.explain.costs import (
    attention_matrix_table,
    caches_of,
    costs_of,
    count,
    flops,
    flops_per_pair,
    size,
)
from attnc.explain.situation import situation_of
from attnc.explain.tiles import count_tiles
from tests.explain.specs import lowered, spec


def test_the_well_known_table() -> None:
    assert attention_matrix_table() == [
        ("2K", "8 MB"),
        ("8K", "128 MB"),
        ("32K", "2 GB"),
        ("128K", "32 GB"),
        ("1M", "2 TB"),
    ]


def test_costs_without_a_mask_by_hand() -> None:
    made, program = lowered("dtype: fp16\noutputs: [lse]\n")
    at = situation_of(made, 2, 256, 512)
    found = costs_of(made, at, count_tiles(program.kernels[0], at, 64, 64))
    assert found.flops == found.dense_flops == 2 * 4 * 256 * 512 * (2 * 64 + 2 * 64)
    q_or_out, k_or_v = 2 * 4 * 256 * 64 * 2, 2 * 2 * 512 * 64 * 2
    assert found.output_bytes == q_or_out + 2 * 4 * 256 * 4
    assert found.bytes == q_or_out + 2 * k_or_v + found.output_bytes
    assert found.attention_matrix_bytes == 2 * 4 * 256 * 512 * 2
    assert found.intensity == found.flops / found.bytes


@pytest.mark.parametrize("d", [64, 72, 200])
def test_products_of_each_kernel_by_hand(d: int) -> None:
    """q k and p v; for dq: q k, do v, ds k; for dk and dv: q k, do v, p do, ds q."""
    _, program = lowered(f"mask: causal\nhead_dim: {{qk: {d}, v: 96}}\n")
    assert {kernel.name: flops_per_pair(kernel) for kernel in program.kernels} == {
        "forward": 2 * (d + 96),
        "backward_rows": 0,
        "backward_q": 2 * (2 * d + 96),
        "backward_kv": 2 * (2 * d + 2 * 96),
    }


def test_declared_tensors_are_read_once() -> None:
    bias = "score: score + bias[h, q_idx, kv_idx]\n"
    bias += "tensors:\n  bias: {shape: [heads, q_len, kv_len], dtype: bf16}\n"
    made, program = lowered(bias)
    plain, plain_program = lowered()
    at, plain_at = (situation_of(one, 1, 32, 48) for one in (made, plain))
    with_bias = costs_of(made, at, count_tiles(program.kernels[0], at, 16, 16))
    without = costs_of(plain, plain_at, count_tiles(plain_program.kernels[0], plain_at, 16, 16))
    assert with_bias.bytes - without.bytes == 4 * 32 * 48 * 2


def test_cache_of_grouped_heads_next_to_mha_and_mqa() -> None:
    made = spec("dtype: bf16\n")
    caches = {c.grouping: c for c in caches_of(made, situation_of(made, 3, 1, 1000))}
    assert {name: c.kv_heads for name, c in caches.items()} == {"GQA 2:1": 2, "MHA": 4, "MQA": 1}
    assert caches["GQA 2:1"].bytes_per_token == 2 * (64 + 64) * 2
    assert caches["GQA 2:1"].bytes_total == 2 * (64 + 64) * 2 * 3 * 1000


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KB"), (1536, "1.5 KB"), (5 * 2**40, "5 TB")],
)
def test_sizes(bytes_: int, text: str) -> None:
    assert size(bytes_) == text


def test_counts_and_flops() -> None:
    assert [count(n) for n in (1, 1000, 2048, 3 * 2**20)] == ["1", "1000", "2K", "3M"]
    assert [flops(n) for n in (999, 2000, 1.5e12)] == ["999 FLOP", "2 kFLOP", "1.5 TFLOP"]
