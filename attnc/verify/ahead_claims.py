"""A skewed loop makes for every step what that step needs, and reads no tile but its loop's.

What holds of every access in a tile that the loop visits then holds of the skewed loop too: it
reads the same tiles, by the same lets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from attnc.ir.nodes import END_STEP, FIRST_STEP, STEP, Ahead
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place

Term = Any
Steps = tuple[Term, Term, Term]  # the number of a step, of the first, of one past the last


def ahead_claims(tiling: Tiling) -> list[Claim]:
    """The claims of each loop that a schedule may skew."""
    found: list[Claim] = []
    for number, loop in enumerate(tiling.loops):
        if loop.ahead is not None:
            found += (replace(one, name=f"loop {number}: {one.name}") for one in _of(loop.ahead))
    return found


def _of(ahead: Ahead) -> Iterable[Claim]:
    claims: tuple[tuple[str, Callable[[Ahead, Meaning, Steps], Term]], ...] = (
        ("skewed, a step takes the scores of its own tile", _own),
        ("skewed, what is read ahead is of a tile that the loop visits", _visited),
        ("skewed, only a step of the loop reads for itself", _in_turn),
        ("skewed, no step but the first takes the scores of none", _none_once),
    )
    for name, statement in claims:
        yield Claim(name, partial(_build, ahead, statement), False)


def _build(ahead: Ahead, statement: Callable[[Ahead, Meaning, Steps], Term], m: Meaning) -> Term:
    steps = (m.pick("step"), m.pick("first step"), m.pick("end of the steps"))
    if statement is not _own:
        m.given(_runs(ahead, m, steps))
    return statement(ahead, m, steps)


def _at(steps: Steps) -> Place:
    names = (STEP, FIRST_STEP, END_STEP)
    return Place(dict(zip(map(str, names), steps, strict=True)))


def _runs(ahead: Ahead, m: Meaning, steps: Steps) -> Term:
    """Whether a step is one of the skewed loop."""
    there = _at(steps)
    return m.between(m.formula(ahead.begin, there), steps[0], m.formula(ahead.end, there))


def _own(ahead: Ahead, m: Meaning, steps: Steps) -> Term:
    """It is run, and so is the one before, which makes scores, and of this step's tile."""
    step, first, end = steps
    earlier = (step - 1, first, end)
    before = _at(earlier)
    runs = m.both(_runs(ahead, m, steps), _runs(ahead, m, earlier))
    makes = m.truth(ahead.exists, before)
    meant = m.formula(ahead.following, before) == step
    return m.implies(m.between(first, step, end), m.both(runs, makes, meant))


def _visited(ahead: Ahead, m: Meaning, steps: Steps) -> Term:
    _, first, end = steps
    there = _at(steps)
    inside = m.between(first, m.formula(ahead.following, there), end)
    return m.implies(m.truth(ahead.exists, there), inside)


def _in_turn(ahead: Ahead, m: Meaning, steps: Steps) -> Term:
    step, first, end = steps
    return m.same(m.truth(ahead.visits, _at(steps)), m.between(first, step, end))


def _none_once(ahead: Ahead, m: Meaning, steps: Steps) -> Term:
    """Before the loop's first step stands at most the one that takes -inf for scores."""
    step, first, _ = steps
    return m.implies(step < first, step == m.formula(ahead.begin, _at(steps)))
