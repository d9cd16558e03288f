"""Schedules are compiled by several processes, and no death of one loses the others."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from attnc.tune import parallel
from attnc.tune.parallel import Attempt, Source, compile_all
from tests.tune.conftest import operands

GOOD = {"block_q": 32, "block_kv": 32, "warps": 4, "stages": 2}
ODD = {**GOOD, "block_kv": 48}  # no power of two
DEADLY = {**GOOD, "warps": 3}


def source_of(text: str) -> Source:
    return Source(text, "small", operands(64), "sm_80", "fp16")


def test_what_compiles_is_read_and_what_does_not_is_told(source: str) -> None:
    wanted = [("forward", GOOD), ("forward", ODD)]
    found = {done.schedule: done for done in compile_all(source_of(source), wanted, 2)}
    good, odd = (found[tuple(schedule.items())] for _, schedule in wanted)
    assert good.resources and good.resources.registers > 0 and not good.problem
    assert odd.resources is None and "power of 2" in odd.problem


def _attempt(source: Source, kernel: str, schedule: Mapping[str, int]) -> Attempt:
    if schedule == DEADLY:
        os._exit(1)
    return Attempt(kernel, tuple(schedule.items()), None, "fine")


def test_a_compiler_that_dies_takes_only_its_own_schedule_along(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "attempt", _attempt)
    wanted = [("forward", schedule) for schedule in (GOOD, DEADLY, {**GOOD, "stages": 3})]
    found = {done.schedule: done.problem for done in compile_all(source_of(source), wanted, 2)}
    assert found == {
        tuple(GOOD.items()): "fine",
        tuple(DEADLY.items()): "the compiler died",
        (*tuple(GOOD.items())[:3], ("stages", 3)): "fine",
    }
