"""Predict how long a launch takes on a device, from its machine code and what its programs visit.

The model, step by step:
  1. A hot loop keeps each pipe busy for so many cycles an iteration (pipes.py); the busiest one is
     the bound.  Playing the loop (timeline.py) tells how far the pipes overlap with as many blocks
     as fit (occupancy.py): cycles per round, a round being one iteration of every resident block.
  2. A round takes at least as long as L2 needs to bring its tiles.
  3. A program takes its rounds, and a start and an end that two trips to memory and the
     instructions outside the loops make.  Programs are dealt out in the order of launch to the
     slots of all multiprocessors, each to the slot that is free first; the last to end is the time.
  4. It is never less than what the tensors need to move once through the device's memory.
It is optimistic: clocks do not hold under load, and bank conflicts, the tail of a loop's pipeline
and TMA's latency are left out.  A prototype of it promised about a quarter more than others have
measured on Hopper, and an eighth on A100; this one was held against no GPU yet.  Ranking is what it
is for.
Differences under a tenth say nothing.  On AMD, and on Blackwell's tensor memory, it is rough: there
nothing is played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from typing import Protocol

from attnc.devices import Device
from attnc.tune import pipes, waves
from attnc.tune.occupancy import QUARTERS, Occupancy, occupancy_of
from attnc.tune.resources import KernelResources
from attnc.tune.sass import Instruction
from attnc.tune.timeline import cycles_per_round

MOST_DEALT = 2**15  # programs dealt out one by one
CLOSE = 0.85  # of the bound: the busiest pipe is then what limits
TENSOR_MEMORY_TRIP = 400  # cycles: products of tcgen05 and back, where nothing else overlaps


class Work(Protocol):
    """What a launch does; see explain/launches.py."""

    @property
    def programs(self) -> Sequence[tuple[int, ...]]: ...
    @property
    def copies(self) -> int: ...
    @property
    def tile_flops(self) -> int: ...
    @property
    def tile_bytes(self) -> int: ...
    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LoopCost:
    """One hot loop; cycles are a multiprocessor's, of one iteration of one block."""

    busy: tuple[tuple[str, float], ...]  # pipe -> cycles, busiest first
    alone: float  # when the block has the multiprocessor to itself
    shared: float  # when as many as fit share it: a round divided by them
    flops: float  # counted in its matrix instructions; where they do not tell, the formula's
    spills: int  # instructions

    @property
    def bound(self) -> float:
        """Cycles of the busiest pipe."""
        return self.busy[0][1]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a launch is predicted to take, and why."""

    seconds: float
    limited_by: str  # a pipe, or: latency | L2 | memory
    cycles: float  # per iteration of a block in the first loop, when as many as fit share
    blocks: int  # resident on a multiprocessor
    waves: float  # programs over slots
    bytes: int  # every tensor once
    flops: int
    loops: tuple[LoopCost, ...]
    text: str

    @property
    def tflops(self) -> float:
        """10**12 FLOPs a second."""
        return self.flops / self.seconds / 1e12 if self.seconds else 0.0


def predict(compiled: KernelResources, device: Device, work: Work) -> Prediction:
    """Predict one launch; `compiled` must be for the device's class, and fit.

    Raises: ValueError when it is for another class.
    """
    if compiled.target != device.target:
        raise ValueError(f"compiled for {compiled.target}, but {device.name} is {device.target}")
    warps = dict(compiled.schedule)["warps"]
    fits = occupancy_of(device, compiled.registers, compiled.shared_bytes, warps)
    programs = len(work.programs) * work.copies
    blocks = min(max(1, fits.blocks), max(1, -(-programs // device.multiprocessors)))
    loops = tuple(
        loop_cost(body, device, warps, blocks, work.tile_flops) for body in compiled.bodies
    )
    from_l2 = work.tile_bytes / device.l2_per_clock
    rounds = [max(loop.shared, from_l2) * blocks for loop in loops]
    ends = _ends(compiled, warps, blocks)
    cycles = _dealt(
        [ends + _rounds_of(tiles, rounds) for tiles in work.programs],
        work.copies,
        blocks * device.multiprocessors,
    )
    computing = cycles / device.clock_ghz / 1e9
    moving = work.bytes / device.memory_gbs / 1e9
    limit = _limit(loops, from_l2) if computing >= moving else "memory"
    found = Prediction(
        seconds=max(computing, moving),
        limited_by=limit,
        cycles=max(loops[0].shared, from_l2) if loops else ends,
        blocks=blocks,
        waves=programs / (blocks * device.multiprocessors),
        bytes=work.bytes,
        flops=work.tile_flops * sum(map(sum, work.programs)) * work.copies,
        loops=loops,
        text="",
    )
    return _explained(found, device, fits, work.tile_flops)


def loop_cost(
    body: Sequence[Instruction], device: Device, warps: int, blocks: int, tile_flops: int
) -> LoopCost:
    """Price one hot loop with `blocks` resident; tile_flops: of an iteration, by the formula."""
    if device.vendor == "amd":
        busy = waves.busy_cycles(body, device, warps)
        flops = waves.flops_of(body, warps)
        alone, together = waves.cycles_per_round(busy, warps, blocks)
    else:
        busy = pipes.busy_cycles(body, device, warps)
        flops = pipes.flops_of(body, device, warps)
        alone, together = cycles_per_round(body, device, warps, blocks)
    if any(one.opcode.startswith("UTC") and one.opcode.endswith("MMA") for one in body):
        flops = float(tile_flops)
        busy["tensor"] = flops / device.tensor_flops
        alone += busy["tensor"] + TENSOR_MEMORY_TRIP
        together = alone if blocks == 1 else max(together, busy["tensor"] * blocks)
    return LoopCost(
        busy=tuple(sorted(busy.items(), key=lambda one: -one[1])),
        alone=alone,
        shared=together / blocks,
        flops=flops,
        spills=sum(one.kind == "spill" or "scratch_" in one.operation for one in body),
    )


def _ends(compiled: KernelResources, warps: int, blocks: int) -> float:
    """Cycles of a program before and after its loops."""
    outside = compiled.instructions - sum(map(len, compiled.bodies))
    return 2 * pipes.MEMORY_LATENCY + outside * blocks * max(1.0, warps / QUARTERS)


def _rounds_of(tiles: Sequence[int], rounds: Sequence[float]) -> float:
    """Cycles of a program's loops; where the compiler made other loops of them, of the slowest."""
    if len(tiles) == len(rounds):
        return sum(count * cycles for count, cycles in zip(tiles, rounds, strict=True))
    return sum(tiles) * max(rounds, default=0.0)


