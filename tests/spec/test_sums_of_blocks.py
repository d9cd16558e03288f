"""Sums with a bare block: what doubles the score is refused, what does not is taken."""

from __future__ import annotations

import pytest

from attnc.spec import parse_spec


@pytest.mark.parametrize(
    "score",
    [
        "softcap(score, 50) + alibi - score",
        "softcap(score, 50) + (alibi - score)",
        "alibi + d",
        "0.5 * alibi + 0.5 * score",
        "alibi(score) + 1",
        "-score + alibi",
    ],
)
def test_sums_that_mean_what_they_say(score: str) -> None:
    assert parse_spec(f"heads: 8\nhead_dim: 64\nscore: {score}\n").fixes_heads
