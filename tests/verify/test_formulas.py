"""A program's formulas are compared with its spec's, and a wrong one is refuted with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sympy
from sympy import Integer, Symbol

from attnc.driver import lower_spec
from attnc.ir.functions import Anchor, Exp2, InverseOrZero
from attnc.ir.nodes import Dot, Fill, Formula, Let, Program, Start
from attnc.spec import read_spec
from attnc.symbols import Where, h, score, sigmoid
from attnc.verify.equality import Sampler, equal
from attnc.verify.formulas import check_formulas
from attnc.verify.obligations import Obligation
from attnc.verify.switches import settled
from tests.verify import kernels
from tests.verify.test_interpreter import edit

SPEC, READY = kernels.attention_spec(), kernels.ready()
SPECS = Path(__file__).parents[2] / "specs"
SAMPLER = Sampler(4, frozenset())
X, Y = Symbol("x", real=True), Symbol("y", real=True)


def found(program: Program, spec=SPEC) -> dict[str, Obligation]:
    return {o.name: o for o in check_formulas(spec, program)}


def refuted(program: Program, spec=SPEC) -> set[str]:
    return {name for name, o in found(program, spec).items() if o.status == "refuted"}


def reformed(name: str, change) -> Program:
    """The program with the formula of a Let changed, in every loop."""

    def one(stmt):
        if isinstance(stmt, Let) and stmt.name == name and isinstance(stmt.value, Formula):
            return replace(stmt, value=replace(stmt.value, expr=change(stmt.value.expr)))
        return stmt

    return edit(READY, one)


def test_a_right_program_is_proved() -> None:
    assert {o.status for o in check_formulas(SPEC, READY)} == {"proved"}
    assert len(check_formulas(SPEC, READY)) == 15


@pytest.mark.parametrize(
    "name", ["gemma2_local", "alibi", "t5_bias", "logn_scaled", "head_gates", "documents_packed"]
)
def test_a_compiled_program_is_proved(name: str) -> None:
    spec = read_spec(SPECS / f"{name}.yaml")
    for _, meant, program in settled(spec, lower_spec(spec)):
        assert {o.status for o in check_formulas(meant, program)} == {"proved"}


def test_another_score_is_refuted() -> None:
    spec = kernels.attention_spec(score=30 * sympy.tanh(score / 30))
    assert refuted(READY, spec) == {
        "loop 0: the score is the spec's",
        "loop 1: the score is the spec's",
    }


def test_the_counterexample_shows_both_values() -> None:
    spec = kernels.attention_spec(score=score + sympy.Rational(1, 2))
    detail = found(READY, spec)["loop 0: the score is the spec's"].detail
    assert " is not " in detail and "dot = " in detail


def test_a_sum_that_is_not_rescaled_is_refuted() -> None:
    program = reformed("row_sum_new", lambda f: f.xreplace({kernels.real("rescale"): Integer(1)}))
    names = refuted(program)
    assert "loop 0: the state of a union is the merge of the states" in names
    assert "loop 0: an empty row stays empty and finite" in names


def test_a_missing_anchor_is_refuted() -> None:
    program = reformed("anchor", lambda f: f.replace(Anchor, lambda x: x))
    assert "loop 1: an empty row stays empty and finite" in refuted(program)


def test_a_maximum_of_something_else_is_refuted() -> None:
    program = reformed("row_max_new", lambda f: f.xreplace({kernels.real("factor"): Integer(1)}))
    assert "loop 0: the maximum is that of the score" in refuted(program)


def test_a_weight_past_the_select_is_refuted() -> None:
    program = reformed(
        "p", lambda f: f.xreplace({kernels.real("score_visible"): kernels.real("signed")})
    )
    assert "loop 1: hidden keys add nothing" in refuted(program)


def test_a_wrong_sign_for_negative_scales_is_refuted() -> None:
    program = reformed("signed", lambda f: kernels.real("dots"))
    assert "loop 0: the score is the spec's" in refuted(program)


def test_an_output_that_forgets_the_logarithm_is_refuted() -> None:
    program = reformed("lse_value", lambda f: f.replace(sympy.log, lambda x: x))
    assert refuted(program) == {"lse is the spec's"}


def test_a_division_by_an_empty_rows_sum_is_refuted() -> None:
    program = reformed("out_value", lambda f: f.replace(InverseOrZero, lambda x: 1 / x))
    assert refuted(program) == {"out['e_idx'] is the spec's"}


def test_a_wrong_start_is_refuted() -> None:
    def one(stmt):
        return replace(stmt, value=Fill(Integer(1))) if isinstance(stmt, Start) else stmt

    assert "state before the first tile" in refuted(edit(READY, one))


def test_a_product_that_drops_what_was_summed_is_refuted() -> None:
    def forget(stmt):
        if isinstance(stmt, Let) and isinstance(stmt.value, Dot) and stmt.value.add_to:
            return replace(stmt, value=replace(stmt.value, add_to=None))
        return stmt

    assert "loop 0: the state of a union is the merge of the states" in refuted(edit(READY, forget))


def test_a_product_over_other_features_is_refuted() -> None:
    kernel = READY.kernels[0]
    axes = tuple(replace(a, first=Integer(2)) if a.name == "d" else a for a in kernel.axes)
    program = replace(READY, kernels=(replace(kernel, axes=axes),))
    detail = found(program)["loop 0: the score is the spec's"].detail
    assert detail == "the products do not cover each feature of q and k once"


@pytest.mark.parametrize(
    ("one", "other", "status"),
    [
        (X * (Y + 1), X * Y + X, "proved"),
        (sympy.tanh(X), 1 - 2 / (1 + sympy.exp(2 * X)), "checked numerically"),
        (sympy.log(4 * sympy.exp(X)), X + 2 * sympy.log(2), "proved"),
        (Exp2(X) * Exp2(Y), Exp2(X + Y), "checked numerically"),  # sympy has no law of our Exp2
        (sigmoid(X), 1 / (1 + sympy.exp(-X)), "checked numerically"),
        (Where(h < 100, X, Y), X, "checked numerically"),
        (Where(sympy.Ne(X, 0), X * Y, 0), X * Y, "proved"),
        (Where(sympy.Ne(X, 0), X * Y, 1), X * Y, "refuted"),
        (X + sympy.Rational(1, 10**30), X, "refuted"),
        (Where(h < 3, X, Y), X, "refuted"),
        (sympy.exp(X), 1 + X + X**2 / 2, "refuted"),
    ],
)
def test_equality(one: sympy.Expr, other: sympy.Expr, status: str) -> None:
    assert equal("claim", one, other, SAMPLER).status == status
