"""Random specs compile and match the float64 reference; `make fuzz` tries hundreds."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from attnc.driver import compile_spec
from attnc.errors import SpecErrors
from attnc.runtime.loader import load_text
from attnc.spec import parse_spec
from attnc.verify.certificate import embedded_spec
from attnc.verify.gradient_numbers import judge_gradients
from attnc.verify.inputs import build_call
from attnc.verify.numbers import judge
from attnc.verify.reference import dense
from attnc.verify.ways import Way
from tests.fuzz.specs import Trial, trials

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "500"))
SHARP = 1e4  # larger logits are remade from a rounded lse: a weight is known to 1e-3 at best
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def matches_the_reference(trial: Trial) -> None:
    try:
        spec = parse_spec(trial.text)
    except SpecErrors as error:
        # a formula may fold to a constant that leaves a declared name unused: that is refused
        assert "unused" in str(error) or "never" in str(error) or "always" in str(error), (
            f"{error}\n{trial.text}"
        )
        return
    source = compile_spec(spec).module.source
    module = load_text(source, "trial", interpret=True)
    bad = [found for found in judge(spec, module, trial.case) if not found.ok]
    assert embedded_spec(source) is not None
    assert not bad, f"{bad}\n{trial.case}\n{trial.text}"


def gradients_match_the_reference(trial: Trial) -> None:
    try:
        spec = parse_spec(trial.text)
    except SpecErrors as error:
        assert "unused" in str(error) or "never" in str(error) or "always" in str(error), (
            f"{error}\n{trial.text}"
        )
        return
    if dense(build_call(spec, trial.case)).largest > SHARP:
        return
    source = compile_spec(spec).module.source
    module = load_text(source, "trial", interpret=True)
    found = judge_gradients(spec, Way(module, "interpreter"), trial.case)
    bad = [one for one in found if not one.ok]
    assert not bad, f"{bad}\n{trial.case}\n{trial.text}"


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=SLOW)
@given(trials())
def test_a_few_random_specs_match_the_reference(trial: Trial) -> None:
    matches_the_reference(trial)


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=SLOW)
@given(trials(trained=True))
def test_gradients_of_a_few_random_specs_match_the_reference(trial: Trial) -> None:
    gradients_match_the_reference(trial)


@pytest.mark.fuzz
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW)
@given(trials(trained=True))
def test_gradients_of_many_random_specs_match_the_reference(trial: Trial) -> None:
    gradients_match_the_reference(trial)


@pytest.mark.fuzz
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW)
@given(trials())
def test_many_random_specs_match_the_reference(trial: Trial) -> None:
    matches_the_reference(trial)


@pytest.mark.fuzz
@settings(max_examples=EXAMPLES // 5, deadline=None, suppress_health_check=SLOW)
@given(trials())
def test_many_random_specs_compile_to_machine_code(trial: Trial) -> None:
    from attnc.tune.operands import operands_of
    from attnc.tune.resources import report

    try:
        spec = parse_spec(trial.text)
    except SpecErrors:
        return
    source = compile_spec(spec).module.source
    tile = {"block_q": 32, "block_kv": 32, "warps": 4, "stages": 2}
    (found,) = report(source, operands_of(spec), "sm_80", "fp16", tile)
    assert found.matrix_instructions and not found.findings, trial.text
