"""Loops that a schedule may skew: the same bits, proved reads, and faults that are seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnc.driver import compile_spec, lower_spec
from attnc.ir.nodes import Kernel, Loop, Program
from attnc.ir.printer import print_ir
from attnc.ir.verifier import IRError, verify
from attnc.passes.skew_products import SkewProducts
from attnc.plan.choices import CannotChoose
from attnc.runtime.loader import load_text
from attnc.spec.schema import AttentionSpec
from attnc.verify.ahead_claims import ahead_claims
from attnc.verify.cases import Case
from attnc.verify.claims import Tiling
from attnc.verify.faults_choices import steps_ahead
from attnc.verify.inputs import build_call
from attnc.verify.interpreted import forward_of, inputs_of, scalars_of, small_cases
from attnc.verify.interpreter import OutOfBounds, run
from attnc.verify.meaning import Subject
from attnc.verify.mutants_ir import ir_mutants
from attnc.verify.proofs import prove_claim
from attnc.verify.ways import Way, ask
from tests.verify.specs import spec_of

SKEWED = {
    "full": "",
    "causal": "mask: causal\noutputs: [lse]",
    "pieces": "mask: sliding_window(40) | prefix(20)",
    "head dim in pieces": "head_dim: {qk: 72, v: 24}\nmask: causal",
    "bias": "mask: causal\ntensors: {bias: {shape: [heads, q_len, kv_len]}}\n"
    "score: softcap(score, 3) + bias[h, q_idx, kv_idx]",
    "alibi and a sink": "mask: causal\nscore: alibi\nsink: per_head\nfixes: no",
    "dropout": "mask: causal\ndropout: true",
}
IN_TURN = {
    "no tile without a mask": "mask: causal & ((q_pos - kv_idx) % 3 == 0)",
    "scores met by more than the softmax": "outputs: [entropy]",
}


def sample(body: str) -> AttentionSpec:
    return spec_of("backward: false\n" + body.replace("\nfixes: no", ""))


def forward(spec: AttentionSpec) -> tuple[Program, Kernel]:
    program = lower_spec(spec)
    return program, next(one for one in program.kernels if one.name == "forward")


def loops_of(kernel: Kernel) -> list[Loop]:
    return [stmt for stmt in kernel.body if isinstance(stmt, Loop)]


def bits(program: Program, spec: AttentionSpec, case: Case, skew: bool) -> dict[str, bytes]:
    call = build_call(spec, case)
    tiles = case.tiles or (16, 16)
    made = run(forward_of(program), inputs_of(call), scalars_of(program, call), tiles, skew=skew)
    return {name: array.tobytes() for name, array in made.items()}


def test_a_marked_loop_reads_well(golden) -> None:
    _, kernel = forward(sample("mask: causal"))
    golden(print_ir(loops_of(kernel)[0]))


@pytest.mark.parametrize("body", SKEWED.values(), ids=SKEWED)
def test_a_skewed_loop_gives_the_same_bits(body: str) -> None:
    spec = sample(body)
    program, kernel = forward(spec)
    assert any(loop.ahead for loop in loops_of(kernel))
    for case in small_cases(spec):
        assert bits(program, spec, case, True) == bits(program, spec, case, False), case.name


@pytest.mark.parametrize("body", SKEWED.values(), ids=SKEWED)
def test_what_it_reads_is_proved(body: str) -> None:
    spec = sample(body)
    _, kernel = forward(spec)
    claims = ahead_claims(Tiling(kernel))
    assert len(claims) == 4
    assert {prove_claim(claim, Subject(spec, kernel, 64, 32)).status for claim in claims} == {
        "proved"
    }


def test_every_fault_of_its_steps_is_refuted() -> None:
    spec = sample("mask: causal")
    _, kernel = forward(spec)
    faults = list(steps_ahead(kernel))
    assert len(faults) == 9
    for name, faulty in faults:
        subject = Subject(spec, faulty, 64, 32)
        found = [prove_claim(claim, subject) for claim in ahead_claims(Tiling(faulty))]
        assert "refuted" in {one.status for one in found}, name


def test_the_campaign_plants_such_faults() -> None:
    _, kernel = forward(sample("mask: causal"))
    program = replace(lower_spec(sample("mask: causal")), kernels=(kernel,))
    assert sum("skewed" in mutant.name for mutant in ir_mutants(program)) == 9


def test_numbers_see_reads_beyond_the_last_tile() -> None:
    spec = sample("")
    program, kernel = forward(spec)
    faults = dict(steps_ahead(kernel))
    case = Case("whole tiles", 1, 2, 16, 32, "fp32", (16, 16))
    for what in ("makes scores after the last", "makes the scores of a step later"):
        faulty = replace(program, kernels=(faults[f"loop 0, skewed, {what}"],))
        with pytest.raises(OutOfBounds):
            bits(faulty, spec, case, True)


@pytest.mark.parametrize("body", IN_TURN.values(), ids=IN_TURN)
def test_a_loop_that_cannot_run_ahead_stays(body: str) -> None:
    spec = sample(body)
    _, kernel = forward(spec)
    assert not any(loop.ahead for loop in loops_of(kernel))
    assert "SKEW" not in compile_spec(spec).module.source
    with pytest.raises(CannotChoose, match="no loop of forward of sample can make scores ahead"):
        compile_spec(sample(body + "\nschedule: {skew: true}"))


def test_a_kernel_that_needs_nothing_stays_equal() -> None:
    _, kernel = forward(sample(IN_TURN["no tile without a mask"]))
    assert SkewProducts().run(kernel) == kernel


@pytest.mark.parametrize(
    ("lets", "problem"),
    [
        (("qk", "logits"), "qk runs ahead of k_tile"),
        (("k_tile", "qk", "logits", "v_tile"), "acc_new reads v_tile of another step"),
        (("k_tile", "qk", "logits", "nothing"), "nothing runs ahead in a loop that does not"),
    ],
)
def test_what_runs_ahead_must_stand_by_itself(lets: tuple[str, ...], problem: str) -> None:
    program, kernel = forward(sample("mask: causal"))
    first = loops_of(kernel)[0]
    assert first.ahead is not None
    changed = replace(first, ahead=replace(first.ahead, lets=lets))
    body = tuple(changed if stmt is first else stmt for stmt in kernel.body)
    with pytest.raises(IRError, match=problem):
        verify(replace(kernel, body=body), program.level)


@pytest.mark.parametrize("body", [SKEWED[name] for name in ("pieces", "bias")])
def test_the_text_gives_the_same_bits(body: str) -> None:
    spec = sample(body)
    way = Way(load_text(compile_spec(spec).module.source, spec.name, interpret=True), "interpreter")
    for sizes in ((40, 70), (20, 5)):
        case = Case("", 1, 2 if not spec.fixes_heads else spec.heads_kv, *sizes, "fp16", (16, 16))
        call = build_call(spec, case)
        in_turn = ask(way, call.tensors, call, case).results
        skewed = ask(way, call.tensors, call, replace(case, choices=("skew",))).results
        for name, found in skewed.items():
            np.testing.assert_array_equal(found.numpy(), in_turn[name].numpy())
