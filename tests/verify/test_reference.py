"""The judge is judged by torch's own attention, by loops over pairs, and by DESIGN's rules."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnc.verify.reference import dense, visible_pairs
from tests.verify.specs import call_of, spec_of


def test_agrees_with_torch_on_grouped_attention() -> None:
    call = call_of(spec_of(""), 9, 13)
    q, k, v = (call.tensors[name].double() for name in "qkv")
    expected = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(dense(call).out, expected, rtol=1e-12, atol=1e-12)


def test_lse_is_a_natural_logarithm_that_includes_scale_and_score() -> None:
    call = call_of(spec_of("scale: 0.3\nscore: softcap(score, 2) + 1"), 5, 7)
    q, k = (call.tensors[name].double() for name in "qk")
    scores = 2 * torch.tanh(0.3 * (q @ k.repeat_interleave(2, 1).mT) / 2) + 1
    torch.testing.assert_close(dense(call).lse, scores.logsumexp(-1), rtol=1e-12, atol=1e-12)


def test_query_head_reads_kv_head_by_division() -> None:
    spec = spec_of("heads: {q: 6, kv: 2}")
    call = call_of(spec, 3, 4)
    call.tensors["v"][:, 0] = 1.0
    call.tensors["v"][:, 1] = 2.0
    out = dense(call).out
    assert torch.allclose(out[:, :3], torch.tensor(1.0).double())
    assert torch.allclose(out[:, 3:], torch.tensor(2.0).double())


MASKS = {
    "causal": lambda i, j, q_len, kv_len: j <= i + kv_len - q_len,
    "causal(top_left)": lambda i, j, q_len, kv_len: j <= i,
    "sliding_window(4)": lambda i, j, q_len, kv_len: -1 < i + kv_len - q_len - j < 4,
    "window(2, 1)": lambda i, j, q_len, kv_len: -1 <= i + kv_len - q_len - j <= 2,
    "causal | prefix(3)": lambda i, j, q_len, kv_len: j <= i + kv_len - q_len or j < 3,
    "(q_pos - kv_idx) % 3 == 1": lambda i, j, q_len, kv_len: (i + kv_len - q_len - j) % 3 == 1,
    "q_pos // 4 == kv_idx // 4": lambda i, j, q_len, kv_len: (i + kv_len - q_len) // 4 == j // 4,
    "~causal & (kv_idx >= 1)": lambda i, j, q_len, kv_len: j > i + kv_len - q_len and j >= 1,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", [(5, 9), (9, 5), (1, 7), (6, 6)])
def test_mask_means_what_a_loop_over_pairs_says(mask: str, lengths: tuple[int, int]) -> None:
    q_len, kv_len = lengths
    seen = visible_pairs(call_of(spec_of(f'mask: "{mask}"'), q_len, kv_len))
    expected = [[MASKS[mask](i, j, q_len, kv_len) for j in range(kv_len)] for i in range(q_len)]
    assert torch.equal(seen, torch.tensor(expected).expand(seen.shape))


@pytest.mark.parametrize("heads", [8, 12])
def test_alibi_slopes(heads: int) -> None:
    call = call_of(spec_of(f"heads: {heads}\nscore: alibi"), 3, 5)
    plain = call_of(spec_of(f"heads: {heads}"), 3, 5)
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (h + 1) / whole) for h in range(whole)]
    slopes += [2 ** (-4 * (2 * h + 1) / whole) for h in range(heads - whole)]
    q, k = (plain.tensors[name].double() for name in "qk")
    distance = (torch.arange(3)[:, None] + 2 - torch.arange(5)).abs()
    scores = q @ k.mT / 8**0.5 - torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance
    torch.testing.assert_close(dense(call).lse, scores.logsumexp(-1), rtol=1e-12, atol=1e-12)


def test_a_row_that_sees_nothing_is_zero_and_minus_infinity() -> None:
    result = dense(call_of(spec_of("mask: causal"), 7, 3))
    assert not result.out[:, :, :4].any()
    assert (result.lse[:, :, :4] == -torch.inf).all()
    assert result.out[:, :, 4:].isfinite().all() and result.lse[:, :, 4:].isfinite().all()


def test_no_keys_at_all() -> None:
    result = dense(call_of(spec_of(""), 3, 0))
    assert result.out.shape == (2, 4, 3, 8) and not result.out.any()
    assert (result.lse == -torch.inf).all()


def test_scores_of_minus_infinity_are_like_hidden_keys() -> None:
    spec = spec_of("score: score + bias[kv_idx]\ntensors: {bias: {shape: [kv_len]}}")
    bias = torch.tensor([0.0, -torch.inf, 0.0, -torch.inf])
    call = call_of(spec, 3, 4, bias=bias)
    kept = {name: call.tensors[name][:, :, ::2] for name in "kv"}
    fewer = dataclasses.replace(call, tensors=call.tensors | kept | {"bias": torch.zeros(2)})
    torch.testing.assert_close(dense(call).out, dense(fewer).out)
    nothing = dataclasses.replace(call, tensors=call.tensors | {"bias": bias.fill_(-torch.inf)})
    assert not dense(nothing).out.any() and (dense(nothing).lse == -torch.inf).all()


def test_nan_in_hidden_keys_never_matters() -> None:
    call = call_of(spec_of("mask: sliding_window(3)"), 4, 9)
    clean = dense(call)
    for name in "kv":
        call.tensors[name][:, :, :3] = torch.nan
    assert torch.equal(dense(call).out, clean.out) and torch.equal(dense(call).lse, clean.lse)


def test_nan_in_a_value_reaches_exactly_the_rows_that_see_it() -> None:
    call = call_of(spec_of("mask: causal"), 6, 6)
    call.tensors["v"][:, :, 3] = torch.nan
    rows = dense(call).out.isnan().any(-1).any(0).any(0)
    assert rows.tolist() == [False, False, False, True, True, True]


def test_a_closed_head_is_zero_whatever_its_values_hold() -> None:
    call = call_of(spec_of("head_gate: true"), 3, 5, head_gate=torch.tensor([0.0, 0.0, 2.0, -1.0]))
    open_ = call_of(spec_of(""), 3, 5)
    call.tensors["v"][:, 0] = torch.nan
    result = dense(call)
    assert not result.out[:, :2].any()
    torch.testing.assert_close(result.out[:, 2], dense(open_).out[:, 2] * 2)
    torch.testing.assert_close(result.lse, dense(open_).lse)  # ungated


def test_an_index_outside_a_tensor_reads_zero() -> None:
    spec = spec_of("score: score + bias[kv_idx - 2]\ntensors: {bias: {shape: [3]}}")
    with_bias = dense(call_of(spec, 2, 7, bias=torch.full((3,), 5.0)))
    plain = spec_of('score: "score + where((kv_idx >= 2) & (kv_idx < 5), 5, 0)"')
    torch.testing.assert_close(with_bias.lse, dense(call_of(plain, 2, 7)).lse)


def test_layout_bshd_only_swaps_axes() -> None:
    spec = spec_of("mask: causal")
    call = call_of(spec, 5, 8)
    turned = {name: tensor.transpose(1, 2) for name, tensor in call.tensors.items()}
    other = dataclasses.replace(call, spec=dataclasses.replace(spec, layout="bshd"), tensors=turned)
    assert torch.equal(dense(other).out.transpose(1, 2), dense(call).out)
    assert torch.equal(dense(other).lse, dense(call).lse)


def test_large_integers_stay_exact() -> None:
    """A product of positions beyond 2**53 would round in float64."""
    spec = spec_of(
        "params: {base: {type: int, default: 0}}\nmask: (kv_idx + base) * (kv_idx + base) % 3 == 1"
    )
    base = 2**29
    seen = visible_pairs(call_of(spec, 1, 6, base=base))
    assert seen[0, 0, 0].tolist() == [(j + base) ** 2 % 3 == 1 for j in range(6)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_plain_computation_is_as_good_as_its_dtype(dtype: torch.dtype) -> None:
    call = call_of(spec_of("mask: causal"), 40, 60)
    rounded = {name: tensor.to(dtype) for name, tensor in call.tensors.items()}
    call = dataclasses.replace(call, tensors=rounded)
    plain, truth = dense(call, dtype), dense(call)
    assert plain.out.dtype is dtype and plain.lse.dtype is torch.float32
    error = (plain.out.double() - truth.out).abs().max()
    assert 0 < error < 8 * torch.finfo(dtype).eps


def test_huge_scores_do_not_overflow_in_half_precision() -> None:
    call = call_of(spec_of(""), 4, 6)
    big = {name: (tensor * 300).half() for name, tensor in call.tensors.items()}
    assert dense(dataclasses.replace(call, tensors=big), torch.float16).out.isfinite().all()
