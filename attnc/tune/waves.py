"""What AMD's instructions cost: a rough count, with no play of their order.

A compute unit has four SIMDs; a wave of 64 lanes lives in one of them.  Cycles are a SIMD's.
Products run in a unit of their own beside the vector lanes, at the rate of the data sheet; a vector
instruction takes 64 / 16 lanes = 4 cycles, an exponential four times that; shared memory (LDS) and
the vector cache serve all four SIMDs.  Source: CDNA 3 ISA guide; the rest is an estimate.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from attnc.devices import Device
from attnc.tune.amdgcn import kind_of
from attnc.tune.sass import Instruction

SIMDS = 4
SHARED_UNITS = ("shared", "memory")  # by all four
CACHE_PER_CLOCK = 64  # bytes of a compute unit
LOOP_LATENCY = 500  # cycles of a round that one wave alone cannot hide: LDS, barriers

_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)")


def busy_cycles(body: Sequence[Instruction], device: Device, warps: int) -> dict[str, float]:
    """Sum the cycles of a compute unit that one block's iteration keeps each unit busy."""
    busy: defaultdict[str, float] = defaultdict(float)
    for one in body:
        unit, cycles = _cost(one.operation, device)
        busy[unit] += cycles * (1 if unit in SHARED_UNITS else 1 / SIMDS) * warps
        busy["issue"] += warps / SIMDS
    return dict(busy)


def flops_of(body: Sequence[Instruction], warps: int) -> float:
    """Count the FLOPs of one iteration's matrix instructions, over all waves of a block."""
    return sum(_flops(one.operation) for one in body) * warps


def cycles_per_round(busy: dict[str, float], warps: int, blocks: int) -> tuple[float, float]:
    """Guess cycles per round, of one block alone and of `blocks`: units overlap between waves only.

    A wave does one thing after the other; the more of them a SIMD has, the nearer the bound.
    """
    bound = max(busy.values())
    simds = min(warps, SIMDS)  # that one block keeps busy
    of_wave = sum(
        cycles / (1 if unit in SHARED_UNITS else warps / SIMDS)
        for unit, cycles in busy.items()
        if unit != "issue"
    )
    alone = max(bound * SIMDS / simds, of_wave + LOOP_LATENCY)
    return alone, max(bound * blocks, alone)


def _cost(operation: str, device: Device) -> tuple[str, float]:
    match kind_of(operation):
        case "mma":
            return "tensor", _flops(operation) / (device.tensor_flops / SIMDS)
        case "exp2" | "special":
            return "exp", 64 / (device.multiprocessor.exp_lanes / SIMDS)
        case "shared load" | "shared store" | "shuffle":
            return "shared", 64 * 4 * _words(operation) / device.multiprocessor.shared_per_clock
        case "global" | "spill":
            return "memory", 64 * 4 * _words(operation) / CACHE_PER_CLOCK
        case kind if kind == "barrier" or operation.startswith("s_"):
            return "issue", 0.0
        case _:
            return "alu", 64 / (device.multiprocessor.alu_lanes / SIMDS)


def _flops(operation: str) -> float:
    found = _SHAPE.search(operation)
    if kind_of(operation) != "mma" or not found:
        return 0.0
    m, n, k = map(int, found.groups())
    return 2.0 * m * n * k


def _words(operation: str) -> float:
    """Words of 32 bits that a lane moves: ds_read_b128 and buffer_load_dwordx4 move four."""
    found = re.search(r"_(b|dwordx)(\d+)", operation)
    if not found:
        return 1.0
    return int(found[2]) / 32 if found[1] == "b" else float(found[2])
