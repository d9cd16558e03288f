"""The cost model: FLOPs that the machine code counts, known rankings, and what limits."""

from __future__ import annotations

import pickle
from functools import cache

import pytest

from attnc.devices import find_device
from attnc.driver import Compilation, compile_spec
from attnc.explain.launches import Launch, launch_of
from attnc.explain.situation import situation_of
from attnc.spec import parse_spec
from attnc.tune.operands import operands_of
from attnc.tune.predict import Prediction, predict
from attnc.tune.resources import KernelResources, report

SIZES = "sizes: {batch: 2, q_len: 16384, kv_len: 16384}\n"
SPECS = {
    "causal": "heads: 16\nhead_dim: 64\nmask: causal\noutputs: [lse]\n",
    "wide": "heads: 16\nhead_dim: 128\nmask: causal\noutputs: [lse]\n",
    "grouped": "heads: {q: 8, kv: 2}\nhead_dim: {qk: 96, v: 64}\nscore: softcap(score, 50)\n",
}
Tile = tuple[int, int, int, int]


@cache
def compiled(spec: str) -> Compilation:
    return compile_spec(parse_spec(SPECS[spec] + SIZES))


@cache
def resources(spec: str, target: str, tile: Tile, kernel: str = "forward") -> KernelResources:
    made, schedule = compiled(spec), dict(zip(("block_q", "block_kv"), tile, strict=False))
    schedule |= {"warps": tile[2], "stages": tile[3]}
    source, operands = made.module.source, operands_of(made.spec)
    (one,) = report(source, operands, target, "fp16", schedule, "kernel", kernel)
    return one


def work(spec: str, tile: Tile, kernel: str = "forward") -> Launch:
    made = compiled(spec)
    (one,) = (one for one in made.program.kernels if one.name == kernel)
    return launch_of(one, situation_of(made.spec), tile[0], tile[1], 2)


def predicted(spec: str, device: str, tile: Tile, kernel: str = "forward") -> Prediction:
    one = find_device(device)
    return predict(resources(spec, one.target, tile, kernel), one, work(spec, tile, kernel))


@pytest.mark.parametrize("device", ["a100", "h100"])
@pytest.mark.parametrize("spec", ["causal", "grouped"])
def test_the_loops_multiply_what_the_formula_says(spec: str, device: str) -> None:
    """96 features are padded to 64 + 32; every loop must have been found as a whole."""
    tile = (64, 32, 4, 2)
    found = predicted(spec, device, tile)
    per_pair = 2 * (64 + 64) if spec == "causal" else 2 * (96 + 64)
    assert [loop.flops for loop in found.loops] == [64 * 32 * per_pair] * len(found.loops)
    assert found.loops and work(spec, tile).tile_flops == 64 * 32 * per_pair


@pytest.mark.slow
@pytest.mark.parametrize("device", ["a100", "h100", "mi300x"])
@pytest.mark.parametrize("spec", ["causal", "grouped"])
@pytest.mark.parametrize("kernel", ["backward_q", "backward_kv"])
def test_so_do_those_of_the_backward(kernel: str, spec: str, device: str) -> None:
    tile = (64, 64, 2 if device == "mi300x" else 4, 1)  # AMD: waves take 32 rows
    qk, v = (64, 64) if spec == "causal" else (96, 64)
    per_pair = 2 * (2 * qk + v) if kernel == "backward_q" else 2 * (2 * qk + 2 * v)
    found = predicted(spec, device, tile, kernel)
    assert [loop.flops for loop in found.loops] == [64 * 64 * per_pair] * len(found.loops)
    assert found.loops


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "device", "order"),
    [
        # ANCHORS 4.4: what is known to be fast, best first; the last one spills in its loop
        ("wide", "h100", [(128, 128, 8, 3), (64, 64, 4, 3), (128, 64, 4, 3)]),
        ("wide", "h100", [(128, 64, 8, 3), (64, 32, 4, 3), (128, 128, 4, 2)]),
        ("causal", "h100", [(128, 128, 4, 3), (64, 64, 4, 3)]),
        ("causal", "a100", [(128, 64, 4, 3), (128, 128, 8, 2), (64, 64, 4, 3)]),
        ("wide", "a100", [(128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 4, 2)]),
    ],
)
def test_known_tiles_rank_as_they_are_known_to(spec: str, device: str, order: list[Tile]) -> None:
    times = [predicted(spec, device, tile).seconds for tile in order]
    assert times == sorted(times)


