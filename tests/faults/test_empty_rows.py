"""Kind A: rows without visible keys, log-sum-exp, infinities."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from attnc.verify.reference import Call
from tests.faults.judge import SMALL, Answer, Build, agree, answer, inputs, same_bits

SEEN = "tensors: {shown: {shape: [q_len, kv_len], dtype: bool}}\nmask: shown[q_idx, kv_idx]"
BIAS = "tensors: {bias: {shape: [q_len, kv_len]}}\nscore: score + bias[q_idx, kv_idx]"


def assert_empty(got: Answer, rows: Tensor) -> None:
    """out 0 and lse -inf, exactly, in these rows of every head."""
    assert (got.out[:, :, rows] == 0).all()
    assert (got.lse[:, :, rows] == -torch.inf).all()


def merge(first: Answer, second: Answer) -> Answer:
    """What a user of partial results writes, in the float64 of a reference."""
    lse = torch.logaddexp(first.lse.double(), second.lse.double())
    anchor = torch.where(lse == -torch.inf, 0.0, lse)
    parts = [
        torch.exp(p.lse.double() - anchor)[..., None] * p.out.double() for p in (first, second)
    ]
    return Answer(parts[0] + parts[1], lse)


def part(call: Call, start: int, stop: int) -> Call:
    """The same queries against the keys from start to stop."""
    tensors = dict(call.tensors)
    tensors |= {name: tensors[name][:, :, start:stop] for name in "kv"}
    return Call(call.spec, tensors, call.params)


def test_a01_a_mask_hides_whole_rows(build: Build) -> None:
    built = build(SEEN)
    seen = torch.rand(48, 48, generator=torch.Generator().manual_seed(1)) < 0.5
    rows = torch.tensor([0, 7, 47])
    seen[rows] = False
    assert_empty(agree(built, inputs(built.spec, 48, 48, shown=seen)), rows)


@pytest.mark.parametrize("rows", [[3], list(range(20))], ids=["one row", "every row"])
def test_a01_a_bias_of_the_least_float_is_not_a_mask(build: Build, rows: list[int]) -> None:
    built = build(BIAS)
    bias = torch.zeros(20, 37)
    bias[rows] = torch.finfo(torch.float32).min
    call = inputs(built.spec, 20, 37, bias=bias)
    got = agree(built, call)
    mean = call.tensors["v"].mean(2).repeat_interleave(2, 1)  # the scores vanish beside the bias
    torch.testing.assert_close(got.out[:, :, rows], mean[:, :, None].expand(-1, -1, len(rows), -1))
    assert got.lse.isfinite().all()


def test_a01_a_bias_of_minus_infinity_is_a_mask(build: Build) -> None:
    built = build(BIAS)
    bias = torch.zeros(20, 37)
    bias[5] = -torch.inf
    bias[6, 3:] = -torch.inf
    assert_empty(agree(built, inputs(built.spec, 20, 37, bias=bias)), torch.tensor([5]))


@pytest.mark.parametrize("mask", ["true", "causal"])
def test_a03_no_keys_at_all(build: Build, mask: str) -> None:
    built = build(f"mask: {mask}")
    assert_empty(agree(built, inputs(built.spec, 3, 0)), torch.arange(3))


def test_a04_more_queries_than_keys(build: Build) -> None:
    built = build("mask: causal")
    got = agree(built, inputs(built.spec, 24, 10))
    assert_empty(got, torch.arange(14))
    assert got.lse[:, :, 14:].isfinite().all()


def test_a07_a_chunk_in_which_one_request_has_no_keys(build: Build) -> None:
    built = build("tensors: {lengths: {shape: [batch], dtype: int32}}\nmask: kv_idx < lengths[b]")
    first, second = torch.tensor([16, 0, 5]), torch.tensor([16, 16, 16])
    call = inputs(built.spec, 4, 32, batch=3)
    chunks = [
        answer(built, Call(call.spec, {**part(call, *span).tensors, "lengths": lengths.int()}, {}))
        for span, lengths in (((0, 16), first), ((16, 32), second))
    ]
    assert (chunks[0].out[1] == 0).all() and (chunks[0].lse[1] == -torch.inf).all()
    merged = merge(*chunks)
    for entry, length in enumerate(first.tolist()):
        keys = [*range(length), *range(16, 32)]
        tensors = {name: call.tensors[name][entry, None] for name in "qkv"}
        tensors |= {name: tensors[name][:, :, keys] for name in "kv"}
        tensors["lengths"] = torch.tensor([len(keys)]).int()
        whole = agree(built, Call(call.spec, tensors, {}))
        torch.testing.assert_close(merged.out[entry].float(), whole.out[0])
        torch.testing.assert_close(merged.lse[entry].float(), whole.lse[0])


@pytest.mark.parametrize("tiles", [(32, 16), (16, 32), (128, 16)], ids=str)
def test_a08_the_first_tile_may_be_hidden_from_a_row_that_sees_others(
    build: Build, tiles: tuple[int, int]
) -> None:
    built = build("mask: sliding_window(9)")
    got = agree(built, inputs(built.spec, 96, 96), tiles)
    assert got.lse.isfinite().all()


def test_a11_one_query_and_one_key(build: Build) -> None:
    built = build("mask: causal")
    call = inputs(built.spec, 1, 1, dtype=torch.float16)
    tensors = {name: 3 * tensor for name, tensor in call.tensors.items()}
    got = agree(built, Call(call.spec, tensors, {}))
    assert same_bits(got.out, tensors["v"].repeat_interleave(2, 1))


@pytest.mark.parametrize("interpret", [True, False], ids=["kernel", "dense fallback"])
def test_a13_lse_is_a_natural_logarithm_on_every_path(build: Build, interpret: bool) -> None:
    built = build("", interpret)
    call = inputs(built.spec, 20, 32)
    q, k, v = (call.tensors[name] for name in "qkv")
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT / 4
    _, aux = built.module.attention(q, k, v, return_aux=True)
    torch.testing.assert_close(aux.lse.double(), torch.logsumexp(scores, -1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("score", ["score", "softcap(score, 2)", "score / 3 - 1"])
def test_a14_partial_results_of_two_kernels_merge(build: Build, score: str) -> None:
    """The suffix runs through another kernel and other tiles than the prefix."""
    prefix, suffix = (
        build(f"score: {score}"),
        build(f"score: {score}\nmask: kv_idx >= 0\nscale: 0.25"),
    )
    call = inputs(prefix.spec, 8, 96)
    whole = agree(prefix, call)
    parts = [answer(prefix, part(call, 0, 64)), answer(suffix, part(call, 64, 96), (32, 32))]
    merged = merge(*parts)
    torch.testing.assert_close(merged.out.float(), whole.out)
    torch.testing.assert_close(merged.lse.float(), whole.lse)


def test_a06_empty_partial_results_have_no_weight(build: Build) -> None:
    """merge() is the test's own; what is judged is that the kernel's (0, -inf) is fit for it."""
    built = build("mask: causal")
    some, none = (answer(built, inputs(built.spec, 4, kv_len)) for kv_len in (9, 0))
    for first, second in itertools.permutations([some, none]):
        merged = merge(first, second)
        assert same_bits(merged.lse, some.lse.double()) or torch.equal(merged.lse.float(), some.lse)
        torch.testing.assert_close(merged.out.float(), some.out, rtol=1e-6, atol=1e-7)
    assert not merge(none, none).out.isnan().any()


def test_a16_lse_of_every_query_head_with_and_without_grad_mode(build: Build) -> None:
    built = build("heads: {q: 8, kv: 2}")
    call = inputs(built.spec, 17, 17, batch=2)
    with_grad = agree(built, call)
    with torch.no_grad():
        without = agree(built, call)
    assert with_grad.lse.shape == (2, 8, 17) and with_grad.lse.dtype == torch.float32
    assert same_bits(with_grad.lse, without.lse)


def test_a17_a_gradient_through_lse_is_refused_and_not_dropped(build: Build) -> None:
    built = build("")
    q, k, v = (inputs(built.spec, 9, 13).tensors[name] for name in "qkv")
    _, aux = built.module.attention(q.requires_grad_(), k, v, return_aux=True, schedule=None)
    with pytest.raises(NotImplementedError, match=r"^sample: "):
        (aux.lse**2).sum().backward()
    assert q.grad is None


def test_a_scores_of_any_finite_size_are_right(build: Build) -> None:
    """Contract 3 of the list: no finite number plays minus infinity."""
    built = build(BIAS)
    for size in (-1e30, 1e30, -3e38, 3.3e38):
        bias = torch.full((5, 20), size)
        bias[:, 1::2] /= 2
        agree(built, inputs(built.spec, 5, 20, bias=bias), SMALL)
