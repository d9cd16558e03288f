"""The schedules worth compiling: the neighbours of the one that the rule chose, nearest first.

The rule knows a kernel's shape and a device's limits roughly; what it cannot know (registers, what
overlaps what) is decided within a step or two of it.  So a candidate's distance is the number of
doublings and halvings between the two, and the search compiles outwards until its budget is spent.

Descriptors (tma) are tried with three stages or more: with fewer, the cost model, which takes their
data as arrived, flatters them.  Skew is tried with tiles of 128 keys or more: with fewer, no
prototype gained by it.  The order of tiles (last_first) changes no loop: the search prices
both orders of what it compiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from attnc.targets import Target

CHOICES: Mapping[str, tuple[int, ...]] = {
    "block_q": (16, 32, 64, 128, 256),
    "block_kv": (16, 32, 64, 128, 256),
    "warps": (1, 2, 4, 8, 16),
    "stages": (1, 2, 3, 4),
    "skew": (False, True),
    "tma": (False, True),
}
SIZES = ("block_q", "block_kv", "warps")
ROOM = 1.25  # the compiler may hold this much more than registers_per_thread, by our count
MOST_UNROLLED = 1024  # multiply-adds of a thread and tile: more, and the compiler takes minutes
LEAST_TMA_STAGES = 3
LEAST_SKEWED = 128  # positions of the tile walked
LEAST_SCORES = 16  # of a thread: fewer, and lanes of a product repeat each other's work


@dataclass(frozen=True, slots=True)
class KernelShape:
    """What the search knows of a kernel.

    fields: what a schedule decides for it.  usual: what `compile` chooses, by the rule and the
    spec.  asked: what the spec leaves to choose from.  held, walked: which tile it keeps and which
    its loop steps through (block_q or block_kv).  features: how many features of each it reads.
    summed: features that it sums for each row held.
    """

    name: str
    fields: tuple[str, ...]
    usual: Mapping[str, int]
    asked: Mapping[str, tuple[int, ...]]
    held: str
    walked: str
    features: int
    summed: int


def candidates(
    kernel: KernelShape, target: Target, element_bytes: int, most: int
) -> tuple[dict[str, int], ...]:
    """Schedules to compile, the rule's own first; at most `most`."""
    plausible = [
        schedule
        for schedule in _all(kernel)
        if _is_plausible(kernel, target, element_bytes, schedule)
    ]
    usual = dict(kernel.usual)
    others = [schedule for schedule in plausible if schedule != usual]
    others.sort(
        key=lambda schedule: (
            distance(schedule, usual),
            -schedule["block_q"],
            -schedule["block_kv"],
        )
    )
    return (usual, *others)[:most]


def distance(schedule: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Doublings and halvings from one schedule to another.

    A stage counts as one, descriptors as half a step; skew comes along where it may pay.
    """
    sizes = (name for name in other if name in SIZES)
    steps = sum(abs(math.log2(schedule[name] / other[name])) for name in sizes)
    stages = abs(schedule["stages"] - other["stages"])
    return steps + stages + abs(schedule.get("tma", 0) - other.get("tma", 0)) / 2


def _all(kernel: KernelShape) -> Iterator[dict[str, int]]:
    values = [
        kernel.asked.get(name, CHOICES.get(name, (usual,)) if name in kernel.fields else (usual,))
        for name, usual in kernel.usual.items()
    ]
    for chosen in product(*values):
        yield dict(zip(kernel.usual, chosen, strict=True))


def _is_plausible(
    kernel: KernelShape, target: Target, element_bytes: int, schedule: Mapping[str, int]
) -> bool:
    """Whether the tiles fit registers and shared memory by the least they can need."""
    if schedule["warps"] > target.max_warps:
        return False
    if schedule["stages"] > 1 and not target.has_async_copies:
        return False
    if schedule.get("tma") and not (
        target.has_descriptors and schedule["stages"] >= LEAST_TMA_STAGES
    ):
        return False
    if schedule.get("skew") and schedule[kernel.walked] < LEAST_SKEWED:
        return False
    threads = schedule["warps"] * target.warp_size
    held, walked = schedule[kernel.held], schedule[kernel.walked]
    if kernel.walked not in kernel.fields:  # no tile of scores
        return held * kernel.features >= threads
    has_products = target.matrix_unit != "none"
    if not has_products and held * walked * kernel.features > MOST_UNROLLED * threads:
        return False
    in_flight = max(1, schedule["stages"] - 1) * walked * kernel.features * element_bytes
    values = held * (kernel.summed + walked) / threads
    return (
        held * walked >= (LEAST_SCORES if has_products else 1) * threads
        and in_flight <= target.shared_bytes
        and values <= ROOM * target.registers_per_thread
    )
