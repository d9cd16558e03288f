"""What instructions cost, occupancy, and small loops played: figures that follow from rates."""

from __future__ import annotations

import pytest

from attnc.devices import find_device
from attnc.tune import waves
from attnc.tune.occupancy import occupancy_of
from attnc.tune.pipes import MEMORY_LATENCY, busy_cycles, cost_of, flops_of
from attnc.tune.sass import Instruction, parse_sass
from attnc.tune.timeline import LOOP_DELAY, cycles_per_round

A100, H100, MI300X = map(find_device, ("a100", "h100", "mi300x"))


def one(text: str, stall: int = 1, sets: int = 7, waits: tuple[int, ...] = ()) -> Instruction:
    control = stall | sets << 5 | 7 << 8 | sum(1 << 11 + number for number in waits)
    return Instruction(text, False, control)


def test_control_codes_are_read() -> None:
    listing = """
        /*0000*/  LDGSTS.E.BYPASS.128 [R234], desc[UR16][R56.64], P0 ; /* 0x0000000038ea7fae */
                                                                       /* 0x0005e80008101c50 */
        /*0010*/  EXIT ;
"""
    copy, end = parse_sass(listing).instructions
    assert (copy.stall, copy.sets, copy.waits_for) == (4, (7, 2), ())
    assert (end.stall, end.sets, end.waits_for) == (1, (7, 7), ())
    assert one("FADD R1, R2, R3", waits=(0, 5)).waits_for == (0, 5)


@pytest.mark.parametrize(
    ("text", "device", "pipe", "cycles"),
    [
        ("HMMA.16816.F32 R4, R8, R10, R4", A100, "tensor", 4096 / 512),
        ("HMMA.1688.F32.TF32 R4, R8, R10, R4", A100, "tensor", 2048 / 256),
        # 64 x 128 x 16, a quarter of it in each quarter
        ("HGMMA.64x128x16.F32 R24, R8, gdesc[UR12], R24", H100, "tensor", 65536 / 1024),
        # two operands of 64 x 16 and 32 x 16 halves arrive more slowly than the unit multiplies
        ("HGMMA.64x32x16.F32 R24, gdesc[UR8], R24", H100, "tensor", (64 + 32) * 16 * 2 / 128),
        ("MUFU.EX2 R3, R4", H100, "exp", 8),
        ("FFMA R1, R2, R3, R4", A100, "fp32", 2),
        ("FFMA R1, R2, R3, R4", H100, "fp32", 1),
        ("FMNMX R1, R2, R3, !PT", H100, "alu", 2),
        ("LDS.128 R4, [R2]", H100, "shared", 512 / 32),
        ("LDSM.16.M88.4 R4, [R2]", A100, "shared", 512 / 32),
        ("LDL.LU R4, [R1]", A100, "memory", 128 / 16),
        ("UIADD3 UR4, UR5, 0x1, URZ", H100, "uniform", 2),
    ],
)
def test_cycles_follow_from_the_rates(text: str, device, pipe: str, cycles: float) -> None:
    cost = cost_of(one(text), device)
    assert (cost.pipe, cost.cycles) == (pipe, pytest.approx(cycles))


def test_a_block_keeps_the_pipes_busy_for_all_its_warps() -> None:
    body = [one("HMMA.16816.F32 R4, R8, R10, R4"), one("MUFU.EX2 R3, R4"), one("LDS.64 R4, [R2]")]
    busy = busy_cycles(body, A100, warps=8)
    assert busy == {"issue": 6, "tensor": 16, "exp": 16, "shared": 8 * 256 / 128}
    assert flops_of(body, A100, warps=8) == 8 * 2 * 16 * 8 * 16


def test_amd_products_run_at_the_rate_of_the_data_sheet() -> None:
    body = [Instruction("v_mfma_f32_32x32x8_f16", False), Instruction("v_exp_f32_e32", False)]
    assert waves.flops_of(body, warps=4) == 4 * 2 * 32 * 32 * 8
    busy = waves.busy_cycles(body, MI300X, warps=4)
    assert (busy["tensor"], busy["exp"]) == (32, 16)
    alone, together = waves.cycles_per_round(busy, warps=4, blocks=2)
    assert busy["tensor"] * 2 <= together <= alone * 2


