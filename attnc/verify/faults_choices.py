"""Small deliberate faults in what a READY kernel does only where a schedule chooses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sympy import true

from attnc.ir.nodes import STEP, Kernel, Let, Load, Loop
from attnc.verify.faults import Fault, statements, swapped


def choice_faults(kernel: Kernel) -> Iterator[Fault]:
    """Faults of every choice."""
    yield from steps_ahead(kernel)
    yield from rows_described(kernel)


def rows_described(kernel: Kernel) -> Iterator[Fault]:
    """A descriptor that begins or ends a row early or late."""
    for where, let in statements(kernel):
        if not isinstance(let, Let) or not isinstance(load := let.value, Load):
            continue
        if load.described is None:
            continue
        first, end = load.described
        options = {
            "begins a row late": (first + 1, end),
            "begins a row early": (first - 1, end),
            "ends a row early": (first, end - 1),
            "ends a row late": (first, end + 1),
        }
        for what, rows in options.items():
            changed = replace(let, value=replace(load, described=rows))
            yield f"{where}{let.name}, described, {what}", swapped(kernel, let, changed)


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
