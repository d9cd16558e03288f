"""Let reductions over the same axis share one loop, sums following the maximum they are against.

Why: three passes over the keys become one.  A sum of f(x, m) may run while m is still growing iff a
change of m can be repaired on what has been summed so far: f(x, m') = a(m, m') f(x, m) with `a`
free of all that varies along the axis.  Then a linear map repairs the sum, and online softmax and
FlashAttention's accumulator are instances.  What the sums start from obeys the same repair: with a
sink, l starts from exp(sink - m) where m starts from the sink, which is 1.
Source: Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import sympy
from sympy import Expr

from attnc.ir.functions import new, old, tile_symbol
from attnc.ir.nodes import Kernel, Let, Level, Loop, Reduce, Stmt
from attnc.ir.rebuild import axes_by_name, reads_of
from attnc.symbols import names_in, replaced


class CannotStream(Exception):
    """A reduction needs the final value of another, and no repair exists."""


@dataclass(frozen=True, slots=True)
class StreamReductions:
    """Fuse loops over the same tiles.

    loop: m = max t;  loop: l = sum exp(t - m)
    ->   loop: m = max t, l = sum exp(t - m) following m, repaired by l * exp(m_old - m_new)
    """

    name: ClassVar[str] = "stream-reductions"
    needs: ClassVar[Level] = Level.NAIVE
    leaves: ClassVar[Level] = Level.STREAMED

    def run(self, kernel: Kernel) -> Kernel:
        """Fuse every loop whose reductions can all follow into the first over the same tiles."""
        body: list[Stmt] = []
        for stmt in kernel.body:
            target = _earlier_loop(body, stmt)
            if target is None:
                body.append(stmt)
                continue
            assert isinstance(stmt, Loop)
            merged = _fuse(body[target], stmt, kernel)
            body = [
                *_without_readers(body, target, merged),
                merged,
                *_readers(body, target, merged),
            ]
        return replace(kernel, body=tuple(body))


def _earlier_loop(body: list[Stmt], stmt: Stmt) -> int | None:
    if not isinstance(stmt, Loop):
        return None
    same = (
        i
        for i, s in enumerate(body)
        if isinstance(s, Loop) and (s.axis, s.pieces) == (stmt.axis, stmt.pieces)
    )
    return next(same, None)


def _without_readers(body: list[Stmt], target: int, merged: Loop) -> list[Stmt]:
    late = _readers(body, target, merged)
    return [stmt for i, stmt in enumerate(body) if i != target and stmt not in late]


def _readers(body: list[Stmt], target: int, merged: Loop) -> list[Stmt]:
    """Statements after the loop that read its results, directly or not: they stay behind it."""
    known = {reduction.name for reduction in merged.reductions}
    late: list[Stmt] = []
    for stmt in body[target + 1 :]:
        if reads_of(stmt) & known:
            late.append(stmt)
            known |= {stmt.name} if isinstance(stmt, Let) else set()
    return late


def _fuse(first: Stmt, second: Loop, kernel: Kernel) -> Loop:
    assert isinstance(first, Loop)
    lets = {let.name: let for let in (*first.body, *second.body)}
    ordered = sorted(lets.values(), key=lambda let: _depth(let, lets))
    running = {
        reduction.name: reduction for reduction in first.reductions if reduction.kind == "max"
    }
    axes = axes_by_name(kernel.body)
    varies = {name for name, along in axes.items() if second.axis in along} | {
        str(kernel.axis(second.axis).index)
    }
    followers = tuple(_follow(reduction, running, varies) for reduction in second.reductions)
    return replace(first, body=tuple(ordered), reductions=(*first.reductions, *followers))


def _depth(let: Let, lets: dict[str, Let]) -> int:
    return 1 + max((_depth(lets[name], lets) for name in reads_of(let) if name in lets), default=0)


def _follow(reduction: Reduce, running: dict[str, Reduce], varies: set[str]) -> Reduce:
    """Make a reduction follow the running maximum that its element mentions."""
    followed = [name for name in sorted(names_in(reduction.element)) if name in running]
    if not followed:
        return reduction
    if len(followed) > 1 or reduction.kind != "sum":
        raise CannotStream(f"{reduction.name} reads {' and '.join(followed)} of the same loop")
    (leader,) = followed
    repair = repair_of(reduction, leader, varies)
    init = _start(reduction, running[leader], repair)
    return replace(reduction, init=init, follows=leader, repair=repair)


def _start(reduction: Reduce, leader: Reduce, repair: Expr) -> Expr:
    """What a sum starts from, where its leader starts.

    It obeys the repair: moving the leader before the first tile changes nothing.
    """
    assert reduction.init is not None and leader.init is not None
    m = tile_symbol(leader.name)
    before, after = (replaced(reduction.init, {m: at(leader.name)}) for at in (old, new))
    repaired = sympy.powsimp(replaced(repair, {tile_symbol(reduction.name): before}))
    start = replaced(reduction.init, {m: leader.init})
    if repaired != after or not start.is_number:
        raise CannotStream(f"the start of {reduction.name} does not obey its repair {repair}")
    return start


def repair_of(reduction: Reduce, leader: str, varies: set[str]) -> Expr:
    """What the sum so far becomes when `leader` moves.

    Raises: CannotStream where no such map exists.
    """
    m = tile_symbol(leader)
    before, after = (replaced(reduction.element, {m: moved(leader)}) for moved in (old, new))
    factor = sympy.powsimp(after / before)
    if names_in(factor) & varies:
        factor = sympy.simplify(factor)
    if names_in(factor) & varies:
        raise CannotStream(
            f"{reduction.name}: a change of {leader} cannot be repaired on the sum of "
            f"{reduction.element}"
        )
    return tile_symbol(reduction.name) * factor
