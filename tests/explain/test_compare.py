from __future__ import annotations

import json

import pytest

from attnc.explain.compare import DIFFERENT, NOT_FOUND, SAME, Comparison, compare
from attnc.explain.compare_text import comparison_text
from attnc.explain.samples import Asked
from tests.explain.specs import spec

ANY = Asked(None, None, None, {})
WIDTH = "params: {w: {type: int, default: 4096}}\nmask: sliding_window(w)\n"


def compared(first: str, second: str, asked: Asked = ANY) -> Comparison:
    return compare(spec(first), spec(f"{second}doc: the other\n"), asked)


@pytest.mark.parametrize("window", ["sliding_window(4096)", "sliding_window(2)"])
def test_a_window_differs_however_wide_it_is(window: str) -> None:
    found = compared("mask: causal\n", f"mask: {window}\n")
    assert found.part("mask").verdict == found.verdict == DIFFERENT


def test_params_are_set_small_or_as_asked() -> None:
    found = compared("mask: causal\n", WIDTH)
    witness = found.part("mask").witness
    assert witness is not None
    assert witness.as_json() == {
        "q_len": 8,
        "kv_len": 12,
        "params": {"w": 1},
        "b": 0,
        "h": 0,
        "q_idx": 0,
        "kv_idx": 0,
        "first": True,
        "second": False,
    }
    asked = Asked(None, None, None, {"w": 100})
    witness = compared("mask: causal\n", WIDTH, asked).part("mask").witness
    assert witness is not None and witness.sample.params == {"w": 100}
    assert (witness.sample.first.q_len, witness.place["q_idx"]) == (108, 107)


def test_what_was_only_sampled_is_not_called_the_same() -> None:
    asked = Asked(None, 4, 4, {})
    found = compared("mask: causal\n", "mask: sliding_window(9)\n", asked)
    assert found.verdict == NOT_FOUND
    assert comparison_text(found) == (
        "tiny against tiny: no difference found\n"
        "  same: heads, head_dim, dtype, layout, outputs, head_gate, dropout, sink, fp32_dot, "
        "params, tensors, scale, score\n"
        "  no difference found: mask\n"
        "      tiny: causal\n"
        "      tiny: sliding_window(9)\n"
        "  a formula with no difference found is not proved the same; it was evaluated\n"
        "      at 4 queries, 4 keys"
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("mask: causal\n", "mask: kv_idx < q_idx + 1 + (kv_len - q_len)\n"),
        ("mask: sliding_window(9)\n", "mask: causal & (q_pos - kv_idx < 9)\n"),
        ("mask: causal & prefix(3)\n", "mask: prefix(3) & causal\n"),
        ("scale: 1/sqrt(d)\n", "scale: 0.125\n"),
        ("score: alibi\n", "score: alibi(score)\n"),
        ("mask: q_idx == kv_idx\n", "mask: kv_idx == q_idx\n"),
        ("mask: h_kv < kv_idx\n", "mask: h // 2 < kv_idx\n"),
    ],
)
def test_formulas_that_are_plainly_equal_are_the_same(first: str, second: str) -> None:
    found = compared(first, second)
    assert (found.verdict, found.samples) == (SAME, ())


BIAS = "tensors: {{bias: {{shape: [heads, q_len, kv_len]}}}}\nscore: score + bias[{}]\n"


@pytest.mark.parametrize(
    ("part", "first", "second"),
    [
        ("mask", "mask: causal\n", "mask: causal(top_left)\n"),
        ("mask", "mask: h < kv_idx\n", "mask: h_kv < kv_idx\n"),
        ("score", "score: softcap(score, 50)\n", "score: score\n"),
        ("score", BIAS.format("h, q_idx, kv_idx"), BIAS.format("h, kv_idx, q_idx")),
        ("scale", "scale: 1/sqrt(d)\n", "scale: 1/d\n"),
        ("outputs", "outputs: [lse]\n", ""),
        ("layout", "layout: bshd\n", ""),
        ("head_gate", "head_gate: true\n", ""),
        ("sink", "sink: per_head\n", ""),
        ("dropout", "dropout: true\n", ""),
        ("fp32_dot", "fp32_dot: tf32\n", ""),
    ],
)
def test_every_part_is_compared(part: str, first: str, second: str) -> None:
    found = compared(first, second)
    assert [one.name for one in found.parts if one.verdict == DIFFERENT] == [part]


def test_scores_are_compared_where_somebody_sees_them() -> None:
    found = compared("mask: causal\n", "mask: causal\nscore: score + max(0, kv_idx - q_pos)\n")
    assert found.part("score").verdict == NOT_FOUND


def test_all_of_it_is_json_and_says_what_it_rests_on() -> None:
    ids = "tensors: {{{0}: {{shape: [batch, kv_len], dtype: int32}}}}\nmask: documents({0})\n"
    found = compared(ids.format("ids"), ids.format("doc_ids"))
    facts = found.as_json()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["example_contents"] == ["doc_ids", "ids"]
    assert facts["compared_at"][0] == {"q_len": 8, "kv_len": 12, "rows": "all", "params": {}}
    assert "with pseudo-random example contents of doc_ids, ids" in comparison_text(found)


def test_a_formula_that_has_no_value_somewhere_is_compared_elsewhere() -> None:
    found = compared("score: score + kv_idx // q_idx\n", "score: score + kv_idx // q_idx + q_idx\n")
    assert found.part("score").verdict == DIFFERENT


def test_infinities_are_values_and_json_has_a_word_for_them() -> None:
    found = compared("score: score + log(kv_idx)\n", "score: score - log(kv_idx)\n")
    witness = found.part("score").witness
    assert witness is not None
    assert (witness.as_json()["first"], witness.as_json()["second"]) == ("-inf", "inf")
    same = compared("score: log(kv_idx) * log(kv_idx)\n", "score: log(kv_idx) ** 2\n")
    assert same.verdict != DIFFERENT