def test_a_kernel_that_ptxas_gave_up_on_is_told_by_its_spills() -> None:
    found = predicted("wide", "a100", (128, 64, 4, 3))
    assert found.loops[0].spills > 50
    assert f"{sum(loop.spills for loop in found.loops)} spills in the loops" in found.text


def test_warps_that_repeat_each_other_are_told() -> None:
    """Waves of 32 rows: the third and fourth of 64 rows do the first product again."""
    found = predicted("causal", "mi300x", (64, 32, 4, 1))
    assert "products are done 1.5 times over" in found.text


def test_a_prediction_explains_itself() -> None:
    tile = (128, 64, 8, 3)
    found = predicted("wide", "h200", tile)
    launched = work("wide", tile)
    assert found.flops == launched.tiles * launched.tile_flops
    assert found.bytes == launched.bytes
    assert found.blocks == 1 and found.waves == pytest.approx(2 * 16 * 128 / 132)
    first = found.loops[0]
    assert first.bound <= found.cycles <= first.alone * 1.01
    assert 0.2 < found.tflops / find_device("h200").tensor_tflops < 0.8
    assert found.text == (
        f"{found.seconds * 1e3:.3g} ms, {found.tflops:.0f} of 989 TFLOP/s; "
        f"a tile takes {found.cycles:.0f} cycles "
        f"(busy: {first.busy[0][0]} {first.busy[0][1]:.0f}, "
        f"{first.busy[1][0]} {first.busy[1][1]:.0f}); limited by {found.limited_by}; "
        "1 of 1 blocks an SM (registers); 31.0 waves"
    )


def test_more_of_a_device_is_faster() -> None:
    tile = (128, 64, 8, 3)
    assert predicted("wide", "h200", tile).seconds < predicted("wide", "h100_pcie", tile).seconds


def test_a_kernel_without_a_loop_moves_its_tensors() -> None:
    found = predicted("wide", "h200", (64, 64, 4, 1), "backward_rows")
    assert found.limited_by == "memory" and found.loops == ()
    assert found.seconds == pytest.approx(found.bytes / 4.8e12)


def test_work_on_one_wave_takes_as_long_as_its_longest_program() -> None:
    tile = (128, 64, 8, 3)
    one = resources("wide", "sm_90", tile)
    few = Launch(((0, 1), (100, 1)), 1, 2**22, 2**15, 1)
    many = Launch(((0, 1), (100, 1)), 66, 2**22, 2**15, 1)
    h200 = find_device("h200")
    assert predict(one, h200, few).seconds == predict(one, h200, many).seconds
    twice = Launch(((0, 1), (100, 1)), 132, 2**22, 2**15, 1)
    assert predict(one, h200, twice).seconds > predict(one, h200, many).seconds


def test_another_class_is_refused() -> None:
    tile = (128, 64, 8, 3)
    with pytest.raises(ValueError, match="compiled for sm_90, but a100 is sm_80"):
        predict(resources("wide", "sm_90", tile), find_device("a100"), work("wide", tile))


def test_results_are_small_enough_to_send_and_predict_the_same() -> None:
    tile = (128, 64, 8, 3)
    one = resources("wide", "sm_90", tile)
    sent = pickle.dumps(one)
    assert len(sent) < 2**15
    h200 = find_device("h200")
    assert predict(pickle.loads(sent), h200, work("wide", tile)) == predicted("wide", "h200", tile)
    assert "bodies" not in one.as_json()
