"""The launcher of the backward: which kernels run, with which tiles, for which gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.faults.judge import Build, Built, agree_gradients, inputs

PLAIN = "backward: true\nmask: causal"
FULL = "backward: true\nmask: causal\nheads: 2\nscore: score * w[h] + u[b, kv_idx]\ntensors: " + (
    "{w: {shape: [heads], grad: true}, u: {shape: [batch, kv_len], grad: true}}"
)


@contextmanager
def launches(module: ModuleType) -> Iterator[dict[str, dict[str, Any]]]:
    """Note what each kernel is launched with, in order."""
    noted: dict[str, dict[str, Any]] = {}
    kernels = {name: getattr(module, name) for name in module.KERNELS}

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def launch(*args: Any, **options: Any) -> Any:
                noted[self.name] = options
                return kernels[self.name][grid](*args, **options)

            return launch

    for name in kernels:
        setattr(module, name, Noted(name))
    try:
        yield noted
    finally:
        for name, kernel in kernels.items():
            setattr(module, name, kernel)


def call_of(built: Built, q_len: int = 9, kv_len: int = 12) -> dict[str, torch.Tensor]:
    spec = built.spec
    sizes = {"batch": 2, "heads": spec.heads_q, "kv_heads": spec.heads_kv}
    sizes |= {"q_len": q_len, "kv_len": kv_len}
    tensors = (*spec.tensors, *spec.by_head)
    extra = {t.name: torch.randn([sizes.get(str(d), d) for d in t.shape]) for t in tensors}
    return dict(inputs(spec, q_len, kv_len, batch=2, **extra).tensors)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("q", {"forward", "backward_rows", "backward_q"}),
        ("k", {"forward", "backward_rows", "backward_kv"}),
        ("v", {"forward", "backward_rows", "backward_kv"}),
        ("w", {"forward", "backward_rows", "backward_q"}),
        ("u", {"forward", "backward_rows", "backward_kv"}),
        ("qkvwu", {"forward", "backward_rows", "backward_q", "backward_kv"}),
        ("", {"forward"}),
    ],
)
def test_what_is_not_wanted_launches_nothing(build: Build, wanted: str, expected: set[str]) -> None:
    built = build(FULL)
    call = call_of(built)
    operands = [call[name].requires_grad_() for name in wanted]
    with launches(built.module) as noted:
        out = built.module.attention(**call)
        gradients = torch.autograd.grad(out.sum(), operands) if wanted else ()
    assert set(noted) == expected
    truth = built.module.reference(**{name: tensor.double() if name in "qkv" else tensor
                                      for name, tensor in call.items()})  # fmt: skip
    rights = torch.autograd.grad(truth.sum(), operands) if wanted else ()
    for gradient, right in zip(gradients, rights, strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-4, atol=1e-5)


def test_each_kernel_has_a_schedule_of_its_own(build: Build) -> None:
    built = build(f"{PLAIN}\nschedule: {{block_q: 32, backward_kv: {{warps: 2, block_kv: 16}}}}")
    call = {name: tensor.requires_grad_() for name, tensor in call_of(built).items()}
    asked = {"block_kv": 32, "backward_q": {"block_q": 16}, "backward_kv": {"block_q": 32}}
    with launches(built.module) as noted:
        built.module.attention(**call, schedule=asked).sum().backward()
    table = {kernel: built.module.SCHEDULES["sm_80", 4, kernel] for kernel in noted}
    tile = {
        name: (o.get("BLOCK_Q"), o.get("BLOCK_KV"), o["num_warps"]) for name, o in noted.items()
    }
    assert tile == {
        "forward": (32, 32, table["forward"]["warps"]),
        "backward_rows": (table["backward_rows"]["block_q"], None, 4),
        "backward_q": (16, table["backward_q"]["block_kv"], table["backward_q"]["warps"]),
        "backward_kv": (32, 16, 2),
    }


def test_a_kernel_may_touch_no_element_at_all(build: Build) -> None:
    built = build("backward: true\nscore: 0.25\noutputs: [lse]")  # lse is all that its rows read
    agree_gradients(built, inputs(built.spec, 21, 30), ("v",))
