"""The default schedule of every kernel, device class and element size, by rule.

Why a rule and not a table: head dims, score tensors and shared memory differ too much from spec
to spec.  The rule walks a ladder of tiles, best first; the first one to keep four promises wins:
  memory     the tiles in flight fit the shared memory of a block
  registers  what a thread holds (accumulator, scores, probabilities) stays below the point from
             which ptxas was seen to spill, per kind of matrix unit
  columns    tensor memory of sm_100 suffices (else Triton writes an empty kernel and says nothing)
  unrolling  a float32 product without a matrix unit unrolls to at most 512 multiply-adds a thread
Where the figures come from: cross-compiled prototypes of the kernel's text, Triton 3.8, head dims
16 to 1024.  `attnc compile --target` measures what the rule only estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from sympy import Basic

from attnc.ir.interface import Schedule, ScheduleRow
from attnc.plan.demand import (
    BUDGETS,
    SLACK,
    SPLIT_UNROLLED,
    UNROLLED,
    UNROLLED_LADDER,
    Demand,
    is_bound_by_unrolling,
)
from attnc.plan.gradient_schedule import STAGES, STAGES_OF_QUERIES, choose_gradient_schedule
from attnc.symbols import Read, kv_idx, q_idx, q_pos
from attnc.targets import TARGETS, Target

ELEMENT_BYTES = (2, 4)
TENSOR_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int32": 4, "int64": 8, "bool": 1}
ROWS_OF_WGMMA = 64  # fewer rows and Triton falls back to mma

# (block_q, block_kv, warps), best first.
LADDER = (
    (128, 64, 8), (128, 32, 8), (64, 32, 4), (64, 16, 4),
    (32, 32, 4), (32, 16, 4), (16, 16, 4), (16, 16, 8),
)  # fmt: skip
# A warp of AMD has 64 lanes and takes 32 rows (of 16 keys: 16 rows), or it repeats another's work.
AMD_LADDER = ((128, 64, 4), (128, 32, 4), (64, 32, 2), (64, 16, 4), (32, 16, 2), (16, 16, 1))

ROWS_SCHEDULE = Schedule(64, 64, 4, 1)  # one pass over rows, no product

# Above head dim 128 mma has no tile that is both wide and free of spills; a handful is cheaper.
WIDE_HEAD = 128
WIDE_LADDER = LADDER[2:]
WIDE_VALUES = 190
COUNTED_PIECES = 6  # beyond, ptxas computes addresses anew


def default_schedules(
    head_dim_qk: int,
    head_dim_v: int,
    score_bytes: int = 0,
    fp32_dot: str = "ieee",
    kernels: tuple[str, ...] = ("forward",),
) -> tuple[ScheduleRow, ...]:
    """Choose a schedule of every kernel for every device class that gets it and element size."""
    rows: list[ScheduleRow] = []
    for target, element_bytes in product(TARGETS, ELEMENT_BYTES):
        demand = Demand(head_dim_qk, head_dim_v, element_bytes, score_bytes)
        unrolled = element_bytes == 4 and fp32_dot == "ieee" and target.vendor == "nvidia"
        unrolled |= target.matrix_unit == "none"
        split = element_bytes == 4 and fp32_dot == "tf32x3" and not unrolled
        demand = replace(demand, unrolled=unrolled, split=split)
        for kernel in kernels if target.has_backward else ("forward",):
            schedule = choose_kernel_schedule(kernel, target, demand)
            rows.append(
                ScheduleRow(target.name, element_bytes, kernel, schedule, target.by_default)
            )
    return tuple(rows)


def choose_kernel_schedule(kernel: str, target: Target, demand: Demand) -> Schedule:
    """Choose by what a kernel holds, walks and sums."""
    match kernel:
        case "forward":
            return choose_schedule(target, demand)
        case "backward_rows":
            return ROWS_SCHEDULE
        case "backward_kv" | "backward_keys" | "forward_keys":
            held = choose_gradient_schedule(target, demand, sum(demand.qk) + sum(demand.v))
            return replace(held, block_q=held.block_kv, block_kv=held.block_q)
        case "backward_q":
            is_half = demand.element_bytes == 2  # float32 products take no wgmma
            stages = STAGES_OF_QUERIES.get(target.matrix_unit, STAGES) if is_half else STAGES
            return choose_gradient_schedule(target, demand, sum(demand.qk), stages)
        case _:
            return choose_gradient_schedule(target, demand, sum(demand.qk))


def choose_schedule(target: Target, demand: Demand) -> Schedule:
    """Take the first step of the ladder that keeps every promise, else the smallest that fits.

    A kernel too large for any step gets the last one; the launcher and `--target` then say so.
    """
    steps = [Schedule(*tile, stages) for tile, stages in _steps(target, demand)]
    fitting = [one for one in steps if shared_bytes(target, demand, one) <= target.shared_bytes]
    fitting = [one for one in fitting if tensor_columns(target, demand, one) <= 512]
    easy = (one for one in fitting if _is_easy(target, demand, one))
    return next(easy, fitting[-1] if fitting else steps[-1])


def score_bytes(formulas: tuple[Basic, ...], dtypes: Mapping[str, str]) -> int:
    """Count the bytes per score that the formulas' tensor reads bring in.

    A read counts when its index mentions both a row and a column: that is a tile as large as the
    scores, and Triton pipelines it through shared memory like keys and values.
    """
    reads = {read for formula in formulas for read in formula.atoms(Read)}
    rows, column = {q_idx.name, q_pos.name}, kv_idx.name
    total = 0
    for read in reads:
        names = {str(symbol) for index in read.indices for symbol in index.free_symbols}
        if column in names and names & rows:
            total += TENSOR_BYTES[dtypes[read.tensor]]
    return total


def shared_bytes(target: Target, demand: Demand, schedule: Schedule) -> int:
    """Estimate the shared memory of a block, from above.

    Keys, values and score tensors are held once per stage in flight; mma and mfma need one stage
    fewer than wgmma, which reads shared memory while it computes.  The query tile passes through
    shared memory, as do the probabilities.
    """
    rows, keys, size = schedule.block_q, schedule.block_kv, demand.element_bytes
    probabilities = rows * keys * size
    unit = _unit(target, demand, schedule)
    if schedule.stages == 1:  # nothing is pipelined: one piece at a time
        queries = rows * size * (max(demand.qk) if unit == "mfma" else sum(demand.qk))
        one = keys * max(size * max(*demand.qk, *demand.v), rows * demand.score_bytes)
        return queries + one + probabilities + SLACK
    keys_values = keys * size * (sum(demand.qk) + sum(demand.v))
    scores = rows * keys * demand.score_bytes
    held = schedule.stages if unit in ("wgmma", "tcgen05") else schedule.stages - 1
    in_flight = held * keys_values + (schedule.stages - 1) * scores
    if demand.split:
        in_flight += rows * size * sum(demand.qk) + keys_values
    if unit == "mfma":  # the query tile leaves before the keys come
        return max(rows * size * max(demand.qk), probabilities) + in_flight
    return rows * size * sum(demand.qk) + in_flight + probabilities + SLACK


def tensor_columns(target: Target, demand: Demand, schedule: Schedule) -> int:
    """Count tensor-memory columns: every partial product, accumulators and probabilities."""
    if _unit(target, demand, schedule) != "tcgen05":
        return 0
    accumulators = sum(max(width, 32) for width in demand.v)
    probabilities = schedule.block_kv * demand.element_bytes // 4
    return len(demand.qk) * schedule.block_kv + accumulators + probabilities


def registers_held(target: Target, demand: Demand, schedule: Schedule) -> float:
    """Count the 32-bit values that a thread holds across the loop body."""
    budget = BUDGETS[target.matrix_unit]
    threads = schedule.warps * target.warp_size
    accumulator = schedule.block_q * sum(demand.v) / threads
    scores = schedule.block_q * schedule.block_kv / threads
    each = 1 + demand.element_bytes / 4 + (budget.score_tensor if demand.score_bytes else 0)
    addresses = budget.piece * min(len(demand.qk) + len(demand.v), COUNTED_PIECES)
    return accumulator + scores * each + addresses


def _steps(target: Target, demand: Demand) -> Iterator[tuple[tuple[int, int, int], int]]:
    """Pipelined tiles first, then the unpipelined ones, which need the least memory."""
    ladder = AMD_LADDER if target.vendor == "amd" else LADDER
    if is_bound_by_unrolling(target, demand):
        ladder = UNROLLED_LADDER
    elif _is_wide(target, demand):
        ladder = WIDE_LADDER
    most = 2 if target.vendor == "amd" or demand.unrolled else 3
    most = most if target.has_async_copies else 1
    yield from product(ladder, range(most, 1, -1))
    yield from product(ladder, (1,))


def _is_easy(target: Target, demand: Demand, schedule: Schedule) -> bool:
    """Whether the tile keeps the promises about registers and unrolling."""
    if is_bound_by_unrolling(target, demand):
        work = schedule.block_q * schedule.block_kv * (sum(demand.qk) + sum(demand.v))
        most = SPLIT_UNROLLED if demand.split else UNROLLED
        return work <= most * schedule.warps * target.warp_size
    values = WIDE_VALUES if _is_wide(target, demand) else BUDGETS[target.matrix_unit].values
    return registers_held(target, demand, schedule) <= values


def _is_wide(target: Target, demand: Demand) -> bool:
    return target.matrix_unit == "mma" and max(demand.head_dim_qk, demand.head_dim_v) > WIDE_HEAD


def _unit(target: Target, demand: Demand, schedule: Schedule) -> str:
    """Name the matrix unit that Triton will use for these tiles."""
    if demand.unrolled or schedule.block_q < ROWS_OF_WGMMA:
        return "mfma" if target.vendor == "amd" else "mma"
    return target.matrix_unit
