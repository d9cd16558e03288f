"""Let reductions over the same axis share one loop, sums following the maximum they are against.

Why: three passes over the keys become one.  A sum of f(x, m) may run while m is still growing iff a
change of m can be repaired on what has been summed so far: f(x, m') = a(m, m') (f(x, m) + c(m, m')
g(x, m)) with a and c free of all that varies along the axis, and g summed beside it.  Then a linear
map repairs the sums; online softmax, FlashAttention's accumulator and entropy (the sum of
exp(t - m) (t - m), beside that of exp(t - m)) are instances.  What the sums start from obeys the
same repair: with a sink, l starts from exp(sink - m) where m starts from the sink, which is 1.
Source: Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import sympy
from sympy import Expr, S

from attnc.ir.functions import Anchor, new, old, tile_symbol
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
    sums = [reduction for reduction in first.reductions if reduction.repair is not None]
    followers = tuple(_follow(one, running, varies, sums) for one in second.reductions)
    return replace(first, body=tuple(ordered), reductions=(*first.reductions, *followers))


def _depth(let: Let, lets: dict[str, Let]) -> int:
    return 1 + max((_depth(lets[name], lets) for name in reads_of(let) if name in lets), default=0)


def _follow(
    reduction: Reduce, running: dict[str, Reduce], varies: set[str], sums: list[Reduce]
) -> Reduce:
    """Make a reduction follow the running maximum that its element mentions."""
    followed = [name for name in sorted(names_in(reduction.element)) if name in running]
    if not followed:
        return reduction
    if len(followed) > 1 or reduction.kind != "sum":
        raise CannotStream(f"{reduction.name} reads {' and '.join(followed)} of the same loop")
    (leader,) = followed
    same = (leader, reduction.where, S.Zero)
    beside = [one for one in sums if (one.follows, one.where, one.init) == same]
    repair = repair_of(reduction, leader, varies, beside)
    at_first = replaced(repair, {tile_symbol(one.name): S.Zero for one in beside})
    init = _start(reduction, running[leader], at_first)
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


def repair_of(
    reduction: Reduce, leader: str, varies: set[str], beside: Sequence[Reduce] = ()
) -> Expr:
    """What the sum so far becomes when `leader` moves; `beside`: sums that follow it already.

    Where a score is -inf its exponential is 0, and what stands for its logarithm does not matter.
    Raises: CannotStream where no such map exists.
    """
    m, total = tile_symbol(leader), tile_symbol(reduction.name)
    element = cast(Expr, reduction.element.replace(Anchor, lambda x: x))
    before, after = (replaced(element, {m: moved(leader)}) for moved in (old, new))
    factor = _ratio(after, before, varies)
    if not names_in(factor) & varies:
        return total * factor
    for other in beside:
        assert other.repair is not None
        scale = other.repair / tile_symbol(other.name)
        theirs = replaced(other.element, {m: old(leader)})
        rest = _ratio(after, scale * theirs, varies) - _ratio(before, theirs, varies)
        shift = sympy.expand(rest)
        if not names_in(shift) & varies:
            return scale * (total + shift * tile_symbol(other.name))
    raise CannotStream(
        f"{reduction.name}: a change of {leader} cannot be repaired on the sum of "
        f"{reduction.element}"
    )


def _ratio(one: Expr, other: Expr, varies: set[str]) -> Expr:
    """One over the other, as far as needs be simplified."""
    ratio = sympy.powsimp(one / other)
    return sympy.simplify(ratio) if names_in(ratio) & varies else ratio
