"""What is shown of sinks, max_score, entropy and key_mass, and what is refuted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import sympy
from sympy import Basic, Expr, Integer, Symbol

from attnc.driver import lower_spec
from attnc.ir.functions import Anchor, Exp2
from attnc.ir.nodes import Fill, Formula, Kernel, Let, Loop, Program, Start
from attnc.ir.rebuild import substitution
from attnc.spec.schema import AttentionSpec
from attnc.verify.formulas import check_formulas
from attnc.verify.obligations import Obligation
from tests.verify.specs import spec_of

EVERY = "backward: false\noutputs: [lse, max_score, entropy, key_mass]\n"
SINK = "backward: false\nsink: per_head\noutputs: [lse]\nmask: sliding_window(128)"
SPECS = {
    "sink": SINK,
    "causal": EVERY + "mask: causal",
    "softcap": EVERY + "score: softcap(score, 5)\nmask: sliding_window(9)",
    "bias": EVERY + "score: score + bias[h, q_idx, kv_idx]\n"
    "tensors: {bias: {shape: [heads, q_len, kv_len]}}",
    "sink_entropy": EVERY + "sink: per_head\nmask: causal",
    "entropy_alone": "backward: false\noutputs: [entropy]\nmask: causal",
}  # fmt: skip


@functools.cache
def compiled(body: str) -> tuple[AttentionSpec, Program]:
    spec = spec_of(body)
    return spec, lower_spec(spec)


def same(kernel: Kernel) -> Kernel:
    return kernel


def judged(body: str, change: Callable[[Kernel], Kernel] = same) -> list[Obligation]:
    spec, program = compiled(body)
    changed: Program = replace(program, kernels=tuple(map(change, program.kernels)))
    return list(check_formulas(spec, changed))


def refuted(found: list[Obligation]) -> set[str]:
    return {one.name.rpartition(": ")[2] for one in found if one.status == "refuted"}


def with_lets(rewrite: Callable[[str, Basic], Basic]) -> Callable[[Kernel], Kernel]:
    """Change formulas, inside of loops and after them."""

    def let(old: Let) -> Let:
        if not isinstance(old.value, Formula):
            return old
        return replace(old, value=Formula(cast(Expr, rewrite(old.name, old.value.expr))))

    def change(kernel: Kernel) -> Kernel:
        body = (
            replace(s, body=tuple(map(let, s.body)))
            if isinstance(s, Loop)
            else let(s)
            if isinstance(s, Let)
            else s
            for s in kernel.body
        )
        return replace(kernel, body=tuple(body))

    return change


def starting(name: str, value: Expr) -> Callable[[Kernel], Kernel]:
    def change(kernel: Kernel) -> Kernel:
        body = (
            replace(s, value=Fill(value)) if isinstance(s, Start) and s.name == name else s
            for s in kernel.body
        )
        return replace(kernel, body=tuple(body))

    return change


@pytest.mark.parametrize("body", SPECS.values(), ids=SPECS)
def test_all_is_proved(body: str) -> None:
    found = judged(body)
    assert [one for one in found if one.status != "proved"] == []


def test_with_a_sink_the_range_of_scores_is_said() -> None:
    (start,) = (one for one in judged(SINK) if one.name.endswith("before the first tile"))
    assert start.detail == "for scores and sinks above -2e38"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("row_sum", sympy.Float(0)),
        ("row_max", sympy.S.NegativeInfinity),
        ("row_max", Symbol("unit", real=True)),
        ("acc", sympy.Float(1)),
    ],
    ids=["not_counted", "not_in_the_maximum", "another_number", "a_value_of_its_own"],
)
def test_a_sink_that_is_not_the_first_state_is_refuted(name: str, value: Expr) -> None:
    assert refuted(judged(SINK, starting(name, value)))


def test_the_spec_alone_brings_a_sink() -> None:
    spec, program = compiled(SINK)
    found = check_formulas(replace(spec, sink=False), program)
    assert "state before the first tile" in refuted(list(found))


def test_a_sum_of_logarithms_that_does_not_move_with_the_maximum_is_refuted() -> None:
    def stays(name: str, formula: Basic) -> Basic:
        if name != "entropy_sum_1_new":
            return formula
        return substitution({"row_sum": Integer(0)})(formula)

    found = judged(SPECS["entropy_alone"], with_lets(stays))
    assert "entropy is the spec's" in refuted(found)


def test_the_logarithm_of_another_weight_is_refuted() -> None:
    def doubled(name: str, formula: Basic) -> Basic:
        return formula.replace(Anchor, lambda x: Anchor(2 * x)) if name == "terms" else formula

    found = judged(SPECS["entropy_alone"], with_lets(doubled))
    assert "entropy is the spec's" in refuted(found)


@pytest.mark.parametrize("name", ["entropy", "max_score"])
def test_a_result_of_another_size_is_refuted(name: str) -> None:
    def doubled(let: str, formula: Basic) -> Basic:
        return 2 * formula if let == name else formula  # type: ignore[operator]

    assert refuted(judged(SPECS["causal"], with_lets(doubled))) == {f"{name} is the spec's"}


def test_entropy_without_the_term_of_the_sink_is_refuted() -> None:
    def without(let: str, formula: Basic) -> Basic:
        return Symbol("entropy_of_keys", real=True) if let == "entropy" else formula

    found = judged(SPECS["sink_entropy"], with_lets(without))
    assert refuted(found) == {"entropy is the spec's"}


def test_weights_of_keys_against_something_else_are_refuted() -> None:
    def halved(let: str, formula: Basic) -> Basic:
        if let != "p":
            return formula
        return formula.replace(Exp2, lambda x: Exp2(x / 2))

    def change(kernel: Kernel) -> Kernel:
        return with_lets(halved)(kernel) if kernel.name == "forward_keys" else kernel

    found = refuted(judged(SPECS["causal"], change))
    assert found == {"the weights are the spec's"}
