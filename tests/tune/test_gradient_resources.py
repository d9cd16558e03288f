"""What the kernels of the backward cost at their default schedules on Hopper, as printed."""

from __future__ import annotations

from functools import cache

import pytest

from attnc.driver import Compilation, compile_spec
from attnc.ir.interface import Schedule
from attnc.spec import parse_spec
from attnc.tune.operands import operands_of
from attnc.tune.resources import KernelResources, report

HEADS = {"one head each": "heads: 8", "grouped heads": "heads: {q: 8, kv: 2}"}


@cache
def causal(heads: str, head_dim: int) -> Compilation:
    text = f"{HEADS[heads]}\nhead_dim: {head_dim}\nmask: causal\noutputs: [lse]\n"
    return compile_spec(parse_spec(text))


def measured(compilation: Compilation, kernel: str, target: str) -> KernelResources:
    rows = compilation.program.interface.schedules
    (chosen,) = (
        row.schedule
        for row in rows
        if (row.device, row.element_bytes, row.kernel) == (target, 2, kernel)
    )
    source, operands = compilation.module.source, operands_of(compilation.spec)
    (one,) = report(source, operands, target, "fp16", fields(chosen), "kernel", kernel)
    return one


def fields(schedule: Schedule) -> dict[str, int]:
    names = ("block_q", "block_kv", "warps", "stages")
    return {name: getattr(schedule, name) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["backward_q", "backward_kv"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("heads", HEADS)
def test_no_kernel_of_the_backward_spills_on_hopper(heads: str, head_dim: int, kernel: str) -> None:
    one = measured(causal(heads, head_dim), kernel, "sm_90")
    assert one.fits and one.findings == ()
    assert one.spills == 0
    assert all(name.startswith("HGMMA") for name, _ in one.matrix_instructions)
    assert one.exp2_per_score == 1.0
    unmasked, masked = one.loops
    # what is left are a few of scalars: a tile of 8192 scores takes 32 of each a thread
    assert unmasked.count("compare") <= 24 and unmasked.count("select") <= 4
    assert masked.count("compare") > 32 and masked.count("select") > 32
