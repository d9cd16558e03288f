"""Play a hot loop on one quarter of a multiprocessor, and see how far its pipes overlap.

What is played: each warp issues in order, one instruction a cycle and quarter; stall counts and the
six barriers of the control codes; pipes that are busy; groups of wgmma and the waits for them;
groups of asynchronous copies; barriers of a block.  What is not: TMA and its barriers (taken as
arrived), bank conflicts, caches, the other three quarters (taken as alike).

How resident blocks stand to each other in time no static model knows, so that several offsets are
played and the median is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from attnc.devices import Device
from attnc.tune.occupancy import QUARTERS
from attnc.tune.pipes import MEMORY_LATENCY, cost_of
from attnc.tune.sass import Instruction

LAPS = 8  # iterations played, the first two of which fill the pipes
QUEUE = 2  # wgmma that wait for the tensor core without holding up their warp
GROUP_DRAIN = 20  # cycles from the last product of a group to its sum
READ_DELAY = 8  # cycles until an operand has been read
BARRIER_DELAY = 12
LOOP_DELAY = 6  # the jump back
OFFSETS = (0.2, 0.5, 1.0)  # of an iteration, spread over the blocks

_GROUP_WAIT = re.compile(r"gsb\d, 0x([0-9a-f]+)")
_COPY_WAIT = re.compile(r"SB\d, 0x([0-9a-f]+)")
_SLOW_READERS = ("shared", "memory")
_LATE_RESULTS = ("shared", "memory", "exp", "tensor memory")


@dataclass(frozen=True, slots=True)
class _Step:
    """An instruction, with everything that playing it needs."""

    pipe: str
    cycles: float
    done: float  # cycles from issue to result
    read: float  # cycles from issue to operands read
    stall: int
    waits: tuple[int, ...]
    sets: tuple[int, int]
    act: str  # product, copy; the same with " closing" (a group) or " wait"; meet; or nothing
    pending: int = 0  # groups that a wait leaves open


@dataclass(slots=True)
class _Warp:
    block: int
    time: float
    place: int = 0
    barriers: list[float] = field(default_factory=lambda: [0.0] * 6)
    products: list[float] = field(default_factory=list)  # when each closed group is done
    copies: list[float] = field(default_factory=list)
    open_copy: float = 0.0
    laps: list[float] = field(default_factory=list)  # when each ended
    meets: float | None = None  # since when it waits for its block


def cycles_per_round(
    body: Sequence[Instruction], device: Device, warps: int, blocks: int
) -> tuple[float, float]:
    """Play a loop; gives cycles per round of one block alone, and of `blocks` resident ones.

    A round is one iteration of every resident block.
    """
    steps = [_step(one, device) for one in body]
    of_block = max(1, warps // QUARTERS)  # warps that a block has in this quarter
    here = -(-blocks * min(warps, QUARTERS) // QUARTERS)  # blocks with a warp in it
    alone = _play(steps, of_block, 1, 37)
    if here <= 1:
        return alone, alone
    offsets = [share * alone / here for share in OFFSETS]
    return alone, median(_play(steps, of_block, here, offset) for offset in offsets)


def _step(one: Instruction, device: Device) -> _Step:
    cost = cost_of(one, device)
    act, pending = _act(one)
    late = cost.cycles if cost.pipe in _LATE_RESULTS else 0.0
    read = READ_DELAY + (cost.cycles if cost.pipe in _SLOW_READERS else 0.0)
    pipe = "" if cost.pipe == "other" else cost.pipe
    return _Step(
        pipe, cost.cycles, cost.latency + late, read, one.stall, one.waits_for, one.sets, act,
        pending,
    )  # fmt: skip


def _act(one: Instruction) -> tuple[str, int]:
    match one.opcode:
        case "HGMMA" | "QGMMA":
            return ("product closing" if "gsb0" in one.text else "product"), 0
        case "WARPGROUP" if found := _GROUP_WAIT.search(one.text):
            return "product wait", int(found[1], 16)
        case "LDGSTS":
            return "copy", 0
        case "LDGDEPBAR":
            return "copy closing", 0
        case "DEPBAR" if found := _COPY_WAIT.search(one.text):
            return "copy wait", int(found[1], 16)
        case "BAR" if ".SYNC" in one.operation or ".RED" in one.operation:
            return "meet", 0
        case _:
            return "", 0


def _play(steps: Sequence[_Step], of_block: int, blocks: int, offset: float) -> float:
    """Cycles per round once the pipes are full."""
    warps = [
        _Warp(block, block * offset + number * 3.0)
        for block in range(blocks)
        for number in range(of_block)
    ]
    free: dict[str, float] = dict.fromkeys({step.pipe for step in steps}, 0.0)
    now, last, running = 0.0, warps[0], list(warps)
    while running:
        time, last = _next(running, steps, free, now, last)
        now = time + 1
        _issue(last, steps[last.place], free, time)
        if last.meets is not None:
            _meet([warp for warp in warps if warp.block == last.block])
        last.place += 1
        if last.place == len(steps):
            last.place = 0
            last.time += LOOP_DELAY
            last.laps.append(last.time)
            if len(last.laps) == LAPS:
                running.remove(last)
    return _steady(warps)


def _next(
    running: Sequence[_Warp],
    steps: Sequence[_Step],
    free: dict[str, float],
    now: float,
    last: _Warp,
) -> tuple[float, _Warp]:
    """The warp that can issue first, and when; of several the one that issued last."""
    best, soonest = last, inf
    for warp in running:
        if warp.meets is None:
            time = _ready(warp, steps[warp.place], free, now)
            if time < soonest or (time == soonest and warp is last):
                best, soonest = warp, time
    return soonest, best


def _ready(warp: _Warp, step: _Step, free: dict[str, float], now: float) -> float:
    """When a warp can issue its next instruction."""
    time = max(warp.time, now)
    for number in step.waits:
        time = max(time, warp.barriers[number])
    if step.act == "product wait" and len(warp.products) > step.pending:
        time = max(time, warp.products[-1 - step.pending])
    elif step.act == "copy wait" and len(warp.copies) > step.pending:
        time = max(time, warp.copies[-1 - step.pending])
    if step.pipe:
        queued = QUEUE * step.cycles if step.act.startswith("product") else 0.0
        time = max(time, free[step.pipe] - queued)
    return time


def _issue(warp: _Warp, step: _Step, free: dict[str, float], time: float) -> None:
    done = time + step.done
    if step.pipe:
        free[step.pipe] = max(free[step.pipe], time) + step.cycles
    match step.act:
        case "product" | "product closing":
            done = free[step.pipe]
            if step.act == "product closing":
                warp.products = [*warp.products[-4:], done + GROUP_DRAIN]
        case "copy":
            warp.open_copy = time + MEMORY_LATENCY
        case "copy closing":
            warp.copies = [*warp.copies[-8:], max(warp.open_copy, time)]
        case "meet":
            warp.meets = time
    for number, at in zip(step.sets, (done, time + step.read), strict=True):
        if number < 6:
            warp.barriers[number] = max(warp.barriers[number], at)
    warp.time = time + step.stall


def _meet(block: Sequence[_Warp]) -> None:
    """Let the warps of a block go on once all of them have come."""
    times = [warp.meets for warp in block if warp.meets is not None]
    if len(times) == len(block):
        for warp in block:
            warp.time = max(warp.time, max(times) + BARRIER_DELAY)
            warp.meets = None


def _steady(warps: Sequence[_Warp]) -> float:
    """Cycles per round in the span of time in which all warps run with full pipes."""
    first = max(warp.laps[1] for warp in warps)
    last = min(warp.laps[-1] for warp in warps)
    if last <= first:  # one warp has starved the others
        first = min(warp.laps[1] for warp in warps)
    done = 0.0
    for warp in warps:
        for start, end in zip(warp.laps, warp.laps[1:], strict=False):
            done += max(0.0, min(end, last) - max(start, first)) / (end - start)
    return len(warps) * (last - first) / done
