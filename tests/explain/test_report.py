from __future__ import annotations

import json

import pytest

from attnc.explain.contracts import contracts, lints
from attnc.explain.report import explain
from attnc.explain.situation import situation_of
from attnc.explain.text import explanation_text
from tests.explain.specs import lowered, spec


def facts(text: str, q_len: int | None = None, kv_len: int | None = None):
    made, program = lowered(text)
    return explain(made, program, situation_of(made, 1, q_len, kv_len))


def test_the_contracts_stand_in_the_text() -> None:
    """FAULTS L04: empty rows, alignment, unit of lse, layout, polarity."""
    text = explanation_text(facts("mask: causal\noutputs: [lse]\n", 6, 6))
    for sentence in (
        "a query that sees no key gives out 0 and lse -inf, never NaN",
        "bottom-right: q_pos = q_idx + kv_len - q_len, so the last query stands at the last key",
        "natural logarithm, float32, scale and score included",
        "q [B, Hq, Sq, 64], k [B, Hkv, Sk, 64], v [B, Hkv, Sk, 64], out [B, Hq, Sq, 64]",
        "rows are queries, columns are keys; '#' = visible (the query attends to the key)",
        "query head h reads key/value head h // 2",
    ):
        assert sentence in text


def test_layout_follows_the_spec() -> None:
    assert contracts(spec("layout: bshd\n"))["layout"].startswith("q [B, Sq, Hq, 64]")


@pytest.mark.parametrize(
    ("score", "warned"),
    [
        ("alibi", False),
        ("score", False),
        ("score - 0.5 * abs(q_pos - kv_idx)", False),
        ("score + 0.5 * abs(q_pos - kv_idx)", True),
        ("score - (h - 2) * abs(q_pos - kv_idx)", True),
    ],
)
def test_warns_when_far_keys_are_favoured(score: str, warned: bool) -> None:
    made = spec(f"score: {score}\n")
    assert bool(lints(made, situation_of(made))) is warned


def test_no_warning_rests_on_what_a_tensor_may_hold() -> None:
    more = "tensors:\n  slope: {shape: [heads]}\n"
    made = spec(f"{more}score: score + slope[h] * abs(q_pos - kv_idx)\n")
    assert lints(made, situation_of(made)) == []


WIDTHS = """tensors: {width: {shape: [heads], dtype: int32}}
mask: causal & (q_pos - kv_idx < width[h])
"""


def test_numbers_that_rest_on_example_contents_say_so() -> None:
    found = facts(WIDTHS, 200, 200)
    assert found["tiles"]["example_contents"] == {"visited": ["width"], "visible": ["width"]}
    assert found["costs"]["example_contents"] == ["width"]
    assert found["examples"] == {"width": "width: 1, 2, 3 ... along its last axis"}
    text = explanation_text(found)
    numbers = ("  visited ", "  needed ", "  visible ", "  work ", "  intensity ")
    lines = [line for line in text.splitlines() if line.startswith(numbers)]
    assert len(lines) == len(numbers)
    assert all("with example contents of width" in line for line in lines)
    assert "example contents, width: 1, 2, 3 ... along its last axis" in text


def test_ranges_that_no_tensor_decides_hold_for_all_contents() -> None:
    more = "tensors:\n  ids: {shape: [batch, kv_len], dtype: int32}\nmask: documents(ids)\n"
    found = facts(more, 200, 200)
    assert found["tiles"]["example_contents"] == {"visited": [], "visible": ["ids"]}
    assert found["costs"]["example_contents"] == []
    plain = facts("mask: causal\n", 200, 200)
    assert "example contents" not in explanation_text(plain)


def test_blocks_are_written_out() -> None:
    found = facts("mask: causal & sliding_window(100)\nscore: softcap(score, 30)\n", 8, 8)
    assert list(found["blocks"]) == ["softcap", "causal", "sliding_window"]
    assert found["formulas"]["score"]["means"] == "30*tanh(score/30)"
    assert "q_pos - 100 < kv_idx <= q_pos" in explanation_text(found)


def test_everything_is_json() -> None:
    found = facts("mask: causal\n", 300, 300)
    assert json.loads(json.dumps(found)) == found
    assert found["tiles"]["needed"] == found["tiles"]["visited"]
    assert found["tiles"]["density"] == pytest.approx((300 * 301 / 2) / 300**2)


def test_says_when_the_ranges_are_a_superset() -> None:
    more = "tensors:\n  ids: {shape: [batch, kv_len], dtype: int32}\nmask: documents(ids)\n"
    found = facts(more, 200, 200)
    assert found["tiles"]["visited"] > found["tiles"]["needed"]
    assert "a sound superset" in explanation_text(found)
    assert "a sound superset" not in explanation_text(facts("mask: causal\n", 200, 200))


def test_head_gates_are_explained_with_open_gates() -> None:
    found = facts("head_gate: true\nmask: causal\n", 200, 200)
    assert found["tiles"]["visited"] == found["tiles"]["needed"]


def test_large_sizes_say_that_they_are_bounds() -> None:
    found = facts("mask: causal\n", 2**16, 2**16)["tiles"]
    assert found["needed"] is None
    assert 0.49 < found["density_at_least"] < 0.5 < found["density_at_most"] < 0.51


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 0), (0, 5), (5, 0), (1, 1)])
def test_sizes_at_the_edge(q_len: int, kv_len: int) -> None:
    explanation_text(facts("mask: causal\n", q_len, kv_len))


def test_batch_zero() -> None:
    made, program = lowered("mask: causal\n")
    explanation_text(explain(made, program, situation_of(made, 0)))
