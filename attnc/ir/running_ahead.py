"""What runs ahead of a loop stands by itself: the rest takes one value from it, and gives none."""

from __future__ import annotations

from collections.abc import Iterable

from attnc.ir.nodes import END_STEP, FIRST_STEP, STEP, Ahead, Loop
from attnc.ir.rebuild import reads_of
from attnc.symbols import names_in


def mistake_in(loop: Loop, ahead: Ahead) -> str | None:
    """What is wrong with how a loop runs ahead; None if nothing is."""
    bound, early = {let.name for let in loop.body}, set(ahead.lets)
    if missing := (early | {ahead.value}) - (bound & early):
        return f"{_listed(missing)} runs ahead in a loop that does not bind it"
    of_its_step = bound - early | {update.name for update in loop.updates}
    for let in loop.body:
        if let.name in early and (read := reads_of(let) & of_its_step):
            return f"{let.name} runs ahead of {_listed(read)}"
        if let.name not in early and (read := reads_of(let) & early - {ahead.value}):
            return f"{let.name} reads {_listed(read)} of another step"
    formulas = (ahead.begin, ahead.end, ahead.following, ahead.exists, ahead.visits)
    if other := names_in(*formulas) - set(map(str, (STEP, FIRST_STEP, END_STEP))):
        return f"{_listed(other)} is no number of a step"
    if loop.rounds is not None:
        return "a loop of several rounds cannot run ahead"
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
