"""The default schedules: legal, within every limit, and small where float32 products unroll."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from attnc.driver import lower_spec
from attnc.ir.interface import Schedule
from attnc.plan.demand import Demand, pieces
from attnc.plan.gradient_schedule import gradient_shared_bytes
from attnc.plan.schedule import (
    choose_schedule,
    default_schedules,
    registers_held,
    score_bytes,
    shared_bytes,
    tensor_columns,
)
from attnc.spec import parse_spec
from attnc.spec.frozen import FrozenMap
from attnc.spec.schema import Tuned, TunedRow
from attnc.symbols import Read, b, h, kv_idx, q_idx, q_pos, score, tensor_symbol
from attnc.targets import TARGETS as ALL_TARGETS
from attnc.targets import find_target

HEAD_DIMS = st.integers(1, 1024)
TARGETS = st.sampled_from([target for target in ALL_TARGETS if target.by_default])


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@given(HEAD_DIMS)
def test_pieces_cover_the_head_dim_and_only_the_last_is_padded(size: int) -> None:
    widths = pieces(size)
    assert all(is_power_of_two(width) and 16 <= width <= 128 for width in widths)
    assert sum(widths[:-1]) < size <= sum(widths)
    assert sum(widths) - size < 16
    assert list(widths) == sorted(widths, reverse=True)


@pytest.mark.parametrize(
    ("size", "widths"),
    [(1, (16,)), (72, (64, 16)), (80, (64, 16)), (96, (64, 32)), (112, (64, 32, 16)),
     (120, (128,)), (24, (32,)), (128, (128,)), (192, (128, 64)), (256, (128, 128))],
)  # fmt: skip
def test_pieces_of_known_head_dims(size: int, widths: tuple[int, ...]) -> None:
    assert pieces(size) == widths


@given(
    HEAD_DIMS, HEAD_DIMS, st.sampled_from([0, 2, 4, 8]), st.sampled_from(["ieee", "tf32", "tf32x3"])
)
def test_every_target_gets_a_schedule_that_fits(qk: int, v: int, per_score: int, dot: str) -> None:
    rows = default_schedules(qk, v, per_score, dot)
    assert {(row.device, row.element_bytes) for row in rows} == {
        (target.name, size) for target in ALL_TARGETS for size in (2, 4)
    }
    for row in (row for row in rows if row.is_listed):  # tuning compiles the others
        target = find_target(row.device)
        unrolled = dot == "ieee" and row.element_bytes == 4 and target.vendor == "nvidia"
        split = dot == "tf32x3" and row.element_bytes == 4
        demand = Demand(qk, v, row.element_bytes, per_score, unrolled, split)
        assert shared_bytes(target, demand, row.schedule) <= target.shared_bytes, row
        assert tensor_columns(target, demand, row.schedule) <= 512, row


KERNELS = ("forward", "backward_rows", "backward_q", "backward_kv")


@given(HEAD_DIMS, HEAD_DIMS, st.sampled_from([0, 4]))
def test_every_number_is_a_legal_one(qk: int, v: int, per_score: int) -> None:
    for row in default_schedules(qk, v, per_score, "ieee", KERNELS):
        target, schedule = find_target(row.device), row.schedule
        for size in (schedule.block_q, schedule.block_kv, schedule.warps):
            assert is_power_of_two(size)
        assert target.dot_minimum <= schedule.block_q <= 128
        assert target.dot_minimum <= schedule.block_kv <= 128
        assert schedule.warps <= target.max_warps
        assert 1 <= schedule.stages <= 3


@given(st.integers(1, 128), TARGETS)
def test_up_to_head_dim_128_half_precision_gets_a_tile_worth_having(size: int, target) -> None:
    schedule = choose_schedule(target, Demand(size, size, 2))
    assert schedule.block_q * schedule.block_kv >= 128 * 32
    assert schedule.stages >= 2


@given(HEAD_DIMS, TARGETS)
def test_float32_without_a_matrix_unit_unrolls_little(size: int, target) -> None:
    demand = Demand(size, size, 4, unrolled=True)
    schedule = choose_schedule(target, demand)
    work = schedule.block_q * schedule.block_kv * 2 * sum(demand.qk)
    least = 16 * 16 * 2 * sum(demand.qk)
    assert work <= max(512 * schedule.warps * target.warp_size, least)


def test_the_schedules_that_findings_measured() -> None:
    rows = {(row.device, row.element_bytes): row.schedule for row in default_schedules(128, 128)}
    assert rows["sm_80", 2] == Schedule(128, 64, 8, 3)
    assert rows["sm_90", 2] == Schedule(128, 64, 8, 3)
    assert rows["sm_86", 2] == Schedule(128, 64, 8, 2)  # 99 KB of shared memory
    assert rows["gfx942", 2] == Schedule(128, 64, 4, 2)


@given(HEAD_DIMS, HEAD_DIMS, st.sampled_from([0, 4]))
def test_a_kernel_of_the_backward_fits_every_target(qk: int, v: int, per_score: int) -> None:
    for row in default_schedules(qk, v, per_score, "tf32", ("backward_q", "backward_kv")):
        tile, target = row.schedule, find_target(row.device)
        if row.kernel == "backward_kv":
            tile = replace(tile, block_q=tile.block_kv, block_kv=tile.block_q)
        assert tile.block_q >= tile.block_kv
        demand = Demand(qk, v, row.element_bytes, per_score)
        needed = gradient_shared_bytes(target, demand, tile)
        assert needed <= target.shared_bytes or tile.block_q == tile.block_kv == 16, row


@pytest.mark.parametrize(
    ("size", "device", "held_q", "held_kv"),
    [
        (64, "sm_90", (128, 64, 8), (128, 64, 8)),
        (128, "sm_90", (128, 64, 8), (128, 64, 8)),
        (64, "sm_80", (128, 64, 8), (128, 32, 8)),
        (80, "sm_80", (128, 32, 8), (128, 32, 8)),
        (96, "sm_80", (128, 32, 8), (128, 32, 8)),
        (128, "sm_80", (128, 32, 8), (64, 64, 8)),
        (128, "sm_86", (128, 32, 8), (64, 64, 8)),  # 99 KB of shared memory
        (192, "sm_80", (128, 32, 8), (32, 32, 4)),  # its pieces of 64 are not split
        (256, "sm_80", (64, 64, 8), (64, 64, 8)),
    ],
)
def test_the_backward_takes_the_tiles_that_were_measured(
    size: int, device: str, held_q: tuple[int, ...], held_kv: tuple[int, ...]
) -> None:
    rows = default_schedules(size, size, kernels=KERNELS)
    found = {r.kernel: r.schedule for r in rows if (r.device, r.element_bytes) == (device, 2)}
    q, kv = found["backward_q"], found["backward_kv"]
    stages = 3 if device == "sm_90" else 2  # wgmma reads shared memory while it computes
    assert (q.block_q, q.block_kv, q.warps, q.stages) == (*held_q, stages)
    assert (kv.block_kv, kv.block_q, kv.warps, kv.stages) == (*held_kv, 2)


def test_estimates_bound_what_the_backward_was_compiled_to() -> None:
    """Bytes of shared memory of backward_q, or of backward_kv turned over, as printed."""
    measured = [
        ("sm_80", 64, Schedule(128, 64, 8, 2), 48),
        ("sm_80", 64, Schedule(128, 32, 8, 2), 40),
        ("sm_80", 96, Schedule(128, 32, 8, 2), 60),
        ("sm_80", 128, Schedule(128, 32, 8, 2), 80),
        ("sm_80", 128, Schedule(64, 64, 8, 2), 72),
        ("sm_80", 192, Schedule(32, 32, 4, 2), 50),
        ("sm_80", 256, Schedule(64, 64, 8, 2), 136),
        ("sm_80", 256, Schedule(64, 64, 4, 1), 128),
        ("sm_90", 64, Schedule(128, 64, 8, 2), 64),
        ("sm_90", 128, Schedule(128, 64, 8, 2), 128),
    ]
    for name, size, schedule, kilobytes in measured:
        estimate = gradient_shared_bytes(find_target(name), Demand(size, size, 2), schedule)
        assert kilobytes * 1024 <= estimate <= 1.6 * kilobytes * 1024, (name, size, schedule)


def test_tensor_memory_bounds_the_tile_of_sm_100() -> None:
    # d 112 at 128x128 took 576 columns when compiled, and the kernel was empty
    blackwell = find_target("sm_100")
    assert tensor_columns(blackwell, Demand(112, 112, 2), Schedule(128, 128, 8, 2)) == 576
    assert tensor_columns(blackwell, Demand(192, 192, 2), Schedule(128, 128, 8, 2)) == 512
    assert choose_schedule(blackwell, Demand(512, 512, 2)).block_q < 64  # falls back to mma


def test_a_score_tensor_narrows_the_tile() -> None:
    hopper = find_target("sm_90")
    plain, biased = Demand(128, 128, 2), Demand(128, 128, 2, score_bytes=4)
    assert choose_schedule(hopper, plain).block_kv == 64
    assert choose_schedule(hopper, biased).block_kv == 32
    same = Schedule(128, 64, 8, 3)
    assert (
        shared_bytes(hopper, biased, same) - shared_bytes(hopper, plain, same) == 2 * 128 * 64 * 4
    )
    assert registers_held(hopper, biased, same) > registers_held(hopper, plain, same)


def test_estimates_bound_what_was_compiled() -> None:
    """Triton 3.8, the prototype of FINDINGS 4: bytes of shared memory in the compiled kernel."""
    measured = [
        ("sm_80", Demand(128, 128, 2), Schedule(128, 64, 8, 3), 98304),
        ("sm_80", Demand(128, 128, 2, 4), Schedule(128, 64, 8, 3), 163840),
        ("sm_90", Demand(128, 128, 2), Schedule(128, 64, 8, 3), 131072),
        ("sm_90", Demand(128, 128, 2, 4), Schedule(128, 64, 8, 3), 196608),
        ("sm_90", Demand(128, 128, 4, split=True), Schedule(128, 64, 8, 2), 262144),
        ("sm_80", Demand(64, 64, 4, split=True), Schedule(128, 64, 8, 3), 147456),
        ("sm_100", Demand(256, 256, 2), Schedule(128, 64, 8, 2), 197222),
        ("sm_90", Demand(512, 512, 2), Schedule(64, 32, 8, 2), 196608),
        ("sm_86", Demand(1024, 1024, 2), Schedule(16, 16, 4, 1), 37376),
        ("sm_86", Demand(1024, 1024, 4, unrolled=True), Schedule(16, 16, 8, 1), 74854),
        ("gfx942", Demand(256, 256, 2), Schedule(128, 64, 4, 2), 65536),
        ("gfx942", Demand(80, 80, 2), Schedule(128, 64, 4, 2), 36864),
    ]
    for name, demand, schedule, held in measured:
        estimate = shared_bytes(find_target(name), demand, schedule)
        assert held <= estimate, (name, demand)
        assert estimate <= 2 * held, (name, demand)


def test_score_bytes_count_reads_over_rows_and_columns() -> None:
    bias, table = tensor_symbol("bias", "fp32"), tensor_symbol("table", "fp16")
    ids = tensor_symbol("ids", "int32")
    dtypes = {"bias": "fp32", "table": "fp16", "ids": "int32"}
    dense = score + Read(bias, h, q_idx, kv_idx)
    relative = score + Read(table, h, kv_idx - q_pos)
    documents = sympy.Eq(Read(ids, b, q_pos), Read(ids, b, kv_idx))
    assert score_bytes((dense,), dtypes) == 4
    assert score_bytes((relative,), dtypes) == 2
    assert score_bytes((score, documents), dtypes) == 0
    assert score_bytes((dense + relative, dense > 0), dtypes) == 6


TUNED = {"block_q": 64, "block_kv": 128, "warps": 4, "stages": 2}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("auto", TUNED),
        ("{block_kv: 32}", TUNED | {"block_kv": 32}),  # what the spec says is said
        ("{block_kv: [32, 128]}", TUNED),
        ("{block_kv: [32, 64]}", TUNED | {"block_kv": 32}),  # of a list without it, the first
        ("{backward_q: {block_q: 16}}", TUNED),
    ],
)
def test_a_tuned_schedule_fills_what_the_spec_leaves_open(
    asked: str, expected: dict[str, int]
) -> None:
    tuned = Tuned((TunedRow("sm_90", 2, "forward", FrozenMap(TUNED)),))
    spec = parse_spec(f"heads: 8\nhead_dim: 64\nmask: causal\nschedule: {asked}\n")
    program = lower_spec(replace(spec, tuned=tuned))
    rows = {
        (row.device, row.element_bytes, row.kernel): asdict(row.schedule)
        for row in program.interface.schedules
    }
    choices = dict.fromkeys(("skew", "tma", "last_first"), False)
    assert rows["sm_90", 2, "forward"] == expected | choices
    plain = {
        (row.device, row.element_bytes, row.kernel): asdict(row.schedule)
        for row in lower_spec(spec).interface.schedules
    }
    assert {key for key in rows if rows[key] != plain[key]} <= {("sm_90", 2, "forward")}


def test_untuned_the_first_of_a_list_counts() -> None:
    spec = parse_spec("heads: 8\nhead_dim: 64\nschedule: {stages: [1, 4], block_q: 32}\n")
    forward = [row for row in lower_spec(spec).interface.schedules if row.kernel == "forward"]
    assert {(row.schedule.stages, row.schedule.block_q) for row in forward} == {(1, 32)}
