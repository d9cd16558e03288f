"""A tolerance passes rounding and fails everything else."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from attnc.verify.reference import Dense, dense
from attnc.verify.tolerance import Comparison, compare_lse, compare_out
from tests.verify.specs import call_of, spec_of


def judged(dtype: torch.dtype, mask: str = "causal") -> tuple[Dense, Dense]:
    """The truth and the plain computation of one call."""
    call = call_of(spec_of(f'mask: "{mask}"\nhead_dim: 32'), 33, 50)
    tensors = {name: tensor.to(dtype) for name, tensor in call.tensors.items()}
    call = dataclasses.replace(call, tensors=tensors)
    return dense(call), dense(call, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_truth_rounded_once_passes(dtype: torch.dtype) -> None:
    truth, plain = judged(dtype)
    assert compare_out(truth.out.to(dtype), truth, plain).ok
    assert compare_out(plain.out, truth, plain).ok
    assert compare_lse(truth.lse.float(), truth, plain).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("other", ["q_idx >= kv_idx", "sliding_window(40)", "kv_idx < q_pos"])
def test_another_mask_fails(dtype: torch.dtype, other: str) -> None:
    truth, plain = judged(dtype)
    wrong = judged(dtype, other)[1]
    assert not compare_out(wrong.out, truth, plain).ok
    assert not compare_lse(wrong.lse, truth, plain).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_many_roundings_fail(dtype: torch.dtype) -> None:
    truth, plain = judged(dtype)
    noise = 32 * torch.finfo(dtype).eps * truth.out.abs().max()
    assert not compare_out((truth.out + noise).to(dtype), truth, plain).ok


def test_lse_in_base_two_fails() -> None:
    truth, plain = judged(torch.float16)
    assert not compare_lse((truth.lse * 1.4426950408889634).float(), truth, plain).ok


def test_one_nan_fails() -> None:
    truth, plain = judged(torch.float32)
    got = plain.out.clone()
    got[1, 2, 3, 4] = torch.nan
    assert compare_out(got, truth, plain).problem == f"1 of {got.numel()} elements are NaN"
    assert not Comparison("out", error=float("nan"), limit=1.0).ok


def test_a_nan_in_the_reference_judges_nothing() -> None:
    truth, plain = judged(torch.float32)
    broken = dataclasses.replace(truth, out=torch.full_like(truth.out, torch.nan))
    assert "reference itself" in compare_out(plain.out, broken, plain).problem


def test_shape_and_dtype_must_match() -> None:
    truth, plain = judged(torch.float16)
    assert "shape" in compare_out(plain.out[:, :, :-1], truth, plain).problem
    assert "dtype" in compare_out(plain.out.float(), truth, plain).problem
    assert "dtype" in compare_lse(plain.lse.double(), truth, plain).problem


def test_empty_rows_are_exact() -> None:
    call = call_of(spec_of("mask: causal"), 9, 4)
    truth, plain = dense(call), dense(call, torch.float32)
    almost = plain.out.clone()
    almost[0, 0, 0, 0] = 1e-30
    assert compare_out(almost, truth, plain).problem == "a row without a visible key is not 0"
    finite = plain.lse.clone()
    finite[0, 0, 0] = -5e4
    assert compare_lse(finite, truth, plain).problem == "not -inf where no key is visible"
    infinite = plain.lse.clone()
    infinite[0, 0, -1] = -torch.inf
    assert not compare_lse(infinite, truth, plain).ok


def test_nothing_to_compare_counts_nothing() -> None:
    call = call_of(spec_of(""), 0, 4)
    truth, plain = dense(call), dense(call, torch.float32)
    assert compare_out(plain.out, truth, plain) == Comparison("out")
