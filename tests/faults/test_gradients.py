"""Faults of kinds A to I as they show in gradients: the cases of the list, backward."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attnc.verify.reference import Call
from tests.faults.judge import (
    SMALL,
    Build,
    Built,
    agree_gradients,
    buried,
    cotangents_for,
    gradients,
    inputs,
)

SEEN = "tensors: {shown: {shape: [q_len, kv_len], dtype: bool}}\nmask: shown[q_idx, kv_idx]"
QKV = ("q", "k", "v")


@pytest.fixture
def trained(build: Build) -> Callable[[str], Built]:
    """The same small specs, with their backward."""
    return lambda body="": build(f"{body}\nbackward: true")


def test_a01_rows_without_a_key_give_and_get_nothing(trained: Build) -> None:
    built = trained(SEEN)
    seen = torch.rand(48, 48, generator=torch.Generator().manual_seed(1)) < 0.5
    rows = torch.tensor([0, 7, 47])
    seen[rows] = False
    call = inputs(built.spec, 48, 48, shown=seen)
    found = agree_gradients(built, call)
    assert not found["q"][:, :, rows].any()
    given = cotangents_for(call)
    given["out"][:, :, rows] = torch.nan
    for name, gradient in gradients(built, call, given, QKV).items():
        assert torch.equal(gradient, found[name]), name


def test_a01_a_bias_of_the_least_float_is_not_a_mask(trained: Build) -> None:
    built = trained("tensors: {bias: {shape: [q_len, kv_len]}}\nscore: score + bias[q_idx, kv_idx]")
    bias = torch.zeros(20, 37)
    bias[3] = torch.finfo(torch.float32).min
    call = inputs(built.spec, 20, 37, bias=bias)
    found = agree_gradients(built, call, cotangents={"out": cotangents_for(call)["out"]})
    assert all(gradient.isfinite().all() for gradient in found.values())


def test_a11_one_query_and_one_key(trained: Build) -> None:
    built = trained("heads: 1")
    call = inputs(built.spec, 1, 1, dtype=torch.float16)
    call = Call(built.spec, {name: 3 * tensor for name, tensor in call.tensors.items()}, {})
    given = {"out": cotangents_for(call)["out"]}
    found = gradients(built, call, given, QKV)
    assert found["q"].abs().max() < 1e-2 and found["k"].abs().max() < 1e-2
    assert torch.equal(found["v"], given["out"])


def test_a17_a_loss_on_lse_reaches_q_and_k(trained: Build) -> None:
    built = trained("mask: sliding_window(5)")
    call = inputs(built.spec, 13, 9)  # the first queries see no key: lse -inf
    given = cotangents_for(call)
    both = agree_gradients(built, call, cotangents=given)
    alone = agree_gradients(built, call, cotangents={"lse": given["lse"]})
    assert alone["q"].any() and not alone["v"].any()
    assert not torch.equal(both["q"], alone["q"])


@pytest.mark.parametrize("length", [80, 136, 1])
def test_b12_one_module_at_other_lengths(trained: Build, length: int) -> None:
    built = trained("mask: causal & sliding_window(40)")
    for batch in (2, 1):
        agree_gradients(built, inputs(built.spec, length, length, batch=batch), tiles=(32, 32))


@pytest.mark.parametrize(("q_len", "kv_len", "d"), [(64, 64, 64), (48, 80, 128)])
def test_b18_a_list_of_blocks_that_spells_causal(
    trained: Build, q_len: int, kv_len: int, d: int
) -> None:
    blocks = (
        "tensors: {block: {shape: [batch, 5, 5], dtype: bool}}\n"
        f"mask: block[b, q_pos // 16, kv_idx // 16] & causal\nhead_dim: {d}"
    )
    built, plain = trained(blocks), trained(f"mask: causal\nhead_dim: {d}")
    listed = torch.ones(3, 5, 5, dtype=torch.bool).tril()
    call = inputs(built.spec, q_len, kv_len, batch=3, block=listed)
    found = agree_gradients(built, call)
    tensors = {name: call.tensors[name] for name in QKV}
    expected = agree_gradients(plain, Call(plain.spec, tensors, {}))
    for name in QKV:
        torch.testing.assert_close(found[name], expected[name])


def test_b22_b23_documents_do_not_reach_each_other(trained: Build) -> None:
    built = trained(
        "tensors: {ids: {shape: [batch, kv_len], dtype: int32}}\nmask: documents(ids) & causal"
    )
    ids = torch.tensor([[0] * 5 + [1] * 11], dtype=torch.int32)
    call = inputs(built.spec, 16, 16, ids=ids)
    given = cotangents_for(call)
    before = agree_gradients(built, call, cotangents=given)
    changed = {name: call.tensors[name].clone() for name in QKV}
    for tensor in changed.values():
        tensor[:, :, :5] += 1
    given["out"][:, :, :5] += 1
    after = gradients(built, Call(built.spec, {**changed, "ids": ids}, {}), given, QKV)
    for name in QKV:
        assert torch.equal(before[name][:, :, 5:], after[name][:, :, 5:])


def test_b25_without_causal_the_future_has_a_gradient(trained: Build) -> None:
    for body, is_reached in (("", True), ("mask: causal", False)):
        built = trained(body)
        call = inputs(built.spec, 33, 33)
        given = {"out": cotangents_for(call)["out"]}
        given["out"][:, :, 1:] = 0  # a loss on the first query alone
        found = agree_gradients(built, call, cotangents=given)
        assert bool(found["v"][:, :, 1:].any()) is is_reached


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_c03_the_softcap_of_what_is_hidden(trained: Build, dtype: torch.dtype) -> None:
    built = trained("score: softcap(score, 15)\nmask: causal")
    call = inputs(built.spec, 40, 73, dtype=dtype)
    agree_gradients(built, call, tiles=(16, 32))


def test_c10_a_score_that_is_a_bias_alone(trained: Build) -> None:
    built = trained(
        "tensors: {w: {shape: [heads, kv_len], grad: true}}\nscore: w[h, kv_idx]\nmask: causal"
    )
    w = torch.randn(2, 21, generator=torch.Generator().manual_seed(2))
    found = agree_gradients(built, inputs(built.spec, 21, 21, w=w), ("v", "w"))
    assert found["w"].any()


def test_c10_what_the_score_learns(trained: Build) -> None:
    """A 0-d scalar times the score, and a table by distance."""
    built = trained(
        "params: {t: {type: float, default: 1}}\ntensors: {w: {shape: [heads, 17], grad: true}}\n"
        "score: relative_bias(score * t, w)\nmask: causal"
    )
    call = inputs(built.spec, 20, 30, w=torch.randn(2, 17), t=1.25)
    agree_gradients(built, call, ("q", "k", "v", "w"))
    t = torch.tensor(1.25, requires_grad=True)
    out = built.module.attention(*(call.tensors[n] for n in QKV), w=call.tensors["w"], t=t)
    out = out[0] if isinstance(out, tuple) else out
    (found,) = torch.autograd.grad(out.square().sum(), t)
    again = torch.tensor(1.25, dtype=torch.float64, requires_grad=True)
    doubles = [call.tensors[name].double() for name in QKV]
    exact = built.module.reference(*doubles, w=call.tensors["w"], t=again)
    (expected,) = torch.autograd.grad(exact.square().sum(), again)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", ["mask: causal", "mask: sliding_window(5)", SEEN])
@pytest.mark.parametrize(
    "score",
    [
        "where(score > 0, score, 0.1 * score)",
        "where(score > 0, score, 0.1 * score) / 3",
        "max(score, score * score / 4, 0.2) / 2",
    ],
)
def test_c10_a_score_that_is_read_twice(trained: Build, score: str, mask: str) -> None:
    """What hides its pairs, and the factor before it, reaches every gradient."""
    built = trained(f"score: {score}\n{mask}")
    shown = torch.rand(17, 37, generator=torch.Generator().manual_seed(1)) < 0.5
    call = inputs(built.spec, 17, 37, **({"shown": shown} if mask == SEEN else {}))
    agree_gradients(built, call)


def test_c10_a_select_of_the_user_guards_its_derivative(trained: Build) -> None:
    """sqrt has no derivative at 0, and a bias of 0 that is not taken has none either."""
    built = trained("score: where(score != 0, sqrt(abs(score)), 0)")
    call = inputs(built.spec, 17, 37)
    call.tensors["q"][:, :, 3] = 0
    found = gradients(built, call, cotangents_for(call), QKV, SMALL)
    assert all(gradient.isfinite().all() for gradient in found.values())
    biased = trained(
        "score: where(x[h, q_idx, kv_idx] != 0, score * x[h, q_idx, kv_idx], 0)\n"
        "tensors: {x: {shape: [heads, q_len, kv_len], grad: true}}"
    )
    call = inputs(biased.spec, 17, 37, x=torch.zeros(2, 17, 37))
    names = ("q", "k", "v", "x")
    found = gradients(biased, call, cotangents_for(call), names, SMALL)
    assert (found["x"] == 0).all()


def test_c10_a_param_that_only_decides_has_no_gradient(trained: Build) -> None:
    built = trained(
        "score: where(q_pos - kv_idx > t, score - 1, score)\n"
        "params: {t: {type: float, default: 3}}\nmask: causal"
    )
    call = inputs(built.spec, 9, 9)
    t = torch.tensor(3.0, requires_grad=True)
    q = call.tensors["q"].requires_grad_()
    out = built.module.attention(*(call.tensors[name] for name in QKV), t=t)
    found = torch.autograd.grad(out.sum(), (q, t), allow_unused=True)
    assert found[0].isfinite().all() and found[1] is None


def test_a_tensor_may_be_called_as_a_kernel_is(trained: Build) -> None:
    shape = "{shape: [q_len, kv_len], grad: true}"
    built = trained(
        "score: score + rows[q_idx, kv_idx] * kv[q_idx, kv_idx]\n"
        f"tensors: {{rows: {shape}, kv: {shape}}}"
    )
    assert built.module.KERNELS[-2:] == ("backward_of_rows", "backward_of_kv")
    draw = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(17, 19, generator=draw) for name in ("rows", "kv")}
    agree_gradients(built, inputs(built.spec, 17, 19, **tensors), ("q", "rows", "kv"))


def test_parts_of_a_tensor_read_twice_have_names_of_their_own(trained: Build) -> None:
    shape = "{shape: [q_len, kv_len], grad: true}"
    built = trained(
        "score: score + x[q_idx, kv_idx] * x[kv_idx, q_idx] + x_1[q_idx, kv_idx]\n"
        f"tensors: {{x: {shape}, x_1: {shape}}}"
    )
    draw = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(17, 17, generator=draw) for name in ("x", "x_1")}
    agree_gradients(built, inputs(built.spec, 17, 17, **tensors), ("q", "x", "x_1"))


@pytest.mark.parametrize("length", [65, 129])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_c12_one_past_a_tile(trained: Build, length: int, dtype: torch.dtype) -> None:
    built = trained("heads: 1\nscore: score + 0.1 * (q_pos - kv_idx)\nmask: causal")
    agree_gradients(built, inputs(built.spec, length, length, dtype=dtype), tiles=(64, 64))


@pytest.mark.parametrize("d", [8, 31, 63, 72, 80, 96, 100, 160, 192])
def test_d07_odd_head_dims_inside_a_buffer_of_nan(trained: Build, d: int) -> None:
    built = trained(f"head_dim: {d}\nmask: causal")
    call = inputs(built.spec, 17, 20)
    given = {name: buried(tensor, torch.nan) for name, tensor in cotangents_for(call).items()}
    tensors = {name: buried(call.tensors[name], torch.nan) for name in QKV}
    agree_gradients(built, Call(built.spec, tensors, {}), cotangents=given)


def test_d09_values_of_another_width(trained: Build) -> None:
    for qk, v in ((24, 40), (192, 128)):
        built = trained(f"head_dim: {{qk: {qk}, v: {v}}}")
        agree_gradients(built, inputs(built.spec, 9, 18))


def strange(tensor: Tensor) -> dict[str, Tensor]:
    """The same values, or others of the same shape, stored in other ways."""
    return {
        "one number": torch.ones(()).expand(tensor.shape),
        "turned": tensor.transpose(1, 2).contiguous().transpose(1, 2),
        "every other": torch.stack([tensor, tensor], -1).flatten(3)[..., ::2],
        "backwards": tensor.transpose(0, 3).contiguous().transpose(0, 3),
    }


@pytest.mark.parametrize("kind", ["one number", "turned", "every other", "backwards"])
def test_d12_upstream_gradients_of_any_strides(trained: Build, kind: str) -> None:
    built = trained("mask: causal")
    call = inputs(built.spec, 19, 19)
    given = strange(cotangents_for(call)["out"])[kind]
    found = agree_gradients(built, call, cotangents={"out": given})
    plain = gradients(built, call, {"out": given.contiguous()}, QKV)
    assert all(torch.equal(found[name], plain[name]) for name in QKV)


def test_d12_a_slice_gets_its_gradient_and_the_rest_of_the_buffer_zeros(trained: Build) -> None:
    built = trained()
    call = inputs(built.spec, 12, 20)
    big = torch.randn(1, 1, 52, 16, requires_grad=True)
    result = built.module.attention(call.tensors["q"], big[:, :, :-32], call.tensors["v"])
    result.sum().backward()
    assert big.grad is not None and big.grad[:, :, :20].any() and not big.grad[:, :, 20:].any()


def test_d15_one_tensor_as_q_k_and_v(trained: Build) -> None:
    built = trained("heads: 2")
    x = torch.randn(1, 2, 18, 16, requires_grad=True)
    given = torch.randn(1, 2, 18, 16)
    (whole,) = torch.autograd.grad(built.module.attention(x, x, x), x, given)
    parts = gradients(
        built, Call(built.spec, dict.fromkeys(QKV, x.detach()), {}), {"out": given}, QKV
    )
    torch.testing.assert_close(whole, parts["q"] + parts["k"] + parts["v"])


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 5), (5, 0), (0, 0)])
def test_d17_no_queries_or_no_keys(trained: Build, q_len: int, kv_len: int) -> None:
    built = trained("mask: causal")
    call = inputs(built.spec, q_len, kv_len)
    found = gradients(built, call, cotangents_for(call), QKV)
    for name in QKV:
        assert found[name].shape == call.tensors[name].shape and not found[name].any()


def test_g03_sums_of_many_halves_are_float32(trained: Build) -> None:
    """dv of a constant dout: 512 equal terms, in float16 a sum would stall."""
    built = trained("heads: 1")
    call = inputs(built.spec, 512, 16, dtype=torch.float16)
    zeros = {"q": torch.zeros_like(call.tensors["q"])}
    call = Call(built.spec, {**call.tensors, **zeros}, {})
    given = {"out": torch.full((1, 1, 512, 16), 1.001, dtype=torch.float16)}
    found = agree_gradients(built, call, tiles=(64, 16), cotangents=given)
    assert found["v"].unique().numel() == 1


def test_g05_no_float_atomics_and_the_same_bits_again(trained: Build) -> None:
    built = trained("tensors: {w: {shape: [heads], grad: true}}\nscore: score * w[h]\nmask: causal")
    source = (built.module.__file__ and open(built.module.__file__, encoding="utf-8").read()) or ""
    assert source and not re.search(r"atomic", source.split("import torch")[1])
    call = inputs(built.spec, 40, 40, batch=2, w=torch.tensor([1.0, -0.5]))
    names, given = (*QKV, "w"), cotangents_for(call)
    first, second = (gradients(built, call, given, names) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in names)


def test_i03_a_second_derivative_is_refused_by_name(trained: Build) -> None:
    built = trained()
    x = torch.randn(1, 2, 6, 16, requires_grad=True)
    k = torch.randn(1, 1, 6, 16)
    (first,) = torch.autograd.grad(
        built.module.attention(x, k, k).square().sum(), x, create_graph=True
    )
    with pytest.raises(Exception, match="sample"):
        first.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_i07_checkpointing_changes_no_bit(trained: Build, reentrant: bool) -> None:
    built = trained(
        "tensors: {shown: {shape: [q_len, kv_len], dtype: bool}}\nmask: shown[q_idx, kv_idx]"
    )
    call = inputs(built.spec, 20, 20, shown=torch.ones(20, 20).tril().bool())
    run = functools.partial(built.module.attention, shown=call.tensors["shown"])
    results = []
    for again in (False, True):
        leaves = [call.tensors[name].clone().requires_grad_() for name in QKV]
        out = checkpoint(run, *leaves, use_reentrant=reentrant) if again else run(*leaves)
        out.square().sum().backward()
        results.append([leaf.grad for leaf in leaves])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_i07_a_tensor_changed_between_the_passes_is_noticed(trained: Build) -> None:
    built = trained(SEEN)
    shown = torch.ones(8, 8, dtype=torch.bool)
    x = torch.randn(1, 2, 8, 16, requires_grad=True)
    k = torch.randn(1, 1, 8, 16)
    out = built.module.attention(x, k, k, shown=shown)
    shown[0] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_tiles_of_the_kernels_are_their_own(trained: Build) -> None:
    """No kernel's tile enters another's: any mixture gives the same numbers."""
    built = trained("mask: causal & sliding_window(20)")
    call = inputs(built.spec, 70, 70)
    for tiles in (SMALL, (64, 16), (16, 64), (32, 32)):
        agree_gradients(built, call, tiles=tiles)
