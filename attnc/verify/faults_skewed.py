"""Small deliberate faults in how a READY kernel's loop runs ahead where a schedule skews it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sympy import true

from attnc.ir.nodes import STEP, Kernel, Loop
from attnc.verify.faults import Fault, swapped


def steps_ahead(kernel: Kernel) -> Iterator[Fault]:
    """A skewed loop that makes another tile's scores, reads without a guard, or begins amiss."""
    loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    for number, loop in enumerate(loops):
        if (ahead := loop.ahead) is None:
            continue
        options: dict[str, Any] = {
            "makes the scores of its own step": {"following": ahead.following - 1},
            "makes the scores of a step later": {"following": ahead.following + 1},
            "makes scores after the last": {"exists": true},
            "makes none for the last": {"exists": ahead.exists.subs(STEP, STEP + 1)},
            "reads before the first": {"visits": true},
            "begins with the first": {"begin": ahead.begin + 1},
            "begins two steps early": {"begin": ahead.begin - 1},
            "ends a step early": {"end": ahead.end - 1},
            "ends a step late": {"end": ahead.end + 1},
        }
        for what, fault in options.items():
            changed = replace(loop, ahead=replace(ahead, **fault))
            yield f"loop {number}, skewed, {what}", swapped(kernel, loop, changed)
