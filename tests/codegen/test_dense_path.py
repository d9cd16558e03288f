"""The generated file's dense path: a CPU outside Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from attnc.driver import compile_spec
from attnc.runtime.loader import load_text
from attnc.spec import parse_spec
from attnc.verify.cases import Case
from attnc.verify.numbers import judge
from attnc.verify.reference import Call, dense
from tests.faults.judge import Build, inputs


@pytest.mark.parametrize(
    "key",
    [
        "score: sigmoid(score) * sqrt(d)",
        "score: score * log(d)",
        "score: max(score, d) - score",
        "mask: kv_idx < max(d, 20) // 2",
    ],
)
@pytest.mark.parametrize("way", ["cpu", "reference"])
def test_the_head_dim_may_stand_in_a_function(key: str, way: str) -> None:
    spec = parse_spec(f"name: depth\nheads: 2\nhead_dim: 16\n{key}\n")
    module = load_text(compile_spec(spec).module.source, "depth", interpret=False)
    assert all(found.ok for found in judge(spec, module, Case("d", 1, 2, 9, 33, "fp32"), way))


TRAPS = {  # a derivative that is infinite, or a quotient without a value, where nothing counts it
    "in the branch not taken": "score: where(kv_idx > 0, score * log(kv_idx), score)",
    "in the other branch": "score: where(kv_idx == 0, score, score * log(kv_idx))",
    "of a read": "tensors: {t: {shape: [kv_len]}}\n"
    "score: score + where(kv_idx > 0, log(kv_idx) * t[kv_idx], 0)",
    "nested": "score: where(kv_idx > 0, where(kv_idx > 1, score / log(kv_idx), score), score)",
    "of a hidden pair": "score: score * log(kv_idx)\nmask: kv_idx > 0",
    "whole": "score: score + where(kv_idx > 0, q_idx // kv_idx + q_idx % kv_idx, 0)",
    "whole and hidden": "mask: (kv_idx > 0) & (q_idx % kv_idx == 0)",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_what_does_not_count_has_no_part_in_gradients(build: Build, trap: str) -> None:
    built = build(TRAPS[trap], False)
    draw = torch.Generator().manual_seed(0)
    extra = {"t": torch.randn(9, generator=draw)} if built.spec.tensors else {}
    call = inputs(built.spec, 7, 9, **extra)
    leaves = {name: t.double().requires_grad_() for name, t in call.tensors.items()}
    arguments = dict(leaves) | {name: leaves[name].float() for name in extra}
    found = built.module.reference(**arguments)
    judge = dense(Call(built.spec, arguments, {}))
    torch.testing.assert_close(found, judge.out, rtol=1e-5, atol=1e-6)  # t is float32
    by_module, by_judge = (
        torch.autograd.grad(out.sin().sum(), list(leaves.values()), retain_graph=True)
        for out in (found, judge.out)
    )
    for ours, theirs in zip(by_module, by_judge, strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
