"""What explain says of alignment, against what each formula does when q_len and kv_len differ."""

from __future__ import annotations

import re

import pytest

from attnc.explain.alignment import alignment
from tests.explain.specs import spec

PARAMS = ("off", "left")
TENSORS = {
    "lens": "{shape: [batch], dtype: int32}",
    "ids": "{shape: [batch, kv_len], dtype: int32}",
    "bias": "{shape: [q_len, kv_len]}",
    "table": "{shape: [heads, 65]}",
}
LAST = "bottom-right: q_pos = q_idx + kv_len - q_len, so the last query stands at the last key"
FIRST = "top-left: query 0 stands at key 0"
NONE = "none needed: no formula compares query and key positions"
MIXED = "mixed: the formulas use q_idx, q_len and kv_len in more than one way"
TO_Q_POS = "bottom-right: kv_idx is compared with q_pos = q_idx + kv_len - q_len"
TO_Q_IDX = "top-left: kv_idx is compared with q_idx"


def declared(formula: str) -> str:
    """Declare the params and tensors that a formula names."""
    words = set(re.findall(r"\w+", formula))
    params = [f"{name}: {{type: int, default: 1}}" for name in PARAMS if name in words]
    tensors = [f"{name}: {what}" for name, what in TENSORS.items() if name in words]
    text = f"params: {{{', '.join(params)}}}\n" if params else ""
    return text + (f"tensors: {{{', '.join(tensors)}}}\n" if tensors else "")


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("causal", LAST),
        ("kv_idx - kv_len <= q_idx - q_len", LAST),
        ("sliding_window(left)", LAST),
        ("causal | prefix(3)", LAST),
        ("(kv_idx // 16) == (q_pos // 16)", LAST),
        ("documents(ids)", LAST),
        ("causal & (kv_idx < lens[b])", LAST),
        ("causal(top_left)", FIRST),
        ("ids[b, q_idx] == ids[b, kv_idx]", FIRST),
        ("kv_idx <= q_idx + off", f"{TO_Q_IDX}, up to off"),
        ("kv_idx <= q_idx + lens[b]", f"{TO_Q_IDX}, up to lens"),
        ("kv_idx < q_idx + 9", TO_Q_IDX),
        ("window(left, off)", f"{TO_Q_POS}, up to left, off"),
        ("global_tokens(3)", "bottom-right: a query's position is q_pos = q_idx + kv_len - q_len"),
        ("causal & (q_idx > 3)", MIXED),
        ("kv_idx <= q_idx + 2 * kv_len", MIXED),
        ("kv_idx < 5", NONE),
        ("kv_idx < lens[b]", NONE),
        ("bias[q_idx, kv_idx] > 0", NONE),
    ],
)
def test_masks(mask: str, said: str) -> None:
    assert alignment(spec(f"{declared(mask)}mask: {mask}\n")) == said


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ("alibi", LAST),
        ("score - 0.1 * (q_pos - kv_idx)", LAST),
        ("score - 0.1 * abs(q_idx - kv_idx)", FIRST),
        ("relative_bias(score, table)", TO_Q_POS),
        ("score + bias[q_idx, kv_idx]", NONE),
        ("score - 0.5 * kv_idx", NONE),
    ],
)
def test_scores(score: str, said: str) -> None:
    assert alignment(spec(f"{declared(score)}score: {score}\n")) == said
