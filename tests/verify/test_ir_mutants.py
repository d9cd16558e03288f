"""Every fault planted in a program is caught, or shown by proof to change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sympy import And, Ne

from attnc.driver import lower_spec
from attnc.ir.nodes import Loop, Program
from attnc.spec import read_spec
from attnc.spec.schema import AttentionSpec
from attnc.symbols import kv_idx
from attnc.verify import mutants_ir
from attnc.verify.faults import CATALOGUE, all_faults
from attnc.verify.interpreted import mismatch, small_cases
from attnc.verify.mutants_ir import Jury, Mutant, ir_mutants
from attnc.verify.switches import settled
from tests.verify import kernels

SPEC, READY = kernels.attention_spec(), kernels.ready()
SPECS = Path(__file__).parents[2] / "specs"


def test_every_kind_of_fault_finds_its_place() -> None:
    kernel = lower_spec(read_spec(SPECS / "mistral_window.yaml")).kernels[0]
    empty = [generator.__name__ for generator in CATALOGUE if not list(generator(kernel))]
    assert not empty
    assert len(CATALOGUE) == 13


def test_mutants_are_distinct_and_differ_from_the_program() -> None:
    mutants = list(ir_mutants(READY))
    assert len(mutants) > 100
    assert len({mutant.program.kernels for mutant in mutants}) == len(mutants)
    assert all(mutant.program != READY for mutant in mutants)


def one_of_each_kind(program: Program) -> list[Mutant]:
    """The first mutant of each generator and what it applies to: a sample that tests can afford."""
    found: dict[str, Mutant] = {}
    for generator in CATALOGUE:
        faults = [
            fault for fault in generator(program.kernels[0]) if fault[1] != program.kernels[0]
        ]
        for name, faulty in faults[:: max(1, len(faults) // 3)]:
            found[name] = Mutant(name, replace(program, kernels=(faulty,)))
    return list(found.values())


def test_each_kind_of_fault_is_caught() -> None:
    jury = Jury(SPEC, READY)
    assert not jury.shortcomings
    verdicts = [jury.judge(mutant) for mutant in one_of_each_kind(READY)]
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    assert outcomes["survived"] == 0, [v for v in verdicts if v.outcome == "survived"]
    assert outcomes["killed"] > 25


COMPILED = ["mod5_mask"]
OTHERS = ["mistral_window", "causal_mha", "head_gates"]


def assert_every_fault_is_caught(spec: AttentionSpec) -> None:
    for _, meant, program in settled(spec, lower_spec(spec)):
        verdicts = list(mutants_ir.campaign(meant, program))
        assert len(verdicts) > 90
        assert [v for v in verdicts if v.outcome == "survived"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_every_fault_of_a_forward_is_caught(name: str) -> None:
    assert_every_fault_is_caught(replace(read_spec(SPECS / f"{name}.yaml"), backward=False))


@pytest.mark.fuzz
@pytest.mark.parametrize("name", [*COMPILED, *OTHERS])
def test_every_fault_of_forward_and_backward_is_caught(name: str) -> None:
    assert_every_fault_is_caught(read_spec(SPECS / f"{name}.yaml"))


def test_a_fault_that_changes_nothing_is_proved_equivalent() -> None:
    """The masked loop's `kv_idx < kv_len` is implied by its `kv_idx < key_stop`."""
    name = "loop 1: k_tile without kv_idx < kv_len"
    faulty = dict(all_faults(READY.kernels[0]))[name]
    verdict = Jury(SPEC, READY).judge(Mutant(name, replace(READY, kernels=(faulty,))))
    assert (verdict.outcome, verdict.by) == ("equivalent", "every obligation holds of it")


def test_what_the_original_lacks_convicts_nobody_and_absolves_nobody() -> None:
    """Against a spec that the program does not implement, numbers judge its mutants."""
    other = kernels.attention_spec(mask=And(kernels.CAUSAL, Ne(kv_idx, 3)))
    jury = Jury(other, READY)
    assert jury.shortcomings
    name = "loop 1: k_tile without kv_idx < kv_len"
    faulty = dict(all_faults(READY.kernels[0]))[name]
    verdict = jury.judge(Mutant(name, replace(READY, kernels=(faulty,))))
    assert verdict.outcome == "killed" and verdict.by.startswith("numbers, ")


@pytest.mark.parametrize(
    "name",
    ["causal_mha", "longformer", "documents_packed", "head_gates", "dense_bias", "mod5_mask"],
)
def test_compiled_programs_give_the_reference(name: str) -> None:
    spec = read_spec(SPECS / f"{name}.yaml")
    program = lower_spec(spec)
    assert [mismatch(program, spec, case) for case in small_cases(spec)] == [None] * 3


def test_numbers_notice_a_missing_loop() -> None:
    kernel = READY.kernels[0]
    masked = [stmt for stmt in kernel.body if isinstance(stmt, Loop)][1]
    body = tuple(stmt for stmt in kernel.body if stmt is not masked)
    program = replace(READY, kernels=(replace(kernel, body=body),))
    problem = mismatch(program, SPEC, next(small_cases(SPEC)))
    assert problem is not None and problem.startswith("out is ")
