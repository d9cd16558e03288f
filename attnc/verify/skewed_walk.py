"""Run a loop as a schedule may skew it: what is for the next step is made in this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy
from sympy import Basic

from attnc.ir.nodes import END_STEP, FIRST_STEP, STEP, Ahead, Let, Load, Loop
from attnc.verify.evaluation import Environment, evaluate
from attnc.verify.tiles import Tiles


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a loop that visits these tiles; steps count from 0, the first may be before it."""

    number: int
    visited: Sequence[int]

    def of(self, formula: Basic) -> Any:
        """What a formula over numbers of steps is."""
        names = ((STEP, self.number), (FIRST_STEP, 0), (END_STEP, len(self.visited)))
        return evaluate(formula, Environment({str(name): np.int64(n) for name, n in names}))

    def tile(self, number: int) -> int:
        """The tile of a step; before the first and after the last the tiles go on."""
        last = len(self.visited) - 1
        if last < 0:
            return number
        inside = min(max(number, 0), last)
        return self.visited[inside] + number - inside


@dataclass(frozen=True, slots=True)
class SkewedWalk:
    """A loop that runs ahead.

    enter: binds where a tile stands.  bind: runs a Let.  visit: runs a loop's body on a tile.
    """

    tiles: Tiles
    enter: Callable[[int], None]
    bind: Callable[[Let], None]
    visit: Callable[[Loop, int], None]

    def run(self, loop: Loop, ahead: Ahead, visited: Sequence[int]) -> None:
        """Walk from the early first step on; only one value passes from step to step."""
        front = tuple(let for let in loop.body if let.name in ahead.lets)
        rest = tuple(let for let in loop.body if let.name not in ahead.lets)
        (axes,) = (let.axes for let in front if let.name == ahead.value)
        taken = self.tiles.spread(np.float64(-np.inf), axes)
        begin, end = (int(Step(0, visited).of(bound)) for bound in (ahead.begin, ahead.end))
        for number in range(begin, end):
            step = Step(number, visited)
            made = self._made(front, ahead, step)
            body = rest if step.of(ahead.visits) else tuple(map(_unread, rest))
            self.tiles.values = {**self.tiles.values, ahead.value: taken}
            self.visit(replace(loop, body=body, ahead=None), step.tile(number))
            taken = made
        self.tiles.values.pop(ahead.value, None)

    def _made(self, front: tuple[Let, ...], ahead: Ahead, step: Step) -> Any:
        outer = dict(self.tiles.values)
        self.enter(step.tile(int(step.of(ahead.following))))
        for let in front if step.of(ahead.exists) else map(_unread, front):
            self.bind(let)
        made = self.tiles.values[ahead.value]
        self.tiles.values = outer
        return made


def _unread(let: Let) -> Let:
    """A load that reads nothing."""
    if not isinstance(let.value, Load):
        return let
    return replace(let, value=replace(let.value, guard=sympy.false))
