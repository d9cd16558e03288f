"""The judge of gradients is judged by torch's own attention and by DESIGN's rules 1, 4 and 12."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnc.verify.gradient_truth import (
    GradientTruth,
    differentiable,
    silent_rows,
    true_gradients,
)
from attnc.verify.reference import Call
from tests.verify.specs import call_of, spec_of

SPECS = {
    "plain": "",
    "softcap": "mask: causal\nscore: softcap(score, 2)",
    "params": "score: score * w - c * abs(q_pos - kv_idx)\n"
    "params: {w: {type: float, default: 0.5}, c: {type: float, default: 0.1}}",
    "bias": "score: score + bias[h, q_idx, kv_idx]\n"
    "tensors: {bias: {shape: [heads, q_len, kv_len], grad: true}}",
    "table": "score: relative_bias(score, table)\n"
    "tensors: {table: {shape: [heads, 7], grad: true}}",
    "gate": "mask: causal\nhead_gate: true",
    "bshd": "mask: sliding_window(3)\nlayout: bshd",
}


def asked(body: str, q_len: int = 7, kv_len: int = 9) -> tuple[Call, dict[str, torch.Tensor]]:
    """A call whose every number may have a gradient, and its cotangents."""
    spec = spec_of(body)
    extra = {
        "bias": torch.randn(4, q_len, kv_len), "table": torch.randn(4, 7),
        "head_gate": torch.tensor([0.0, 1.0, -2.0, 0.5]), "w": 0.5, "c": 0.25,
    }  # fmt: skip
    named = {t.name for t in spec.tensors} | {p.name for p in spec.params}
    named |= {"head_gate"} if spec.head_gate else set()
    call = call_of(spec, q_len, kv_len, **{n: extra[n] for n in named})
    if spec.layout == "bshd":
        turned = {name: call.tensors[name].transpose(1, 2) for name in "qkv"}
        call = dataclasses.replace(call, tensors={**call.tensors, **turned})
    out = torch.randn(call.tensors["q"].shape)
    return call, {"out": out, "lse": torch.randn(2, 4, q_len)}


def judged(call: Call, cotangents: dict[str, torch.Tensor]) -> GradientTruth:
    return true_gradients(call, cotangents, differentiable(call))


def test_agrees_with_torch_on_grouped_attention() -> None:
    call, cotangents = asked("scale: 0.375")
    found = judged(call, {"out": cotangents["out"]})
    leaves = [call.tensors[name].double().requires_grad_() for name in "qkv"]
    out = scaled_dot_product_attention(*leaves, enable_gqa=True, scale=0.375)
    expected = torch.autograd.grad(out, leaves, cotangents["out"].double())
    for name, gradient in zip("qkv", expected, strict=True):
        torch.testing.assert_close(found.exact[name], gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("body", SPECS.values(), ids=SPECS)
def test_plain_pytorch_comes_near_and_sizes_bound_what_is_summed(body: str) -> None:
    call, cotangents = asked(body)
    found = judged(call, cotangents)
    assert set(found.exact) == set(found.plain) == set(found.sizes) == set(differentiable(call))
    for name, exact in found.exact.items():
        assert exact.isfinite().all() and (exact.abs() <= found.sizes[name] * 1.001 + 1e-12).all()
        error = (found.plain[name].double() - exact).abs()
        assert (error <= 2e-6 * (1 + found.sizes[name].max())).all()


def test_every_operand_has_a_gradient_in_its_dtype() -> None:
    call, cotangents = asked(SPECS["bias"])
    half = {name: call.tensors[name].half() for name in "qkv"}
    call = dataclasses.replace(call, tensors={**call.tensors, **half})
    dtypes = {name: plain.dtype for name, plain in judged(call, cotangents).plain.items()}
    assert dtypes.pop("bias") is torch.float32 and dtypes.pop("scale") is torch.float32
    assert set(dtypes.values()) == {torch.float16}


def test_nan_in_hidden_keys_and_in_rows_that_see_nothing_reaches_no_gradient() -> None:
    call, cotangents = asked("mask: sliding_window(2) & (q_idx != 3)", 7, 12)
    clean = judged(call, cotangents)
    for name in "kv":
        call.tensors[name][:, :, :4] = torch.nan
    for tensor in (call.tensors["q"], *cotangents.values()):
        tensor[:, :, 3] = torch.nan
    found = judged(call, cotangents)
    for name in found.exact:
        assert torch.equal(found.exact[name], clean.exact[name]), name
        assert torch.equal(found.plain[name], clean.plain[name]), name
        assert torch.equal(found.sizes[name], clean.sizes[name]), name
    assert found.unreached["q"][0, 0].tolist() == [False] * 3 + [True] + [False] * 3
    assert not found.exact["q"][found.unreached["q"]].any()


def test_a_row_of_minus_infinity_is_like_one_that_sees_nothing() -> None:
    body = "score: score + row[q_idx]\ntensors: {row: {shape: [q_len], grad: true}}"
    row = torch.zeros(5)
    row[2] = -torch.inf
    call = call_of(spec_of(body), 5, 6, row=row)
    cotangents = {"out": torch.randn(2, 4, 5, 8), "lse": torch.randn(2, 4, 5)}
    for tensor in cotangents.values():
        tensor[:, :, 2] = torch.nan
    found = judged(call, cotangents)
    assert all(gradient.isfinite().all() for gradient in found.exact.values())
    assert not found.exact["q"][:, :, 2].any() and not found.exact["row"][2]


def test_a_closed_head_has_a_gradient_of_its_gate() -> None:
    call, cotangents = asked(SPECS["gate"])
    found = judged(call, cotangents)
    assert found.exact["head_gate"].all()
    assert not judged(call, {"out": cotangents["out"]}).exact["q"][:, 0].any()


def test_a_call_without_queries_has_no_row_that_is_silent() -> None:
    call, cotangents = asked("mask: causal", q_len=0)
    silent = silent_rows(call, cotangents["lse"])
    assert {name: tuple(rows.shape) for name, rows in silent.items()} == {
        "out": (2, 4, 0), "lse": (2, 4, 0), "entropy": (2, 4, 0), "key_mass": (2, 4, 9),
    }  # fmt: skip
