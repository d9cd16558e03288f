"""What callables written for FlexAttention do, with torch's own helpers."""

from __future__ import annotations

import math

import pytest

import attnc
from attnc.spec import Spec, parse_spec
from attnc.spec.tracing import TraceError

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

KEYS = {"heads": 8, "head_dim": 64}


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def near(b, h, q_idx, kv_idx):
    return q_idx - kv_idx < 5


def mask_text(mask_mod: object, **keys: object) -> str:
    return Spec("t", mask=mask_mod, **KEYS, **keys).mask_text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mask_mod", "text"),
    [
        (flex.and_masks(causal, near), "(q_idx >= kv_idx) & (q_idx - kv_idx < 5)"),
        (flex.or_masks(causal, near), "(q_idx >= kv_idx) | (q_idx - kv_idx < 5)"),
        (
            flex.and_masks(flex.or_masks(causal, near), near),
            "((q_idx >= kv_idx) | (q_idx - kv_idx < 5)) & (q_idx - kv_idx < 5)",
        ),
        (flex.noop_mask, "true"),
        (
            lambda b, h, q, k: (q >= k) ^ (h == 0),
            "(q_idx >= kv_idx) & ~(h == 0) | ~(q_idx >= kv_idx) & (h == 0)",
        ),
        (
            lambda b, h, q, k: torch.logical_xor(q >= k, h == 0),
            "(q_idx >= kv_idx) & ~(h == 0) | ~(q_idx >= kv_idx) & (h == 0)",
        ),
        (lambda b, h, q, k: (q >= k) == (h == 0), "(q_idx >= kv_idx) == (h == 0)"),
        (lambda b, h, q, k: ((q >= k) & (k > 3)) != (h == 0),
            "((q_idx >= kv_idx) & (kv_idx > 3)) != (h == 0)"),
        (lambda b, h, q, k: q >> 4 == k >> 4, "q_idx // 16 == kv_idx // 16"),
        (lambda b, h, q, k: k < h + 1 << 3, "kv_idx < (h + 1) * 8"),
        (
            lambda b, h, q, k: torch.div(q, 7, rounding_mode="floor") == k,
            "q_idx // 7 == kv_idx",
        ),
    ],
)  # fmt: skip
def test_masks_are_written_down(mask_mod: object, text: str) -> None:
    assert mask_text(mask_mod) == text


def test_relu_in_place() -> None:
    spec = Spec("t", score=lambda s, *_: torch.nn.functional.relu(s, inplace=True), **KEYS)
    assert spec.score_text == "relu(score)"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (
            "(kv_idx < 3) != (q_idx < 5)",
            "(kv_idx < 3) & (q_idx >= 5) | (kv_idx >= 3) & (q_idx < 5)",
        ),
        (
            "(kv_idx < 3) == (q_idx < 5)",
            "(kv_idx < 3) & (q_idx < 5) | (kv_idx >= 3) & (q_idx >= 5)",
        ),
        (
            "hidden[b, kv_idx] == causal",
            "hidden[b, kv_idx] & causal | ~hidden[b, kv_idx] & ~causal",
        ),
    ],
)
def test_conditions_are_compared(text: str, same: str) -> None:
    head = "heads: 8\nhead_dim: 64\n"
    if "hidden" in text:
        head += "tensors: {hidden: {shape: [batch, kv_len], dtype: bool}}\n"
    assert parse_spec(f"{head}mask: {text}\n").mask == parse_spec(f"{head}mask: {same}\n").mask


@pytest.mark.parametrize(
    ("mask_mod", "said"),
    [
        (lambda b, h, q, k: q >> h == k, "spec/cannot-trace a shift needs a whole number of places "
            "that is known when the spec is built\n"
            "  help: write x // n for x >> log2(n) and x * n for x << log2(n)"),
        (lambda b, h, q, k: 1 << q > k, "spec/cannot-trace a shift needs a whole number of places "
            "that is known when the spec is built\n"
            "  help: write x // n for x >> log2(n) and x * n for x << log2(n)"),
        (lambda b, h, q, k: torch.div(q, 7, rounding_mode="trunc") == k,
            'spec/cannot-trace rounding_mode="trunc" has no formula in attnc\n'
            '  help: use rounding_mode="floor"'),
        (lambda b, h, q, k: b.new_ones(3, dtype=torch.bool),
            "spec/cannot-trace a callable can make only single numbers\n"
            "  help: leave the size empty: ()"),
        (lambda b, h, q, k: math.exp(h) > k,
            "spec/cannot-trace `h` has no value when the spec is built\n"
            "  help: use torch's functions instead of math's, for example torch.exp"),
        (lambda b, h, q, k: None, "spec/cannot-trace the callable returns nothing\n"
            "  help: end it with return and the formula"),
    ],
)  # fmt: skip
def test_what_no_formula_can_say_is_refused(mask_mod: object, said: str) -> None:
    with pytest.raises(TraceError) as caught:
        mask_text(mask_mod)
    assert str(caught.value) == said


def test_a_scale_is_no_callable() -> None:
    with pytest.raises(TraceError) as caught:
        attnc.Spec("t", scale=lambda d: d, **KEYS)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "spec/cannot-trace scale cannot be a callable: it is one number\n"
        '  help: write it as text, for example "1/sqrt(d)"; what varies by row belongs into score'
    )
