"""The front door in training: what a step keeps, runs and gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.codegen.test_gradients import call_of, launches
from tests.faults.judge import Build, Built

GATED = "backward: true\noutputs: []\nmask: causal\nhead_gate: true\nheads: {q: 4, kv: 2}"


def both(built: Built, call: dict[str, Tensor], names: tuple[str, ...]) -> list[list[Tensor]]:
    """The gradients of a loss in the interpreter and through the dense reference."""
    found: list[list[Tensor]] = []
    for function in (built.module.attention, built.module.reference):
        leaves = {name: call[name].detach().requires_grad_() for name in names}
        out = function(**{**call, **leaves})
        draw = torch.Generator().manual_seed(3)
        loss = (out * torch.randn(out.shape, generator=draw)).sum()
        found.append(list(torch.autograd.grad(loss, list(leaves.values()))))
    return found


@pytest.mark.parametrize("rest", ["", "sink: per_head\nlayout: bshd", "dropout: true"])
def test_a_closed_gate_has_its_gradient_and_opens_again(build: Build, rest: str) -> None:
    built = build(f"{GATED}\n{rest}")
    call = call_of(built, 20, 37)
    call["head_gate"] = torch.tensor([0.0, 1.5, 0.0, 0.0])  # the second key/value head: all closed
    names = ("q", "k", "v", "head_gate", *(("sink",) if built.spec.sink else ()))
    ours, truth = both(built, call, names)
    for name, mine, right in zip(names, ours, truth, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5, msg=name)
    assert ours[3].all()  # of the gates


def test_a_closed_head_is_computed_only_where_a_gradient_is_wanted(build: Build) -> None:
    built = build(GATED)
    call = call_of(built)
    kept: list[bool] = []
    for wanted in ((), ("head_gate",), ("q",)):
        leaves = {name: call[name].detach().requires_grad_() for name in wanted}
        with launches(built.module) as noted:
            built.module.attention(**{**call, **leaves})
        kept.append(noted["forward"]["KEEP"])
    assert kept == [False, True, True]
