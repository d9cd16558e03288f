"""Gradients of declared tensors, however they are read, on numpy, naive and ready."""

from __future__ import annotations

import pytest

from attnc.errors import SpecError
from attnc.ir.nodes import Level
from attnc.ir.verifier import verify
from attnc.passes.order import PIPELINE
from tests.plan.test_gradients import backward_of, check, gradients, program_of

SHAPES = {  # as read in step
    "[q_len, kv_len]": "q_idx, kv_idx",
    "[heads, q_len, kv_len]": "h, q_idx, kv_idx",
    "[batch, heads, q_len, kv_len]": "b, h, q_idx, kv_idx",
    "[batch, q_len, kv_len]": "b, q_idx, kv_idx",
    "[kv_heads, q_len, kv_len]": "h_kv, q_idx, kv_idx",
    "[batch, kv_heads, q_len, kv_len]": "b, h_kv, q_idx, kv_idx",
    "[kv_len, heads, q_len]": "kv_idx, h, q_idx",
    "[heads, kv_len]": "h, kv_idx",
    "[batch, heads, kv_len]": "b, h, kv_idx",
    "[kv_heads, kv_len]": "h_kv, kv_idx",
    "[batch, kv_len]": "b, kv_idx",
    "[kv_len]": "kv_idx",
    "[q_len]": "q_idx",
    "[q_len, batch]": "q_idx, b",
    "[kv_heads, q_len]": "h_kv, q_idx",
    "[batch]": "b",
    "[heads, batch]": "h, b",
    "[kv_heads]": "h_kv",
}
READS = {
    "a fixed index": ("[3, q_len, kv_len]", "x[2, q_idx, kv_idx]"),
    "an element": ("[3]", "x[0] * score + x[2]"),
    "a fixed row": ("[3, heads]", "x[1, h]"),
    "q_pos": ("[kv_len]", "x[q_pos]"),
    "q_pos and kv_idx": ("[kv_len, kv_len]", "x[q_pos, kv_idx]"),
    "keys as rows": ("[kv_len, kv_len]", "x[kv_idx, q_pos]"),
    "twice": ("[kv_len]", "x[kv_idx] * score + x[kv_idx - 1]"),
    "both ways": ("[heads, kv_len, kv_len]", "x[h, q_pos, kv_idx] * x[h, kv_idx, q_pos]"),
    "in step and by row": ("[kv_len]", "x[kv_idx] + x[q_pos]"),
    "outside": ("[q_len, kv_len]", "x[q_idx + 2, kv_idx - 3]"),
    "parity": ("[2]", "x[kv_idx % 2]"),
    "kinds of keys": ("[5]", "x[kinds[b, kv_idx]]"),
    "kinds of queries": ("[heads, 5]", "x[h, kinds[b, q_pos]]"),
    "distance": ("[heads, 7]", "x[h, min(max(kv_idx - q_pos, -3), 3) + 3]"),
    "distance, outside": ("[4]", "x[q_pos - kv_idx]"),
    "distance by rows": ("[9]", "x[kv_idx - q_idx + 1]"),
    "distance of a kind": ("[5, 7]", "x[kinds[b, 0], kv_idx - q_pos + 3] * score"),
    "half distances": ("[kv_heads, 9]", "exp(x[h_kv, abs(kv_idx - q_pos) // 2])"),
    "buckets": ("[heads, 8]", "t5_bias(score, x, max_distance=16)"),
    "relative": ("[heads, 5]", "relative_bias(score, x)"),
    "a factor outside": ("[q_len, kv_len]", "exp((score + x[q_idx, kv_idx]) / 8)"),
    "a factor outside, distance": ("[heads, 5]", "exp(relative_bias(score, x) / 8)"),
    "two tables": ("[heads, 5]", "relative_bias(score, x) + x[h, 2] + x[h, kv_idx]"),
}
MASKS = ("causal", "window(2, 1) | (kv_idx < 2)", "(q_pos - kv_idx) % 3 == 0", "kv_idx < 4 + b")


def spec_of(shape: str, score: str, mask: str) -> str:
    kinds = " kinds: {shape: [batch, kv_len], dtype: int32}," if "kinds" in score else ""
    score = score if "score" in score else f"score + {score}"
    lines = (f"tensors: {{{kinds} x: {{shape: {shape}, grad: true}}}}",
             f"score: {score}", f"mask: {mask}", "outputs: [lse]")  # fmt: skip
    return "\n".join(lines)


MESSAGE = """\
spec.yaml:5:62: spec/no-gradient no gradient of x is built, which is read as x[q_idx // 2, \
kinds[b, kv_idx]]
    5 | tensors: { kinds: {shape: [batch, kv_len], dtype: int32}, x: {shape: [8, 8], grad: true}}
      |                                                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: indices that follow query and key at once must be these positions themselves, or all be \
formulas of kv_idx - q_pos; else remove grad"""
FLAT = """\
spec.yaml:5:15: spec/flat-gradient the gradient of x is zero everywhere: formulas only compare or \
round it
    5 | tensors: { x: {shape: [kv_len], grad: true}}
      |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: remove grad; a gate that learns is smooth, such as sigmoid(x[...]) in the score"""
CASES = {shape: (shape, f"softcap(score + x[{at}], 3)") for shape, at in SHAPES.items()} | READS
FEW = (
    "[q_len, kv_len]", "[heads, q_len, kv_len]", "[batch, kv_heads, q_len, kv_len]",
    "[heads, kv_len]", "both ways", "relative",
)  # fmt: skip


@pytest.mark.parametrize("case", FEW)
def test_naive_kernels_give_gradients_of_tensors(case: str) -> None:
    flow = backward_of(spec_of(*CASES[case], "causal"))
    program = program_of(flow)
    verify(program, Level.NAIVE)
    check(*gradients(flow, program))


@pytest.mark.parametrize("case", CASES)
def test_ready_kernels_give_gradients_of_tensors(case: str) -> None:
    flow = backward_of(spec_of(*CASES[case], "causal"))
    check(*gradients(flow, PIPELINE.run(program_of(flow)), (2, 4)))


@pytest.mark.parametrize("case", FEW)
def test_tiles_of_any_shape_give_gradients_of_tensors(case: str) -> None:
    flow = backward_of(spec_of(*CASES[case], "causal"))
    check(*gradients(flow, PIPELINE.run(program_of(flow)), (4, 2)))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("case", ["[heads, q_len, kv_len]", "[heads, kv_len]", "relative"])
def test_every_mask_bounds_them(case: str, mask: str) -> None:
    flow = backward_of(spec_of(*CASES[case], mask))
    check(*gradients(flow, PIPELINE.run(program_of(flow)), (2, 4)))


def test_an_index_by_query_and_key_is_refused_by_name() -> None:
    body = spec_of("[8, 8]", "x[q_idx // 2, kinds[b, kv_idx]]", "causal")
    with pytest.raises(SpecError) as error:
        backward_of(body)
    assert str(error.value) == MESSAGE


@pytest.mark.parametrize(
    ("score", "mask"),
    [("where(x[kv_idx] > 0, score, 2*score)", "causal"), ("score", "x[kv_idx] > 0")],
)
def test_a_tensor_that_only_decides_has_no_gradient(score: str, mask: str) -> None:
    with pytest.raises(SpecError) as error:
        backward_of(spec_of("[kv_len]", score, mask))
    assert str(error.value) == FLAT
