"""Kind C: scale, softcap, bias, ALiBi, learned operands; and G02, the range of half precision."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from attnc.errors import SpecErrors
from attnc.verify.reference import Call
from tests.faults.judge import Build, Built, agree, answer, inputs

BIAS = "tensors: {bias: {shape: [q_len, kv_len]}}\n"


def scores_of(built: Built, raw: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """What the kernel makes of raw scores, one query each against one key: its lse is the score."""
    d = built.spec.head_dim_qk
    q = torch.zeros(1, 2, len(raw), d)
    q[..., 0] = raw.sign() * raw.abs().sqrt()
    k = torch.zeros(1, 1, 1, d)
    k[..., 0] = 1.0
    q[..., 0] = raw
    tensors = {"q": q.to(dtype), "k": k.to(dtype), "v": torch.ones(1, 1, 1, d, dtype=dtype)}
    return agree(built, Call(built.spec, tensors, {}, 1.0)).lse[0, 0]


@pytest.mark.parametrize("cap", [50.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_c02_softcap_saturates(build: Build, cap: float, dtype: torch.dtype) -> None:
    raw = torch.tensor([50.0, 4400.0, 1e4, -1e4, 1e30, -1e30])
    got = scores_of(build(f"score: softcap(score, {cap})"), raw, dtype).double()
    expected = cap * torch.tanh(raw.to(dtype).double() / cap)
    torch.testing.assert_close(
        got, expected, rtol=1e-6 if dtype is torch.float32 else 1e-3, atol=0.0
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_c03_softcap_under_a_mask_with_a_tail(build: Build, dtype: torch.dtype) -> None:
    built = build("score: softcap(score, 15)\nmask: causal & (kv_idx % 5 != 0)")
    call = inputs(built.spec, 40, 57, dtype=dtype, scale=4.0)
    assert agree(built, call).lse.isfinite().all()


def features() -> dict[str, tuple[str, dict, dict]]:
    zero, one = torch.zeros(9, 40), torch.zeros(9, 40)
    one[:, 3] = 1.0
    return {
        "softcap": ("params: {c: {type: float}}\nscore: c * tanh(score / c)\ncheck: [{c: 5}]",
            {"c": 5.0}, {"c": 50.0}),
        "window": ("params: {w: {type: int, default: 4}}\nmask: sliding_window(w)", {"w": 4},
            {"w": 2**29}),
        "bias": (f"{BIAS}score: score + bias[q_idx, kv_idx]", {"bias": zero}, {"bias": one}),
        "gate": ("head_gate: true", {"head_gate": torch.tensor([1.0, 1.0])},
            {"head_gate": torch.tensor([1.0, 0.0])}),
        "scale": ("", {"scale": 1.0}, {"scale": 0.1}),
    }  # fmt: skip


@pytest.mark.parametrize("feature", ["softcap", "window", "bias", "gate", "scale"])
def test_c04_every_feature_matters(build: Build, feature: str) -> None:
    body, first, second = features()[feature]
    built = build(body)
    results = []
    for rest in (first, second):
        call = inputs(built.spec, 9, 40, **rest)
        larger = dict(call.tensors) | {"q": 4 * call.tensors["q"]}
        results.append(agree(built, Call(call.spec, larger, call.params, call.scale)).out)
    assert (results[0] - results[1]).abs().max() > 1e-3


@pytest.mark.parametrize("feature", ["rope: {base: 10000}", "lengths: ragged"])
def test_c10_what_is_not_built_is_refused_by_name(build: Build, feature: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        build(feature)
    name = feature.split(":")[0]
    first = str(caught.value).splitlines()[0]
    assert f"spec/not-built-yet {name}" in first and first.endswith("is not built yet")


def test_c05_softcap_is_an_exact_tanh(build: Build) -> None:
    raw = torch.linspace(-100, 100, 1001)
    got = scores_of(build("score: softcap(score, 30)"), raw).double()
    expected = 30 * torch.tanh(raw.double() / 30)
    nonzero = raw != 0
    assert ((got - expected)[nonzero] / expected[nonzero]).abs().max() < 1e-6


ALIBI = "score - slopes[{index}] * abs(q_pos - kv_idx)"


@pytest.mark.parametrize(
    ("shape", "index", "slopes"),
    [
        ("[heads]", "h", torch.tensor([0.5, 0.06])),
        ("[batch, heads]", "b, h", torch.tensor([[0.5, 0.06], [0.3, 0.01]])),
    ],
    ids=["per head", "per batch and head"],
)
def test_c06_alibi_is_the_same_in_decode_and_in_prefill(
    build: Build, shape: str, index: str, slopes: Tensor
) -> None:
    built = build(
        f"tensors: {{slopes: {{shape: {shape}}}}}\nscore: {ALIBI.format(index=index)}\nmask: causal"
    )
    call = inputs(built.spec, 33, 33, batch=2, slopes=slopes)
    whole = agree(built, call)
    last = dict(call.tensors) | {"q": call.tensors["q"][:, :, 32:]}
    step = agree(built, Call(call.spec, last, {}))
    torch.testing.assert_close(step.out[:, :, 0], whole.out[:, :, 32], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mask", ["causal", "true"])
def test_c06_alibi_by_hand(build: Build, mask: str) -> None:
    """The distance is symmetric, and bottom-right where lengths differ."""
    built = build(f"score: alibi\nmask: {mask}")
    call = inputs(built.spec, 5, 9)
    q, k = call.tensors["q"].double(), call.tensors["k"].double()
    i, j = torch.arange(5)[:, None] + 4, torch.arange(9)
    scores = (q @ k.mT) / 4 - torch.tensor([2.0**-4, 2.0**-8])[:, None, None] * (i - j).abs()
    if mask == "causal":
        scores = scores.masked_fill(j > i, -torch.inf)
    got = agree(built, call).lse.double()
    torch.testing.assert_close(got, torch.logsumexp(scores, -1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("score", ["score - 0.5 * (q_pos - kv_idx)", "score + 0.5 * kv_idx"])
def test_c07_a_shift_that_softmax_forgives_shows_in_lse(build: Build, score: str) -> None:
    built = build(f"score: {score}\nmask: causal")
    call = inputs(built.spec, 20, 20)
    q, k = call.tensors["q"].double(), call.tensors["k"].double()
    i, j = torch.arange(20)[:, None], torch.arange(20)
    term = 0.5 * j - (0.5 * i if "q_pos" in score else 0)
    scores = (q @ k.mT / 4 + term).masked_fill(j > i, -torch.inf)
    got = agree(built, call).lse.double()
    torch.testing.assert_close(got, torch.logsumexp(scores, -1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bidirectional", ["true", "false"])
def test_c08_t5_buckets_come_from_absolute_positions(build: Build, bidirectional: str) -> None:
    built = build(
        "heads: 1\ntensors: {table: {shape: [heads, 32]}}\n"
        f"score: t5_bias(score, table, max_distance=128, bidirectional={bidirectional})"
    )
    table = torch.randn(1, 32, generator=torch.Generator().manual_seed(5))
    call = inputs(built.spec, 41, 41, table=table)
    whole = agree(built, call)
    last = dict(call.tensors) | {"q": call.tensors["q"][:, :, 40:]}
    step = agree(built, Call(call.spec, last, {}))
    torch.testing.assert_close(step.out[:, :, 0], whole.out[:, :, 40], rtol=1e-6, atol=1e-6)
    q = torch.zeros(1, 1, 1, 16)
    weights = [
        weight_of(built, inputs(built.spec, 1, 501, table=table, q=q), key) for key in (0, 372, 500)
    ]
    ratio = (table[0, 31 if bidirectional == "false" else 15] - table[0, 0]).exp()
    assert weights[0] == weights[1]  # 500 and 128 keys away: the last bucket is shared
    torch.testing.assert_close(weights[0] / weights[2], ratio, rtol=1e-5, atol=0.0)


def weight_of(built: Built, call: Call, key: int) -> Tensor:
    """The weight of one key, read through a v that is 1 there and 0 elsewhere."""
    v = torch.zeros(1, 1, call.tensors["k"].shape[2], 16)
    v[:, :, key] = 1.0
    return agree(built, Call(call.spec, dict(call.tensors) | {"v": v}, {}), (16, 64)).out[
        0, 0, 0, 0
    ]


def test_c10_a_learned_scalar_may_be_a_tensor_without_dimensions(build: Build) -> None:
    built = build("params: {t: {type: float}}\nscore: score * t\ncheck: [{t: 1}]")
    call = inputs(built.spec, 9, 20, t=0.75)
    as_tensor = Call(call.spec, call.tensors, {"t": torch.tensor(0.75)})  # type: ignore[dict-item]
    assert torch.equal(answer(built, as_tensor).out, agree(built, call).out)


@pytest.mark.parametrize("score", ["bias[q_idx, kv_idx]", "0 * score + bias[q_idx, kv_idx]"])
def test_c10_a_score_that_ignores_the_products(build: Build, score: str) -> None:
    built = build(f"{BIAS}score: {score}")
    bias = torch.randn(9, 20, generator=torch.Generator().manual_seed(5))
    got = agree(built, inputs(built.spec, 9, 20, bias=bias))
    torch.testing.assert_close(got.lse[0, 1], torch.logsumexp(bias, -1))


def test_c10_a_learned_table_of_distances(build: Build) -> None:
    built = build("heads: 1\ntensors: {w: {shape: [heads, 9]}}\nscore: relative_bias(score, w)")
    w = torch.randn(1, 9, generator=torch.Generator().manual_seed(5))
    agree(built, inputs(built.spec, 12, 20, w=w))


def test_c11_a_bias_of_odd_sizes_in_a_padded_buffer(build: Build) -> None:
    built = build(
        "tensors: {bias: {shape: [batch, heads, q_len, kv_len]}}\n"
        "score: score + bias[b, h, q_idx, kv_idx]"
    )
    bias = torch.randn(1, 2, 43, 77, generator=torch.Generator().manual_seed(5))
    padded = torch.full((1, 2, 48, 83), torch.nan)
    padded[:, :, 2:45, 3:80] = bias
    tight = agree(built, inputs(built.spec, 43, 77, bias=bias), (32, 32))
    sliced = agree(built, inputs(built.spec, 43, 77, bias=padded[:, :, 2:45, 3:80]), (32, 32))
    across = bias.transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(tight.out, sliced.out)
    assert torch.equal(
        tight.out, agree(built, inputs(built.spec, 43, 77, bias=across), (32, 32)).out
    )


@pytest.mark.parametrize("length", [33, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_c12_one_row_past_the_tile(build: Build, length: int, dtype: torch.dtype) -> None:
    built = build("score: score + 0.1 * (q_pos - kv_idx)\nmask: causal")
    assert (
        agree(built, inputs(built.spec, length, length, dtype=dtype), (32, 32)).lse.isfinite().all()
    )


@pytest.mark.parametrize(
    ("dtype", "size", "score"),
    [(torch.float16, 60.0, "score"), (torch.bfloat16, 133120.0, "score"),
        (torch.float16, 1.0, "score + 30000")],
    ids=["fp16 product", "bf16 constant", "large bias"],
)  # fmt: skip
def test_g02_scores_live_in_float32(
    build: Build, dtype: torch.dtype, size: float, score: str
) -> None:
    built = build(f"head_dim: {{qk: 128, v: 16}}\nscore: {score}")
    call = inputs(built.spec, 4, 20, dtype=dtype)
    full = {name: torch.full_like(call.tensors[name], size) for name in "qk"}
    got = agree(built, Call(call.spec, dict(call.tensors) | full, {}))
    mean = call.tensors["v"].float().mean(2, keepdim=True).expand(-1, 2, 4, -1)
    torch.testing.assert_close(got.out.float(), mean, rtol=2e-2, atol=2e-2)
    expected = size**2 * math.sqrt(128) + (30000 if "30000" in score else 0) + math.log(20)
    torch.testing.assert_close(got.lse, torch.full_like(got.lse, expected), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("value", [-3.4e38, 3.4e38])
@pytest.mark.parametrize("score", ["where(kv_idx < 3, score, c)", "score + c", "score + c * h"])
def test_g02_a_float_param_may_be_the_largest_float(build: Build, score: str, value: float) -> None:
    """A finite stand-in for -inf: times log2 e it would overflow, and the row would be NaN."""
    params = f"params: {{c: {{type: float, default: {value}}}}}"
    built = build(f"{params}\nscore: {score}\nmask: kv_idx >= 3")
    agree(built, inputs(built.spec, 4, 20))
