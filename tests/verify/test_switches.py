"""A closed head is skipped where no gradient is wanted, and only there: both are proved."""

from __future__ import annotations

from dataclasses import replace

from sympy import Basic, Or, false, true

from attnc import symbols
from attnc.driver import lower_spec
from attnc.ir.nodes import Program
from attnc.ir.rebuild import map_stmt, substitution
from attnc.spec import parse_spec
from attnc.verify.formulas import check_formulas
from attnc.verify.obligations import Obligation
from attnc.verify.proofs import prove
from attnc.verify.switches import settled

SPEC = parse_spec("name: sample\nheads: 2\nhead_dim: 16\nmask: causal\nhead_gate: true\n")
SHAPES = ((32, 16),)


def judged(program: Program) -> dict[str, list[Obligation]]:
    """What is shown of the forward, by kind of call."""
    alone = replace(program, kernels=program.kernels[:1])
    return {
        calls: [*check_formulas(spec, variant), *prove(spec, variant, SHAPES)]
        for calls, spec, variant in settled(SPEC, alone)
    }


def with_keep(program: Program, value: Basic) -> Program:
    change = substitution({symbols.keep.name: value})
    kernels = (
        replace(k, body=tuple(map_stmt(stmt, change) for stmt in k.body)) for k in program.kernels
    )
    return replace(program, kernels=tuple(kernels))


def test_calls_with_and_without_a_gradient_are_proved() -> None:
    found = judged(lower_spec(SPEC))
    assert set(found) == {"with a gradient", "without a gradient"}
    assert {one.status for made in found.values() for one in made} == {"proved"}


def test_a_closed_head_that_training_skips_is_refuted() -> None:
    skipping = with_keep(lower_spec(SPEC), Or(symbols.keep, false) & false)
    found = judged(skipping)
    assert any(one.status == "refuted" for one in found["with a gradient"])
    assert {one.status for one in found["without a gradient"]} == {"proved"}


def test_a_closed_head_that_inference_computes_is_refuted() -> None:
    found = judged(with_keep(lower_spec(SPEC), true))
    assert any(one.status == "refuted" for one in found["without a gradient"])
    assert {one.status for one in found["with a gradient"]} == {"proved"}
