"""Let a new value take the name of the carried value that it replaces.

Only where the old value is no longer read:
acc_rescaled = acc * rescale; acc_new = dot(p, v, acc_rescaled); acc <- acc_new
->  acc = acc * rescale; acc = dot(p, v, acc)
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Symbol

from attnc.ir.nodes import Let, Loop
from attnc.ir.rebuild import map_value, reads_of, substitution


def in_place(loop: Loop) -> Loop:
    """Rename values into the carried names that they end up in."""
    for update in loop.updates:
        loop = _chain(loop, update.name, update.value)
    return loop


def _chain(loop: Loop, carried: str, value: str) -> Loop:
    """Rename `value`, then what only it reads, as long as the carried value is dead from there."""
    position = next((i for i, let in enumerate(loop.body) if let.name == value), None)
    if position is None or not _is_dead_after(loop, carried, position):
        return loop
    source = _only_source(loop, position, carried)
    loop = _rename(loop, value, carried, position)
    return _chain(loop, carried, source) if source else loop


def _is_dead_after(loop: Loop, carried: str, position: int) -> bool:
    later = (let for let in loop.body[position + 1 :])
    return not any(carried in reads_of(let) for let in later)


def _only_source(loop: Loop, position: int, carried: str) -> str | None:
    """A value that stands for the carried one in this statement alone."""
    if carried in reads_of(loop.body[position]):
        return None
    axes = loop.body[position].axes
    for i, let in enumerate(loop.body[:position]):
        readers = [j for j, other in enumerate(loop.body) if let.name in reads_of(other)]
        if carried in reads_of(let) and let.axes == axes and readers == [position] and i < position:
            return let.name
    return None


def _rename(loop: Loop, value: str, carried: str, position: int) -> Loop:
    rewrite = substitution({value: Symbol(carried, real=True)})
    body: list[Let] = []
    for i, let in enumerate(loop.body):
        name = carried if i == position else let.name
        body.append(
            replace(
                let, name=name, value=map_value(let.value, rewrite) if i > position else let.value
            )
        )
    updates = tuple(
        update for update in loop.updates if (update.name, update.value) != (carried, value)
    )
    kept = tuple(
        replace(u, value=carried) if u.value == value and u.name != carried else u for u in updates
    )
    return replace(loop, body=tuple(body), updates=kept)
