"""What explain says of the backward: its formulas, and what is kept at what price."""

from __future__ import annotations

from typing import Any

from attnc.explain.gradients import gradients_of
from attnc.explain.report import explain
from attnc.explain.situation import situation_of
from attnc.explain.text import explanation_text
from tests.explain.specs import lowered, spec

LONG = "sizes: {batch: 2, q_len: 4096, kv_len: 4096}\n"


def values_of(text: str) -> dict[str, dict[str, Any]]:
    found = gradients_of(spec(LONG + text))
    assert found is not None
    return {value["name"]: value for value in found["values"]}


def test_only_out_and_lse_are_kept_and_each_alternative_has_its_price() -> None:
    values = values_of("mask: causal\n")
    assert [name for name, value in values.items() if value["kept"]] == ["lse", "out"]
    p = values["p"]
    assert p["bytes"] == 2 * 4 * 4096 * 4096 * 4 and not p["may_keep"] and p["may_make"]
    assert p["keeping_us"] > p["making_us"] > 0


def test_a_gate_has_its_gradient_from_what_was_before_it() -> None:
    """The kept tensor is the sum before the gate, in place of out: no second sum over keys."""
    values = values_of("head_gate: true\n")
    assert values["ungated"]["kept"] and "out" not in values


def test_the_text_shows_formulas_and_table() -> None:
    made, program = lowered(LONG + "mask: causal\n")
    text = explanation_text(explain(made, program, situation_of(made, 1, 64, 64)))
    assert "d_logits   = p*(d_lse + d_p) where visible" in text
    assert "kept, an output anyway" in text and "made again" in text


def test_without_a_backward_there_is_nothing_to_keep() -> None:
    made, program = lowered("backward: false\n")
    text = explanation_text(explain(made, program, situation_of(made, 1, 8, 8)))
    assert "gradients\n  none: the spec says `backward: false`\n" in text
