"""Dropout costs nothing in a call without a seed, and its kernels compile for a device."""

from __future__ import annotations

import re
from collections import Counter
from types import ModuleType

import pytest
import torch

from attnc.driver import compile_spec
from attnc.runtime.loader import load_text
from attnc.spec import parse_spec
from attnc.targets import find_target
from attnc.tune.crosscompile import Launch, capture, compile_launch

HEAD = "name: sample\nheads: 2\nhead_dim: 64\nmask: causal\noutputs: [lse]\n"
KERNELS = ("forward", "backward_q", "backward_kv")


def module_of(body: str) -> ModuleType:
    source = compile_spec(parse_spec(HEAD + body)).module.source
    return load_text(source, "sample", interpret=False)


def launches(module: ModuleType, **dropout: object) -> dict[str, Launch]:
    """Every kernel of a call with gradients."""
    x, lse = torch.empty(1, 2, 256, 64, dtype=torch.float16), torch.empty(1, 2, 256)
    rest = (*dropout.values(), 0.125, module._tiles({"warps": 4}))

    def call() -> None:
        module.launch_forward(x, x, x, *rest)
        module.launch_backward({"q", "k", "v"}, x, lse, x, lse, x, x, x, *rest)

    return {launch.name: launch for launch in capture(module, call)}


def operations(launch: Launch) -> Counter[str]:
    """What the compiler is left with, by name; how often it writes a constant down is no work."""
    text = compile_launch(launch, find_target("sm_90")).asm["ttgir"]
    found = Counter(re.findall(r"= \"?([a-z_]+\.[a-z_.]+)", text))
    del found["arith.constant"]
    return found


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_a_seed_a_kernel_is_that_of_a_spec_without_dropout(kernel: str) -> None:
    built, without = module_of("dropout: true\n"), module_of("")
    found = operations(launches(built, seed=None, p=0.0)[kernel])
    assert found == operations(launches(without)[kernel])
    seeded = operations(launches(built, seed=torch.empty(1, dtype=torch.int64), p=0.1)[kernel])
    assert seeded["arith.xori"] > 0 == found["arith.xori"]
