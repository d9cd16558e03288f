"""Gradients of generated modules, and of spoilt ones, as verify judges them."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from attnc.driver import compile_spec
from attnc.runtime.loader import load_text
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import TINY, Case, gradient_cases
from attnc.verify.gradient_calls import build_pull
from attnc.verify.gradient_numbers import compare_gradients, judge_gradients
from attnc.verify.tolerance import Comparison
from attnc.verify.ways import Way
from tests.verify.specs import handmade_spec, spec_of

CAUSAL = "mask: causal\nbackward: true"
TAILS = Case("tails", 1, 1, 17, 35, "fp16", TINY, storage="sliced", repeated=True)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.MonkeyPatch().setenv("ATTNC_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def causal() -> tuple[AttentionSpec, str]:
    spec = spec_of(CAUSAL)
    return spec, compile_spec(spec).module.source


def judged(
    spec: AttentionSpec, source: str, case: Case, way: str = "interpreter"
) -> list[Comparison]:
    module = load_text(source, spec.name, interpret=way == "interpreter")
    return judge_gradients(spec, Way(module, way), case)


@pytest.mark.parametrize("way", ["interpreter", "cpu", "reference"])
def test_a_generated_module_passes(causal: tuple[AttentionSpec, str], way: str) -> None:
    found = judged(*causal, TAILS, way)
    assert [one for one in found if not one.ok] == []
    named = {one.what for one in found if one.compared}
    assert {f"grad {name}" for name in "qkv"} <= named
    assert {"grad q of out alone", "grad k of lse alone"} <= named


@pytest.mark.parametrize(
    ("body", "way"),
    [("", "cpu"), ("layout: bshd\n", "cpu"), ("", "reference"), ("head_gate: true\n", "reference")],
)
def test_the_dense_path_keeps_hidden_nans_out_of_gradients(body: str, way: str) -> None:
    """Empty rows above, hidden keys below; head gates of 0 have a gradient, too."""
    spec = spec_of(f"{body}mask: sliding_window(5)\nbackward: true")
    source = compile_spec(spec).module.source
    for q_len, kv_len in ((20, 9), (7, 30)):
        found = judged(spec, source, Case("nan", 1, 2, q_len, kv_len, "fp32", seed=q_len), way)
        assert [one for one in found if not one.ok] == []


def test_a_wrong_factor_fails(causal: tuple[AttentionSpec, str]) -> None:
    spec, source = causal
    assert "d_k = d_k_sum * scale" in source
    spoilt = source.replace("d_k = d_k_sum * scale", "d_k = d_k_sum")
    wrong = [one.what for one in judged(spec, spoilt, TAILS) if not one.ok]
    assert "grad k" in wrong and "grad q" not in wrong


def test_a_result_that_is_not_written_fails(causal: tuple[AttentionSpec, str]) -> None:
    spec, source = causal
    spoilt = re.sub(r"(tl\.store\(grad_v_base .*)kv_idx < kv_len", r"\1kv_idx < 16", source)
    assert spoilt != source
    problems = [one.problem for one in judged(spec, spoilt, TAILS) if one.what == "grad v"]
    assert any("elements are NaN" in problem for problem in problems)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("KeyError('lost')", "KeyError: 'lost'"),
        ("NotImplementedError('k')", "NotImplementedError: k"),
    ],
)
def test_what_raises_in_the_backward_fails(
    causal: tuple[AttentionSpec, str], error: str, said: str
) -> None:
    """A gradient refused by name, too: a file has what its spec promises."""
    spec, source = causal
    raising = f"def launch_backward(*_):\n    raise {error}\n\n\ndef unused("
    (found,) = judged(spec, source.replace("def launch_backward(", raising), TAILS)
    assert found.problem == f"raised {said}"


def test_a_call_that_wants_gradients_has_the_same_results(
    causal: tuple[AttentionSpec, str],
) -> None:
    spec, source = causal
    line = "    results = operator(q, k, v, scale_tensor, scale, _tiles(schedule))\n"
    assert line in source
    more = "    if q.requires_grad:\n        results = (results[0] + 1.0, *results[1:])\n"
    found = judged(spec, source.replace(line, line + more), TAILS)
    wrong = {(one.what, one.problem) for one in found if one.problem}
    assert wrong == {("out", "where a gradient is wanted, it has other bits")}


def test_a_gradient_that_comes_only_with_others_fails(causal: tuple[AttentionSpec, str]) -> None:
    spec, source = causal
    line = "    return (*gradients, *[None]"
    assert line in source
    fewer = "    gradients = gradients if all(wanted[:3]) else [None] * len(gradients)\n"
    found = judged(spec, source.replace(line, fewer + line), TAILS)
    wrong = {(one.what, one.problem) for one in found if one.problem}
    assert {("grad v", "it does not always come"), ("grad q", "it does not always come")} <= wrong


def test_a_spec_without_a_backward_asks_for_none() -> None:
    assert list(compare_gradients(handmade_spec(), [])) == []


def test_cotangents_are_as_cruel_as_operands() -> None:
    spec = spec_of("mask: causal")
    case = Case("c", 2, 1, 9, 5, "fp16", storage="sliced")
    asked = build_pull(spec, case, ("q",))
    out, lse = asked.cotangents["out"], asked.cotangents["lse"]
    assert out.stride()[-1] == 2 and out.dtype is torch.float16 and lse.dtype is torch.float32
    assert out[:, :, :4].isnan().all() and out[:, :, 4:].isfinite().all()
    assert lse[:, :, :4].isnan().all() and lse[:, :, 4:].isfinite().all()
    expanded = build_pull(spec, dataclasses.replace(case, storage="expanded"), ("q",))
    assert expanded.cotangents["out"].stride()[:2] == (0, 0)


def test_cases_of_gradients_meet_every_cruelty_with_few_heads() -> None:
    cases = gradient_cases(spec_of("score: score + bias[q_idx, kv_idx]\nbackward: true\n"
                                   "tensors: {bias: {shape: [q_len, kv_len]}}"))  # fmt: skip
    assert {case.dtype for case in cases} == {"fp16", "bf16", "fp32"}
    assert {"packed", "transposed", "sliced", "expanded", "far"} <= {case.storage for case in cases}
    assert {case.twist for case in cases} == {"none", "infinite bias", "wild indices"}
    assert {0, 1} <= {case.q_len for case in cases} and {0, 1} <= {case.kv_len for case in cases}
    assert {case.tiles for case in cases} >= {None, (16, 16), (32, 32), (16, 64)}
    assert all(case.heads_kv <= 2 and case.batch <= 2 for case in cases)
