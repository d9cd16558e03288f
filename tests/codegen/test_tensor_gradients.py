"""Generated kernels in the interpreter give every declared tensor its gradient, bit for bit again.

The judge is autograd through the file's dense reference in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from tests.faults.judge import Build, Built

CASES = {  # tensors, score, mask
    "pairs": ("{x: {shape: [heads, q_len, kv_len], grad: true}}",
              "softcap(score + x[h, q_idx, kv_idx], 5)", "causal"),
    "pairs of all heads": ("{x: {shape: [q_len, kv_len], grad: true}}",
                           "score + x[q_idx, kv_idx]", "window(9, 3)"),
    "pairs, bf16": ("{x: {shape: [batch, kv_heads, q_len, kv_len], dtype: bf16, grad: true}}",
                    "score + x[b, h_kv, q_idx, kv_idx]", "causal | prefix(5)"),
    "pairs at positions": ("{x: {shape: [2, kv_len, kv_len], grad: true}}",
                           "score * x[1, q_pos, kv_idx]", "causal"),
    "keys by head": ("{x: {shape: [heads, kv_len], grad: true}}", "score * x[h, kv_idx]",
                     "sliding_window(20)"),
    "rows at positions": ("{x: {shape: [kv_len], grad: true}}", "score * x[q_pos] + x[kv_idx]",
                          "causal"),
    "distances": ("{x: {shape: [heads, 21], grad: true}}", "relative_bias(score, x)", "causal"),
    "buckets": ("{x: {shape: [heads, 8], dtype: fp16, grad: true}}",
                "t5_bias(score, x, max_distance=20, bidirectional=true)", "window(30, 8)"),
    "distances, outside": ("{x: {shape: [30], grad: true}}", "score + x[q_pos - kv_idx]", "true"),
    "kinds": ("{x: {shape: [heads, 4], grad: true},"
              " kinds: {shape: [batch, kv_len], dtype: int32}}",
              "score + x[h, kinds[b, kv_idx]]", "documents(kinds)"),
}  # fmt: skip
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LIMITS = {torch.float32: 2e-5, torch.float16: 1.5e-2, torch.bfloat16: 6e-2}  # out is rounded, too


def built_for(build: Build, case: str) -> Built:
    tensors, score, mask = CASES[case]
    lines = ("backward: true", "heads: {q: 4, kv: 2}", "outputs: [lse]", f"tensors: {tensors}",
             f"score: {score}", f"mask: {mask}")  # fmt: skip
    return build("\n".join(lines))


def call_of(built: Built, dtype: torch.dtype, q_len: int, kv_len: int) -> dict[str, Tensor]:
    spec, draw = built.spec, torch.Generator().manual_seed(0)
    sizes = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": q_len, "kv_len": kv_len}
    shapes = {"q": (2, 4, q_len, spec.head_dim_qk), "k": (2, 2, kv_len, spec.head_dim_qk)}
    shapes["v"] = (2, 2, kv_len, spec.head_dim_v)
    made = {n: torch.randn(s, generator=draw).to(dtype) for n, s in shapes.items()}
    for one in spec.tensors:
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in one.shape]
        if one.grad:
            made[one.name] = torch.randn(shape, generator=draw).to(DTYPES[one.dtype])
        else:
            made[one.name] = torch.randint(-1, 5, shape, generator=draw, dtype=torch.int32)
    return made


def gradients_of(built: Built, function: str, call: Mapping[str, Tensor]) -> dict[str, Tensor]:
    leaves = {n: t.detach().requires_grad_() for n, t in call.items() if t.is_floating_point()}
    out, aux = getattr(built.module, function)(**{**call, **leaves}, return_aux=True)
    draw = torch.Generator().manual_seed(1)
    shown = torch.where(aux.lse.isinf(), 0.0, aux.lse)
    loss = (out * torch.randn(out.shape, generator=draw).to(out.dtype)).sum()
    loss = loss + (shown * torch.randn(shown.shape, generator=draw)).sum()
    found = torch.autograd.grad(loss, list(leaves.values()))
    return dict(zip(leaves, found, strict=True))


RUNS = [(case, torch.float32, 33, 75) for case in CASES] + [
    (case, *run)
    for case in ("pairs", "pairs, bf16", "buckets")
    for run in ((torch.float16, 65, 40), (torch.bfloat16, 17, 64))
]


@pytest.mark.parametrize(("case", "dtype", "q_len", "kv_len"), RUNS)
def test_gradients_of_tensors(
    build: Build, case: str, dtype: torch.dtype, q_len: int, kv_len: int
) -> None:
    built = built_for(build, case)
    call = call_of(built, dtype, q_len, kv_len)
    found = gradients_of(built, "attention", call)
    wider = {n: t.float() if n in ("q", "k", "v") else t for n, t in call.items()}
    wanted = gradients_of(built, "reference", wider)["x"]
    assert found["x"].dtype == call["x"].dtype
    limit = max(LIMITS[dtype], LIMITS[call["x"].dtype])
    error = (found["x"].float() - wanted.float()).abs().max()
    assert error <= limit * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("case", ["pairs", "keys by head", "distances", "kinds"])
def test_a_second_run_gives_the_same_bits(build: Build, case: str) -> None:
    built = built_for(build, case)
    call = call_of(built, torch.float16, 33, 40)
    first, second = (gradients_of(built, "attention", call) for _ in range(2))
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=0)


@pytest.mark.parametrize("case", ["pairs", "keys by head", "distances"])
@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 0), (3, 0), (0, 3), (1, 1)])
def test_sizes_without_pairs_give_zeros(build: Build, case: str, q_len: int, kv_len: int) -> None:
    built = built_for(build, case)
    call = call_of(built, torch.float32, q_len, kv_len)
    found = gradients_of(built, "attention", call)["x"]
    assert found.shape == call["x"].shape
    assert bool((found == 0).all()) or q_len * kv_len > 0


@pytest.mark.parametrize("case", ["pairs", "pairs at positions", "distances"])
def test_workspace_is_no_larger_than_q_k_and_v(build: Build, case: str) -> None:
    """What a launch makes beside the gradients themselves."""
    built = built_for(build, case)
    call = call_of(built, torch.float32, 64, 64)
    made: list[int] = []
    new_empty = torch.Tensor.new_empty

    def noted(tensor: Tensor, *args: object, **options: object) -> Tensor:
        result = new_empty(tensor, *args, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        made.append(result.numel() * result.element_size())
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "new_empty", noted)
        gradients_of(built, "attention", call)
    given = sum(t.numel() * t.element_size() for n, t in call.items() if n in "qkv")
    results = sum(t.numel() * t.element_size() for t in call.values())
    assert sum(made) <= 2 * given + results
