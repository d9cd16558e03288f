"""Kind D: grouped heads, head dims, strides, odd and empty lengths."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attnc.errors import SpecErrors
from attnc.plan.demand import Demand
from attnc.plan.schedule import choose_schedule, shared_bytes
from attnc.targets import TARGETS, Target
from attnc.tune.operands import operands_of
from attnc.tune.resources import report
from attnc.verify.reference import Call
from tests.faults.judge import Build, Built, agree, answer, buried, inputs

BY_DEFAULT = [target for target in TARGETS if target.by_default]


def in_padding(call: Call) -> Call:
    """The same call, every operand a view between NaN."""
    return Call(
        call.spec,
        {name: buried(tensor, torch.nan) for name, tensor in call.tensors.items()},
        call.params,
    )


@pytest.mark.parametrize("q_len", [1, 3])
def test_d02_decoding_with_grouped_heads(build: Build, q_len: int) -> None:
    built = build("heads: {q: 8, kv: 2}\nhead_dim: 128\nmask: causal")
    call = inputs(built.spec, q_len, 37)
    as_bshd = {
        name: t.transpose(1, 2).contiguous().transpose(1, 2) for name, t in call.tensors.items()
    }
    got = agree(built, Call(call.spec, as_bshd, {}))
    assert torch.equal(got.out, agree(built, call).out)


@pytest.mark.parametrize("heads_kv", [1, 2])
@pytest.mark.parametrize("group", [1, 2, 3, 5, 6, 7, 8, 12, 16, 24])
def test_d04_groups_of_any_size(build: Build, group: int, heads_kv: int) -> None:
    built = build(f"heads: {{q: {group}, kv: 1}}\nmask: causal")
    agree(built, inputs(built.spec, 17 if group < 4 else 2, 33, heads_kv=heads_kv), (32, 64))


@pytest.mark.parametrize(
    "heads", ["{q: 33, kv: 2}", "{q: 3, kv: 2}", "{q: 8, kv: 0}", "{q: 2, kv: 4}"]
)
def test_d05_heads_that_do_not_divide_are_no_spec(build: Build, heads: str) -> None:
    with pytest.raises(SpecErrors, match="heads"):
        build(f"heads: {heads}")


@pytest.mark.parametrize(("heads_q", "heads_kv"), [(33, 2), (3, 2), (2, 0), (2, 4), (0, 0)])
def test_d05_heads_that_do_not_divide_are_no_call(
    build: Build, heads_q: int, heads_kv: int
) -> None:
    built = build("")
    q, k = torch.zeros(1, heads_q, 4, 16), torch.zeros(1, heads_kv, 4, 16)
    with pytest.raises(ValueError) as caught:
        built.module.attention(q, k, k)
    expected = (
        f"q must have 2 head(s) for each head of k; q has {heads_q} heads and k has {heads_kv}"
    )
    assert str(caught.value) == f"sample: {expected}"


@pytest.mark.parametrize(("heads_q", "heads_kv"), [(96, 6), (10, 10)])
def test_d06_head_counts_that_are_no_power_of_two(
    build: Build, heads_q: int, heads_kv: int
) -> None:
    built = build(f"heads: {{q: {heads_q}, kv: {heads_kv}}}")
    agree(built, inputs(built.spec, 2, 9))


@pytest.mark.parametrize("d", [8, 16, 31, 63, 64, 72, 80, 96, 100, 128, 160, 192, 256])
def test_d07_head_dims_of_any_size(build: Build, d: int) -> None:
    built = build(f"head_dim: {d}\nmask: causal")
    call = inputs(built.spec, 5, 9)
    agree(built, in_padding(call), clean=call)
    assert built.module._default_scale() == pytest.approx(d**-0.5)


@pytest.mark.parametrize("d", [1, 4, 8])
def test_d08_tiny_head_dims_compile(build: Build, d: int) -> None:
    """The smallest product of a matrix unit is 16 deep: the tile must be padded to it."""
    built = build(f"head_dim: {d}", False)
    source = Path(str(built.module.__file__)).read_text()
    schedule = {"block_q": 64, "block_kv": 32, "warps": 4, "stages": 2}
    (made,) = report(source, operands_of(built.spec), "sm_80", "fp16", schedule)
    assert made.fits and made.spills == 0 and made.matrix_instructions


@pytest.mark.parametrize(("qk", "v"), [(192, 128), (24, 40), (576, 512), (16, 1), (1, 16)])
def test_d09_values_of_another_width(build: Build, qk: int, v: int) -> None:
    built = build(f"head_dim: {{qk: {qk}, v: {v}}}\nmask: causal")
    assert agree(built, inputs(built.spec, 5, 9)).out.shape == (1, 2, 5, v)


@pytest.mark.parametrize("target", BY_DEFAULT, ids=lambda target: target.name)
@pytest.mark.parametrize("dims", [(512, 512), (576, 512)], ids=str)
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_d10_a_schedule_fits_every_target(
    target: Target, dims: tuple[int, int], element_bytes: int
) -> None:
    demand = Demand(*dims, element_bytes, 0, element_bytes == 4 and target.vendor == "nvidia")
    schedule = choose_schedule(target, demand)
    assert shared_bytes(target, demand, schedule) <= target.shared_bytes


def test_d10_wide_heads_compute(build: Build) -> None:
    built = build("head_dim: 512\nmask: causal")
    agree(built, inputs(built.spec, 3, 20, dtype=torch.bfloat16))


def strided(built: Built, storage: str) -> Call:
    call = inputs(built.spec, 9, 20, batch=2)
    makers = {
        "k and v slices": lambda t: torch.cat([t, torch.full_like(t, torch.nan)], 2)[
            :, :, : t.shape[2]
        ],
        "every second": lambda t: torch.stack([t, torch.full_like(t, torch.nan)], -1).flatten(3)[
            ..., ::2
        ],
        "transposed": lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
        "heads inside": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
        "one batch entry": lambda t: t[:1].expand(2, -1, -1, -1),
        "one value": lambda t: t[:1, :1, :1, :1].expand(t.shape),
    }
    return Call(call.spec, {name: makers[storage](t) for name, t in call.tensors.items()}, {})


@pytest.mark.parametrize(
    "storage",
    [
        "k and v slices",
        "every second",
        "transposed",
        "heads inside",
        "one batch entry",
        "one value",
    ],
)
def test_d12_d13_operands_of_any_strides(build: Build, storage: str) -> None:
    built = build("mask: causal")
    call = strided(built, storage)
    packed = Call(call.spec, {name: t.contiguous() for name, t in call.tensors.items()}, {})
    assert torch.equal(agree(built, call).out, agree(built, packed).out)


def test_d15_one_tensor_for_all_three(build: Build) -> None:
    built = build("heads: 2")
    x = torch.randn(1, 2, 20, 16, generator=torch.Generator().manual_seed(2))
    agree(built, Call(built.spec, {"q": x, "k": x, "v": x}, {}))


@pytest.mark.parametrize(
    ("q_len", "kv_len"),
    [
        (1, 1),
        (15, 15),
        (16, 16),
        (17, 17),
        (31, 31),
        (33, 33),
        (63, 63),
        (65, 65),
        (96, 96),
        (1, 20),
        (1, 129),
    ],
)
def test_d16_lengths_off_the_tile(build: Build, q_len: int, kv_len: int) -> None:
    built = build("mask: causal")
    call = inputs(built.spec, q_len, kv_len)
    agree(built, in_padding(call), (32, 64), clean=call)


@pytest.mark.parametrize(
    ("batch", "q_len", "kv_len"), [(0, 4, 4), (2, 0, 64), (2, 5, 0), (2, 0, 0), (0, 0, 0)]
)
@pytest.mark.parametrize("interpret", [True, False], ids=["kernel", "dense fallback"])
def test_d17_nothing_at_all(
    build: Build, batch: int, q_len: int, kv_len: int, interpret: bool
) -> None:
    built = build("mask: causal", interpret)
    got = answer(built, inputs(built.spec, q_len, kv_len, batch=batch))
    assert got.out.shape == (batch, 2, q_len, 16) and got.lse.shape == (batch, 2, q_len)
    assert (got.out == 0).all() and (got.lse == -torch.inf).all()


def test_d17_an_empty_grid_is_not_launched(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build("mask: causal")
    monkeypatch.setattr(built.module, "forward", None)
    assert answer(built, inputs(built.spec, 0, 5)).out.shape == (1, 2, 0, 16)


def test_d18_a_neighbourhood_on_a_grid(build: Build) -> None:
    """3 x 3 around each of 4 x 5 tokens; at a border the window moves inward."""
    built = build(
        "mask: (abs(kv_idx // 5 - min(max(q_idx // 5, 1), 2)) <= 1)"
        " & (abs(kv_idx % 5 - min(max(q_idx % 5, 1), 3)) <= 1)\nhead_dim: {qk: 16, v: 32}"
    )
    call = inputs(built.spec, 20, 20)
    tensors = dict(call.tensors) | {
        "q": torch.zeros(1, 2, 20, 16),
        "v": torch.eye(20, 32)[None, None],
    }
    weights = agree(built, Call(call.spec, tensors, {})).out[0, 0, :, :20]
    assert ((weights > 0).sum(-1) == 9).all()


def test_d19_batch_strides_past_two_to_the_31(build: Build) -> None:
    built = build("mask: causal")
    stride = 2**30  # elements: 3 * stride passes 2**32; memory that nobody touches costs nothing
    call = inputs(built.spec, 3, 5, batch=4, dtype=torch.float16)
    far = {}
    for name, tensor in call.tensors.items():
        buffer = torch.empty(3 * stride + tensor[0].numel(), dtype=torch.float16)
        far[name] = buffer.as_strided(tensor.shape, (stride, *tensor.stride()[1:]))
        far[name].copy_(tensor)
    assert torch.equal(agree(built, Call(call.spec, far, {})).out, agree(built, call).out)