def _dealt(programs: Sequence[float], copies: int, slots: int) -> float:
    """When the last program ends, each dealt to the slot that is free first."""
    if not programs:
        return 0.0
    if len(programs) * copies > MOST_DEALT:
        return sum(programs) * copies / slots + max(programs) / 2
    free = [0.0] * slots
    heapify(free)
    for _ in range(copies):
        for cycles in programs:
            heapreplace(free, free[0] + cycles)
    return max(free)


def _limit(loops: Sequence[LoopCost], from_l2: float) -> str:
    if not loops:
        return "latency"
    first = loops[0]
    if from_l2 > first.shared:
        return "L2"
    return first.busy[0][0] if first.bound >= CLOSE * first.shared else "latency"


def _explained(found: Prediction, device: Device, fits: Occupancy, tile_flops: int) -> Prediction:
    """Say why in one line."""
    parts = [f"{found.seconds * 1e3:.3g} ms"]
    if found.flops:
        parts[0] += f", {found.tflops:.0f} of {device.tensor_tflops:.0f} TFLOP/s"
    if found.loops:
        first = found.loops[0]
        busiest = ", ".join(f"{pipe} {cycles:.0f}" for pipe, cycles in first.busy[:2])
        parts.append(f"a tile takes {found.cycles:.0f} cycles (busy: {busiest})")
    parts.append(f"limited by {found.limited_by}")
    parts.append(f"{found.blocks} of {fits.blocks} blocks an SM ({fits.limit})")
    parts.append(f"{found.waves:.1f} waves")
    if found.loops and found.loops[0].flops > 1.01 * tile_flops:
        parts.append(f"products are done {found.loops[0].flops / tile_flops:.2g} times over")
    if spills := sum(loop.spills for loop in found.loops):
        parts.append(f"{spills} spills in the loops")
    return replace(found, text="; ".join(parts))
