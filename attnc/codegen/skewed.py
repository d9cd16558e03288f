"""The body of a loop that a schedule may skew: one text for both, by the constant SKEW.

if SKEW: scores = scores_ahead          as the step before made them
         ahead = tile + 1; k_tile = load; scores_ahead = dot
else:    k_tile = load; scores = dot
softmax
p v
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnc.codegen.counting import Steps
from attnc.codegen.lines import Line, renamed, where_a_tile_stands
from attnc.codegen.value_text import INTEGERS, ValueText
from attnc.ir.nodes import Ahead, Axis, Let, Load, Loop


def first_scores(ahead: Ahead, values: ValueText) -> Line:
    """What the first step takes for the scores that no step before it made."""
    shape = values.shape(values.text.names[ahead.value].axes)
    made = Line("line", f'{ahead.value}_ahead = tl.full({shape}, float("-inf"), tl.float32)')
    return Line("block", "if SKEW:", "", (made,))


def skewed(loop: Loop, body: list[Line], axis: Axis, steps: Steps) -> list[Line]:
    """The lines of a body, those of the values that run ahead once for either choice."""
    ahead = loop.ahead
    assert ahead is not None
    both = list(zip(loop.body, body, strict=False))
    front = [(let, line) for let, line in both if let.name in ahead.lets]
    taken = Line("line", f"{ahead.value} = {ahead.value}_ahead", "made by the step before")
    early = Line("block", "if SKEW:", "", (taken, *_of_next_step(ahead, front, axis, steps)))
    in_turn = Line("block", "else:", "", tuple(line for _, line in front))
    visits = f"not SKEW or {steps.text(ahead.visits)}"
    rest = [
        _guarded(line, visits, let) if isinstance(let.value, Load) else line
        for let, line in both
        if let.name not in ahead.lets
    ]
    return [early, in_turn, *rest, *body[len(both) :]]


def _of_next_step(
    ahead: Ahead, front: list[tuple[Let, Line]], axis: Axis, steps: Steps
) -> Iterator[Line]:
    """What runs ahead, over the tile of the step that it is for."""
    yield from steps.tile_of(ahead.following)
    names = {"tile": "ahead", ahead.value: f"{ahead.value}_ahead"}
    names |= {str(place): f"{place}_ahead" for place in (axis.first, axis.index)}
    for line in where_a_tile_stands(axis, [line for _, line in front]):
        yield replace(line, text=renamed(line.text, names))
    for let, line in front:
        moved = replace(line, text=renamed(line.text, names), remark="")
        is_load = isinstance(let.value, Load)
        yield _guarded(moved, steps.text(ahead.exists), let) if is_load else moved


def _guarded(line: Line, condition: str, let: Let) -> Line:
    """A load that reads only where a condition holds too: else by descriptor, of the tile -1."""
    described, by_pointers, pointers = line.text.partition(" if TMA else ")
    if by_pointers:
        name = "ahead" if "[ahead *" in described else "tile"
        if condition != "not SKEW or tile >= 0":  # then the tile before the first is -1
            index = f"[({name} if {condition} else -1) *"
            described = described.replace(f"[{name} *", index)
        guarded = _guarded(replace(line, text=pointers), condition, let)
        return replace(line, text=f"{described}{by_pointers}{guarded.text}")
    head, masked, rest = line.text.partition(", mask=")
    if masked:
        guard, other, fill = rest.partition(", other=")
        guard = guard if guard.endswith("]") else f"({guard})"
        return replace(line, text=f"{head}, mask={guard} & ({condition}){other}{fill}")
    fill = "0" if let.dtype in ("i1", *INTEGERS) else "0.0"
    call, close, rest = line.text.rpartition(")")
    if rest or call.endswith("(tl.float32"):  # a cast follows
        call, close, rest = line.text.rpartition(").to(")
    return replace(line, text=f"{call}, mask={condition}, other={fill}{close}{rest}")
