"""The loop of a backward kernel: what it walks, and what its rounds begin with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from attnc.graph.operations import LogSumExp
from attnc.ir.functions import Anchor
from attnc.ir.nodes import Formula, Let, Reduce, Rounds, Stmt
from attnc.ir.rebuild import reads_of, substitution
from attnc.plan.tiles import TilePlan
from attnc.symbols import value_symbol


def anchor_rows(tiles: TilePlan) -> None:
    """Take exponents against lse, or 0 where that is -inf."""
    values = tiles.flow.values.items()
    sums = [name for name, operation in values if isinstance(operation, LogSumExp)]
    change = substitution({name: Anchor(value_symbol(name)) for name in sums})
    for name, let in tiles.lets.items():
        if isinstance(let.value, Formula):
            tiles.lets[name] = replace(let, value=Formula(change(let.value.expr)))


def walk(tiles: TilePlan, reductions: list[Reduce]) -> list[Stmt]:
    """What does not move with the loop, and the loop; in rounds, where a program sums over more."""
    still = [let for let in tiles.lets.values() if tiles.walked not in let.axes]
    if not reductions:
        return list(still)
    loop, rounds = tiles.loop(reductions), tiles.programs.rounds()
    if rounds is None:
        return [*still, loop]
    moving = made_of(still, moving_names(tiles, rounds))
    inside = tuple(let for let in still if let.name in moving)
    outside = [let for let in still if let.name not in moving]
    return [*outside, replace(loop, rounds=replace(rounds, lets=(*rounds.lets, *inside)))]


def moving_names(tiles: TilePlan, rounds: Rounds | None) -> set[str]:
    """What differs from round to round: names, and positions of tiles that rounds bring."""
    if rounds is None:
        return set()
    names = {str(rounds.index), *(let.name for let in rounds.lets)}
    moved = (axis for axis in tiles.axes if str(axis.first) in names)
    return names | {str(axis.index) for axis in moved}


def made_of(lets: Iterable[Let], names: set[str]) -> set[str]:
    """The lets that vary with names, directly or not."""
    found: set[str] = set()
    for let in lets:
        if reads_of(let) & (names | found):
            found.add(let.name)
    return found
