"""Which of the compiled schedules of a kernel is the one to run, and why.

What cannot run there, spills in its loop where another does not, or was found wrong on the device
never wins.  Among the rest a measured time counts more than a predicted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import correlation

from attnc.tune.resources import schedule_text

LEAST_RANKED = 3
Schedule = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule of a kernel, and what is known of it.

    Times are in seconds, at the sizes of the record.  problem: why it is out: the target's limits,
    the compiler, or the comparison on the device.  loop_spills: instructions of its hot loops that
    go to local memory.  blocks: how many share a multiprocessor.  why: the cost model's words.
    """

    kernel: str
    schedule: Schedule
    registers: int = 0
    spills: int = 0
    loop_spills: int = 0
    shared_bytes: int = 0
    blocks: int = 0
    predicted: float = 0.0
    limited_by: str = ""
    why: str = ""
    measured: float | None = None
    problem: str = ""

    @property
    def text(self) -> str:
        """Its schedule as people say it."""
        return schedule_text(dict(self.schedule))

    @property
    def time(self) -> float:
        """The best knowledge of what it takes."""
        return self.predicted if self.measured is None else self.measured


def ranked(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Those that may win, best first.

    The measured ones come before the others.  Of two that take as long, the one that was nearer to
    the rule's stays ahead.
    """
    sound = (one for one in with_reasons(candidates) if not one.problem)
    return tuple(sorted(sound, key=lambda one: (one.measured is None, one.time)))


def with_reasons(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The candidates, with a word on those that spill where they need not."""
    sound = [one for one in candidates if not one.problem]
    least = min((one.loop_spills for one in sound), default=0)
    return tuple(
        replace(one, problem=f"spills in its loops, more than {least}")
        if not one.problem and one.loop_spills > least
        else one
        for one in candidates
    )


def rank_correlation(candidates: Sequence[Candidate]) -> float | None:
    """How well predictions rank what was measured: Spearman's rho, 1 for the same order.

    None for fewer than three measured, or where all times of a kind are equal.
    """
    known = [(one.predicted, one.measured) for one in candidates if one.measured is not None]
    columns = [_ranks(column) for column in zip(*known, strict=True)]
    if len(known) < LEAST_RANKED or any(len(set(column)) < 2 for column in columns):
        return None
    return correlation(*columns)


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value, from 0; equal ones share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def reason(best: Candidate, others: Sequence[Candidate], usual: Schedule) -> str:
    """Why the best is the best, in a sentence."""
    how = "measured" if best.measured is not None else "predicted"
    head = f"{best.text}: {how} {time_text(best.time)}"
    if best.schedule == usual:
        own = f"{head}; it is the rule's own"
        return f"{own}; the next, {_beaten(others[0], best)}" if others else own
    rule = next((one for one in others if one.schedule == usual), None)
    if rule is None:
        return f"{head}; the rule's {schedule_text(dict(usual))} is out"
    return f"{head}; the rule's {_beaten(rule, best)}"


def _beaten(other: Candidate, best: Candidate) -> str:
    return f"{other.text}, takes {other.time / best.time:.2f} times as long"


def time_text(seconds: float) -> str:
    """A time as people read it: 12.3 us, 4.56 ms."""
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