@pytest.mark.parametrize(
    ("device", "registers", "shared", "warps", "blocks", "limit"),
    [
        (H100, 255, 0, 8, 1, "registers"),
        (H100, 168, 0, 4, 3, "registers"),
        (H100, 128, 100 * 1024, 4, 2, "shared memory"),
        (A100, 24, 0, 16, 4, "warps"),
        (A100, 16, 0, 1, 32, "blocks"),
        (MI300X, 256, 0, 4, 2, "registers"),
        (H100, 128, 230 * 1024, 4, 0, "shared memory"),
    ],
)
def test_occupancy(device, registers, shared, warps, blocks, limit) -> None:
    found = occupancy_of(device, registers, shared, warps)
    assert (found.blocks, found.limit) == (blocks, limit)


# ---------------------------------------------------------------- loops, played

EXPS = [one("MUFU.EX2 R3, R4") for _ in range(64)]
PRODUCTS = [one("HMMA.16816.F32 R4, R8, R10, R4") for _ in range(64)]


def test_a_pipe_is_never_faster_than_its_rate() -> None:
    alone, two = cycles_per_round(EXPS, H100, warps=4, blocks=2)
    assert alone == pytest.approx(64 * 8, abs=LOOP_DELAY)
    assert two == pytest.approx(2 * 64 * 8, rel=0.02)


def test_two_blocks_overlap_what_one_does_in_turn() -> None:
    """One waits for its products before the exponentials; two fill each other's gaps."""
    last = one("HMMA.16816.F32 R4, R8, R10, R4", sets=0)
    body = [*PRODUCTS, last, one("FMUL R1, R4, R2", waits=(0,)), *EXPS]
    alone, two = cycles_per_round(body, A100, warps=4, blocks=2)
    assert alone > 64 * 8 * 2
    assert two < 0.75 * 2 * alone
    assert two >= 2 * 64 * 8


def test_a_warp_waits_for_what_it_loads() -> None:
    body = [one("LDG.E.128 R4, [R2.64]", sets=3), one("FADD R1, R4, R4", waits=(3,))]
    alone, _ = cycles_per_round(body, A100, warps=4, blocks=1)
    assert MEMORY_LATENCY < alone < MEMORY_LATENCY + 50


@pytest.mark.parametrize(("pending", "waits"), [(0, True), (4, False)])
def test_copies_of_earlier_iterations_have_arrived(pending: int, waits: bool) -> None:
    copy = [one("LDGSTS.E.BYPASS.128 [R1], [R2.64]"), one("LDGDEPBAR")]
    body = [one(f"DEPBAR.LE SB0, {pending:#x}"), *[one("FADD R1, R2, R3", stall=4)] * 50, *copy]
    alone, _ = cycles_per_round(body, H100, warps=4, blocks=1)
    assert (alone > MEMORY_LATENCY) == waits


@pytest.mark.parametrize("pending", [0, 1])
def test_products_of_a_group_run_beside_their_warp(pending: int) -> None:
    """8 products of 64 cycles and 512 of the warp's own; two wait in the queue without it."""
    product = "HGMMA.64x128x16.F32 R24, R8, gdesc[UR12], R24"
    group = [*[one(product)] * 7, one(product + ", gsb0")]
    body = [*group, one(f"WARPGROUP.DEPBAR.LE gsb0, {pending:#x}"), *EXPS]
    alone, _ = cycles_per_round(body, H100, warps=4, blocks=1)
    assert (900 > alone >= 512) if pending else (1150 > alone >= 1024)


def test_the_warps_of_a_block_meet() -> None:
    """Two warps share the exp unit, and neither starts anew before the other has ended."""
    alone, _ = cycles_per_round([*EXPS, one("BAR.SYNC.DEFER_BLOCKING 0x0")], H100, 8, 1)
    assert alone > 2 * 64 * 8
