"""The schedule of a kernel of the backward, by a ladder for each kind of matrix unit.

A kernel that holds keys and walks queries gets the same tile turned over.
"""

from __future__ import annotations

from itertools import product

from attnc.ir.interface import Schedule
from attnc.plan.demand import (
    BUDGETS,
    SLACK,
    SPLIT_UNROLLED,
    UNROLLED,
    UNROLLED_LADDER,
    WIDEST_PIECE,
    Demand,
    is_bound_by_unrolling,
)
from attnc.targets import Target

# (rows held, rows walked, warps, values) by matrix unit: `values` are the registers of a thread for
# sums and scores up to which little or nothing was seen to spill.  Measured as printed, Triton 3.8,
# fp16, causal, with and without grouped heads:
#   wgmma  128 x 64 on 8 warps: no spill at head dim 64 and 128.
#   mma    64 x 64 on 4 warps spills 3 to 82 instructions at head dim 64 and 128.  128 rows on 8
#          warps do not, up to these numbers (head dim 96: 4, outside of loops); nor do 64 rows on 8
#          warps where every piece is 128 wide.  Narrower ones are not shared out among so many
#          warps: two compute the same rows, exp2 and all.
GRADIENT_LADDERS = {
    "wgmma": (
        (128, 64, 8, 224), (64, 64, 4, 224), (64, 32, 4, 224),
        (32, 32, 4, 224), (32, 16, 4, 224), (16, 16, 4, 224),
    ),
    "mma": (
        (128, 64, 8, 128), (128, 32, 8, 144), (64, 64, 8, 176), (64, 32, 4, 176),
        (32, 32, 4, 176), (32, 16, 4, 224), (16, 16, 4, 224),
    ),
    "tcgen05": (
        (64, 64, 4, 224), (64, 32, 4, 224), (32, 32, 4, 224), (32, 16, 4, 224), (16, 16, 4, 224),
    ),
    "mfma": (
        (64, 64, 4, 224), (64, 32, 4, 224), (32, 32, 2, 224), (32, 16, 2, 224), (16, 16, 1, 224),
    ),
}  # fmt: skip
STAGES = (2, 1)
# wgmma reads a tile from shared memory while it computes, which keeps one more tile there.  Against
# two stages tune/predict.py promises an H200 1.01 to 1.40 times the speed in 26 of specs/, and 0.90
# in t5_bias; none spills.
STAGES_OF_QUERIES = {"wgmma": (3, 2, 1)}
ROWS_OF_WARP = 16  # of mma
FEW_WARPS = 4  # as many as a multiprocessor issues for at once


def choose_gradient_schedule(
    target: Target, demand: Demand, summed: int, stages: tuple[int, ...] = STAGES
) -> Schedule:
    """Choose for a kernel that holds queries and sums `summed` features of each.

    stages: of the pipeline, best first.
    """
    ladder = GRADIENT_LADDERS[target.matrix_unit]
    if is_bound_by_unrolling(target, demand):
        ladder = tuple((*tile, 0) for tile in UNROLLED_LADDER)
    steps = [
        (Schedule(held, walked, warps, depth), values)
        for (held, walked, warps, values), depth in product(ladder, stages)
        if not _repeats_rows(target, demand, held, warps)
    ]
    fitting = [
        (schedule, values)
        for schedule, values in steps
        if gradient_shared_bytes(target, demand, schedule) <= target.shared_bytes
    ]
    easy = (s for s, values in fitting if _is_easy_gradient(target, demand, s, summed, values))
    return next(easy, (fitting or steps)[-1][0])


def gradient_shared_bytes(target: Target, demand: Demand, schedule: Schedule) -> int:
    """Estimate the shared memory of a block of the backward that holds queries, from above.

    Queries with their grad_out, keys with their values, and the two tiles p and d_qk that products
    take from shared memory.  With mma one tile of keys fewer is in flight, and p gives way to d_qk.
    """
    held, walked, size = schedule.block_q, schedule.block_kv, demand.element_bytes
    features = sum(demand.qk) + sum(demand.v)
    is_mma = target.matrix_unit == "mma"
    in_flight = max(1, schedule.stages - 1) if is_mma else schedule.stages
    products = (1 if is_mma else 2) * held * walked * size
    scores = schedule.stages * held * walked * demand.score_bytes
    copies = 2 if demand.split else 1
    tiles = (held + in_flight * walked) * features * size
    return copies * tiles + products + scores + SLACK


def _repeats_rows(target: Target, demand: Demand, held: int, warps: int) -> bool:
    """Whether more than four warps would compute rows twice: mma splits features from 128 on."""
    if target.matrix_unit != "mma" or is_bound_by_unrolling(target, demand):
        return False
    too_many = warps > max(FEW_WARPS, held // ROWS_OF_WARP)
    return too_many and min(*demand.qk, *demand.v) < WIDEST_PIECE


def _is_easy_gradient(
    target: Target, demand: Demand, schedule: Schedule, summed: int, most: int
) -> bool:
    """Whether a thread holds its sums and three tiles of scores, or unrolls little."""
    threads = schedule.warps * target.warp_size
    if is_bound_by_unrolling(target, demand):
        features = sum(demand.qk) + sum(demand.v) + summed
        work = schedule.block_q * schedule.block_kv * features
        return work <= (SPLIT_UNROLLED if demand.split else UNROLLED) * threads
    scores = 3 + (BUDGETS[target.matrix_unit].score_tensor if demand.score_bytes else 0)
    return schedule.block_q * (summed + scores * schedule.block_kv) / threads <= most
