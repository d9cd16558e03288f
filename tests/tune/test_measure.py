"""Measuring on a device, played in the interpreter with a stopwatch that is told the times."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest

from attnc.driver import compile_spec
from attnc.runtime.loader import load_text
from attnc.spec import parse_spec
from attnc.tune import measure
from attnc.tune.choose import Candidate, ranked
from attnc.tune.measure import Bench, measured
from attnc.verify.cases import Case

SPEC = parse_spec(
    "heads: {q: 2, kv: 1}\nhead_dim: 16\ndtype: fp16\nmask: causal\n"
    "check: [{q_len: 35, kv_len: 37}]\n"
)
SOURCE = compile_spec(SPEC).module.source
NOMINAL = Case("nominal", 1, 1, 40, 40, "fp16")


def candidate(kernel: str, block: int, predicted: float) -> Candidate:
    schedule = {"block_q": block, "block_kv": 16, "warps": 4, "stages": 1}
    return Candidate(kernel, tuple(schedule.items()), predicted=predicted)


FOUND = tuple(
    candidate(kernel, block, block * 1e-6)
    for kernel in ("forward", "backward_q")
    for block in (16, 32)
)


@pytest.fixture(autouse=True)
def _one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "ENOUGH", 1)  # of the interpreter, which is slow


def bench_of(source: str, times: Callable[[ModuleType], float]) -> Bench:
    module = load_text(source, "measured", interpret=True)

    def stopwatch(work: Callable[[], object]) -> float:
        work()
        return times(module)

    return Bench(SPEC, module, "interpreter", "fp16", stopwatch)


def block_of(module: ModuleType, kernel: str) -> int:
    return module.SCHEDULES[("sm_80", 2, kernel)]["block_q"]


def test_the_best_few_are_measured_and_the_fastest_of_them_wins() -> None:
    # the larger tile is faster on this device, whatever was predicted
    bench = bench_of(SOURCE, lambda module: 1e-3 / block_of(module, "forward"))
    found = measured(bench, FOUND, NOMINAL, 600, lambda what: None)
    forward = [one for one in found if one.kernel == "forward"]
    assert [one.measured for one in forward] == [1e-3 / 16, 1e-3 / 32]
    assert dict(ranked(forward)[0].schedule)["block_q"] == 32
    assert all(one.measured for one in found)


def test_a_kernel_is_measured_beside_the_best_of_the_others() -> None:
    seen: list[tuple[int, ...]] = []

    def times(module: ModuleType) -> float:
        seen.append(tuple(block_of(module, name) for name in ("forward", "backward_q")))
        return 1e-3 / block_of(module, "forward")

    measured(bench_of(SOURCE, times), FOUND, NOMINAL, 600, lambda what: None)
    assert seen == [(16, 16), (32, 16), (32, 16), (32, 32)]


@pytest.mark.parametrize(
    ("kernel", "line", "wrong"),
    [
        ("forward", "row_sum = rescale * row_sum", "row_sum = row_sum"),
        ("backward_q", "d_q_sum * scale", "d_q_sum * scale * (1 + 0.1 * (BLOCK_Q // 32))"),
    ],
)  # fmt: skip
def test_a_schedule_that_is_wrong_on_the_device_never_wins(
    kernel: str, line: str, wrong: str
) -> None:
    assert line in SOURCE
    source = SOURCE.replace(line, wrong)
    bench = bench_of(source, lambda module: 1e-3 / block_of(module, kernel))
    found = measured(bench, FOUND, NOMINAL, 600, lambda what: None)
    tried = [one for one in found if one.kernel == kernel]
    faulty = [one for one in tried if one.problem]
    assert faulty and all(re.match("wrong on the device: check", one.problem) for one in faulty)
    assert all(one.measured is None for one in faulty)
    if kernel == "backward_q":
        assert [dict(one.schedule)["block_q"] for one in ranked(tried)] == [16]


def test_when_time_is_up_predictions_stay() -> None:
    bench = bench_of(SOURCE, lambda module: 1.0)
    assert measured(bench, FOUND, NOMINAL, -1, lambda what: None) == FOUND


def test_what_is_out_is_not_tried() -> None:
    broken = tuple(replace(one, problem="no") for one in FOUND)
    assert measured(bench_of(SOURCE, lambda m: 1.0), broken, NOMINAL, 600, print) == broken
