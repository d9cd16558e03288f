"""No text makes the reader raise anything but located mistakes, and none takes long."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.errors import SpecErrors
from attnc.spec import parse_spec

HEAD = "heads: 8\nhead_dim: 64\n"
PARTS = st.sampled_from(
    [
        *("score", "kv_idx", "q_pos", "h", "d", "w", "t", "t[", "ids[b, ", "inf", "true", "None"),
        *("causal", "window(", "sliding_window(", "dilated(", "documents(ids)", "alibi", "where("),
        *("relative_bias(score, t)", "softcap(", "max(", "tanh(", "exp(", "log(", "sqrt(", "abs("),
        *("+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", "&", "|", "~", "not ", "and"),
        *("or", "if", "else", "lambda", "in", "is", "(", ")", "[", "]", ",", "=", ":", ".", "'"),
        *("0", "1", "2", "0.5", "1e30", "1e-30", "64", "9007199254740992", "\n", " ", "#", "é"),
    ]
)
DECLARED = (
    "params: {w: {type: float, default: 1}}\n"
    "tensors: {t: {shape: [heads, 5]}, ids: {shape: [batch, kv_len], dtype: int32}}\n"
)


def accepts_or_says_why(text: str) -> None:
    started = time.process_time()
    try:
        parse_spec(text)
    except SpecErrors as mistakes:
        assert mistakes.errors
        assert all(str(mistake).startswith("spec.yaml:") for mistake in mistakes.errors)
    assert time.process_time() - started < 2.0


@settings(max_examples=200, deadline=None)
@given(st.lists(PARTS, max_size=14), st.sampled_from(["mask", "score", "scale"]))
def test_any_formula(parts: list[str], role: str) -> None:
    accepts_or_says_why(f"{HEAD}{DECLARED}{role}: {' '.join(parts)}\n")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_characters(text: str) -> None:
    accepts_or_says_why(text)
    accepts_or_says_why(f"{HEAD}mask: {text}\n")


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from("name doc heads head_dim outputs params tensors sizes schedule check".split()),
    st.recursive(
        st.sampled_from(["1", "-1", "x", "null", "~", "''", "", "true", "[]", "{}", "1.5", "lse"]),
        lambda part: st.one_of(
            st.lists(part, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
            st.dictionaries(
                st.sampled_from(["q", "kv", "qk", "shape", "type", "default", "q_len", "w"]),
                part,
                max_size=3,
            ).map(lambda d: "{" + ", ".join(f"{k}: {v}" for k, v in d.items()) + "}"),
        ),
        max_leaves=6,
    ),
)
def test_any_value(key: str, value: str) -> None:
    head = "".join(line for line in HEAD.splitlines(True) if not line.startswith(key + ":"))
    accepts_or_says_why(f"{head}{key}: {value}\n")
