"""What cross-compiled kernels cost: figures that follow from the kernel, and refusals."""

from __future__ import annotations

import pytest

from attnc.driver import compile_spec
from attnc.spec import parse_spec
from attnc.targets import RefusedTarget, UnknownTarget, find_target
from attnc.tune.fit import ScheduleDoesNotFit, checked_report, largest_that_fits
from attnc.tune.operands import operands_of
from attnc.tune.resources import KernelResources, report, schedule_text
from attnc.tune.tables import COLUMNS, MIX_COLUMNS, mix_table, resource_table
from tests.tune.conftest import operands

PHASES = ["unmasked", "masked"]
SCHEDULE = {"block_q": 64, "block_kv": 32, "warps": 4, "stages": 2}
UNITS = {"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCHMMA", "gfx942": "v_mfma"}


def compiled(source: str, target: str, element: str = "fp16") -> KernelResources:
    schedule = {**SCHEDULE, "warps": 2 if target.startswith("gfx") else 4}  # of 32 rows, of 16 rows
    (one,) = report(source, operands(64), target, element, schedule, "small_attention")
    return one


@pytest.mark.parametrize("target", UNITS)
def test_a_kernel_is_measured_on_every_kind_of_device(source: str, target: str) -> None:
    one = compiled(source, target)
    assert one.fits and one.problems == () and one.findings == ()
    assert one.spills == 0
    assert 0 < one.registers <= find_target(target).registers_per_thread
    # keys and values of 32 x 64 halves cannot take less than one tile, nor more than all stages
    assert 32 * 64 * 2 <= one.shared_bytes <= one.shared_limit
    assert one.matrix_instructions
    assert all(name.startswith(UNITS[target]) for name, _ in one.matrix_instructions)
    unmasked, masked = one.loops
    assert (unmasked.phase, masked.phase) == ("unmasked", "masked")
    assert masked.count("compare") > unmasked.count("compare")
    assert masked.count("select") > unmasked.count("select")
    # one exponential a score, and one a row and thread for the rescaling
    assert 1.0 <= one.exp2_per_score <= 1.2
    assert (one.tensor_columns > 0) == (target == "sm_100")


def test_the_products_of_a_tile_add_up(source: str) -> None:
    """2 * 64 * 32 * (64 + 64) operations a tile are 128 HMMA.16816 in all, 32 for each warp."""
    assert (
        compiled(source, "sm_80").loops[0].count("mma")
        == 2 * 64 * 32 * 128 // (2 * 16 * 8 * 16) // 4
    )


def test_float32_means_ieee_and_takes_no_matrix_unit(source: str) -> None:
    one = compiled(source, "sm_80", "fp32")
    assert one.matrix_instructions == ()
    # 64 * 32 * 128 multiply-adds over 128 threads
    assert one.loops[0].count("fma") >= 64 * 32 * 128 // 128


def test_a_schedule_that_does_not_fit_names_one_that_does(source: str) -> None:
    wide = {"block_q": 128, "block_kv": 128, "warps": 8, "stages": 3}
    with pytest.raises(ScheduleDoesNotFit) as caught:
        checked_report(source, operands(256), "sm_86", "fp16", wide, "small_attention")
    best = largest_that_fits(source, operands(256), "sm_86", "fp16", wide, "small_attention")
    assert best is not None
    (one,) = report(source, operands(256), "sm_86", "fp16", best, "small_attention")
    assert one.fits
    (too_much,) = report(source, operands(256), "sm_86", "fp16", wide, "small_attention")
    assert str(caught.value) == (
        "user/schedule-does-not-fit forward at 128x128, 8 warps, 3 stages in fp16 does not fit "
        f"sm_86: {too_much.shared_bytes} bytes of shared memory, limit 101376\n"
        f"  help: this fits: {schedule_text(best)}"
    )
    assert too_much.shared_bytes > 101376


def test_what_fits_is_reported(source: str) -> None:
    args = (source, operands(64), "sm_80", "fp16", SCHEDULE, "small_attention")
    assert checked_report(*args) == report(*args)


def test_too_much_tensor_memory_is_no_empty_success(source: str) -> None:
    """Triton compiles this one to a kernel without a single product."""
    wide = {"block_q": 128, "block_kv": 32, "warps": 8, "stages": 2}
    (one,) = report(source, operands(512), "sm_100", "fp16", wide, "small_attention")
    assert one.tensor_columns > 512
    assert any("tensor-memory columns, limit 512" in problem for problem in one.problems)
    assert not one.fits


def test_masked_loads_without_other_are_found(source: str) -> None:
    text = source.replace("mask=exists[None, :], other=0.0)", "mask=exists[None, :])")
    assert text != source
    (finding,) = compiled(text, "sm_80").findings
    assert finding.endswith("is a masked load without `other`")


def test_tables_have_a_cell_for_every_column(source: str) -> None:
    one = compiled(source, "sm_80")
    (row,) = resource_table([one])
    assert len(row) == len(COLUMNS)
    assert row[:4] == ["forward", "sm_80", "fp16", "64x32, 4 warps, 2 stages"]
    mixes = mix_table([one])
    assert [mix[1:3] for mix in mixes] == [["sm_80", "unmasked"], ["sm_80", "masked"]]
    for mix, loop in zip(mixes, one.loops, strict=True):
        assert len(mix) == len(MIX_COLUMNS)
        assert sum(map(int, mix[4:])) == int(mix[3]) == loop.total
    plain = one.as_json()
    assert plain["fits"] is True and plain["schedule"] == SCHEDULE
    assert plain["loops"][0]["total"] == one.loops[0].total
    assert one.text.startswith("sm_80 fp16 64x32, 4 warps, 2 stages: ")


def test_targets_are_refused_by_name(source: str) -> None:
    known = "sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, gfx942, gfx950"
    with pytest.raises(UnknownTarget) as unknown:
        compiled(source, "sm_42")
    assert str(unknown.value) == (
        f"user/unknown-target no target is called 'sm_42'\n  help: known targets: {known}"
    )
    with pytest.raises(RefusedTarget) as refused:
        compiled(source, "sm_75", element="bf16")
    assert str(refused.value) == (
        "user/refused-target forward cannot be made for sm_75 (T4, RTX 20): "
        "it computes no bf16; take fp16: `dtype: fp16` in the spec"
    )
    with pytest.raises(RefusedTarget) as backward:
        report(source, operands(64), "sm_75", "fp16", SCHEDULE, kernel="backward_q")
    assert str(backward.value) == (
        "user/refused-target backward_q cannot be made for sm_75 (T4, RTX 20): "
        "it gets kernels of the forward alone"
    )


def test_every_kernel_of_a_module_has_figures() -> None:
    """The backward's as a call would launch them; the one without a loop is not empty."""
    spec = parse_spec("name: trained\nheads: {q: 4, kv: 2}\nhead_dim: 64\nmask: causal\n")
    source, tile = compile_spec(spec).module.source, {**SCHEDULE, "block_kv": 64, "stages": 1}
    names = ("backward_rows", "backward_q", "backward_kv")
    for name in names:
        (one,) = report(source, operands_of(spec), "sm_90", "bf16", tile, "trained", name)
        assert (one.kernel, one.problems, one.spills) == (name, (), 0)
        assert [loop.phase for loop in one.loops] == ([] if name == "backward_rows" else PHASES)
