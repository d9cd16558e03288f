"""Which compiled schedule wins, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attnc.tune.choose import Candidate, rank_correlation, ranked, reason, time_text, with_reasons

FIELDS = ("block_q", "block_kv", "warps", "stages")


def candidate(block_q: int = 128, predicted: float = 1e-3, **known: Any) -> Candidate:
    schedule = tuple(zip(FIELDS, (block_q, 64, 8, 3), strict=True))
    made = Candidate("forward", schedule, registers=168, blocks=1, predicted=predicted)
    return replace(made, limited_by="tensor cores", **known)


def test_the_fastest_sound_one_wins() -> None:
    slow, fast, broken = candidate(64, 2e-3), candidate(128), candidate(32, 1e-4, problem="no")
    assert ranked([slow, broken, fast]) == (fast, slow)


def test_spills_in_a_loop_lose_against_none_however_fast() -> None:
    spilling, calm = candidate(128, 1e-4, loop_spills=3), candidate(64, 2e-3)
    assert ranked([spilling, calm]) == (calm,)
    (said, _) = with_reasons([spilling, calm])
    assert said.problem == "spills in its loops, more than 0"


def test_where_all_spill_the_fewest_win() -> None:
    more, fewer = candidate(128, 1e-4, loop_spills=90), candidate(64, 2e-3, loop_spills=8)
    assert ranked([more, fewer]) == (fewer,)


def test_a_measured_time_counts_more_than_a_predicted_one() -> None:
    promised, measured = candidate(128, 1e-4), candidate(64, 2e-3, measured=3e-3)
    assert ranked([promised, measured]) == (measured, promised)
    assert measured.time == 3e-3


def test_what_was_wrong_on_the_device_never_wins() -> None:
    wrong = candidate(128, 1e-5, problem="wrong on the device: check 0: grad q")
    right = candidate(64, 2e-3, measured=1e-3)
    assert ranked([wrong, right]) == (right,)


def test_of_two_that_take_as_long_the_first_stays_ahead() -> None:
    usual, other = candidate(128), candidate(64)
    assert ranked([usual, other]) == (usual, other)
    assert ranked([other, usual]) == (other, usual)


def test_predictions_are_ranked_against_measurements() -> None:
    pairs = [(1, 10), (2, 30), (3, 20), (4, 40)]
    known = [candidate(64, predicted=p, measured=float(m)) for p, m in pairs]
    assert rank_correlation([*known, candidate(32)]) == pytest.approx(0.8)  # by hand: 1 - 6*2/60
    assert rank_correlation(known[:2]) is None
    assert rank_correlation([candidate(64, measured=m) for m in (1.0, 2.0, 3.0)]) is None
    tied = [candidate(64, predicted=p, measured=float(p)) for p in (1, 1, 2)]
    assert rank_correlation(tied) == pytest.approx(1)


def test_nothing_sound_is_nothing() -> None:
    assert ranked([candidate(problem="no")]) == ()


def test_reasons() -> None:
    usual, better = candidate(128), candidate(64, 0.8e-3)
    assert reason(better, [usual], usual.schedule) == (
        "64x64, 8 warps, 3 stages: predicted 800.0 us; "
        "the rule's 128x64, 8 warps, 3 stages, takes 1.25 times as long"
    )
    assert reason(usual, [candidate(64, 1.5e-3)], usual.schedule) == (
        "128x64, 8 warps, 3 stages: predicted 1.00 ms; "
        "it is the rule's own; the next, 64x64, 8 warps, 3 stages, takes 1.50 times as long"
    )
    assert reason(better, [], usual.schedule).endswith(
        "the rule's 128x64, 8 warps, 3 stages is out"
    )
    measured = replace(better, measured=0.7e-3)
    assert "measured 700.0 us" in reason(measured, [], usual.schedule)


def test_times_are_short() -> None:
    assert [time_text(t) for t in (1.234e-6, 9.99e-4, 0.1)] == ["1.2 us", "999.0 us", "100.00 ms"]
