"""Let a loop make the scores of its next tile before it is through with the one at hand.

Why: a tile's q k^T, softmax and p v wait for each other.  Once the next product does not wait for
this softmax, the compiler puts its instructions among the exponentials (sm_90).  It costs registers
for a second tile of scores, so it is a choice of the schedule: the kernel's text offers both.

The skewed loop begins a step early, over nothing but scores of -inf.  They change nothing that is
carried, because all they meet is a maximum and exponentials.  A product before the loop would save
that step, but its tile keeps its shared memory throughout; and around a loop that may run no step
at all ptxas spills, or lets every product wait for the one before.  This one always runs a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sympy import Ge, Lt, Max, exp

from attnc.ir.functions import Exp2
from attnc.ir.nodes import (
    END_STEP,
    FIRST_STEP,
    STEP,
    Ahead,
    Collapse,
    Dot,
    Formula,
    Kernel,
    Let,
    Level,
    Loop,
)
from attnc.ir.rebuild import reads_of


@dataclass(frozen=True, slots=True)
class SkewProducts:
    """Mark what an unmasked loop may make a step early: what the maximum is taken of.

    loop: k_tile = load; s = dot(q_tile, k_tile); m_new = max(m, max s); p = exp2(s f - m_new f) ...
    ->   the same; skewed, from step first - 1: makes k_tile, s of step + 1; takes s of step - 1
    """

    name: ClassVar[str] = "skew-products"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Mark every loop that can run ahead."""
        body = (_marked(stmt) if isinstance(stmt, Loop) else stmt for stmt in kernel.body)
        return replace(kernel, body=tuple(body))


def _marked(loop: Loop) -> Loop:
    if loop.rounds is not None or any(piece.masked for piece in loop.pieces):
        return loop  # another tile's mask shows other keys than none
    maxima = [name for let in loop.body for name in reads_of(let) if _is_maximum(let)]
    lets = _behind(loop, maxima[0]) if len(maxima) == 1 else ()
    if not any(isinstance(let.value, Dot) for let in lets) or not _stands_apart(loop, lets):
        return loop
    names = tuple(let.name for let in lets)
    ahead = Ahead(
        names,
        maxima[0],
        begin=FIRST_STEP - 1,
        end=Max(FIRST_STEP, END_STEP),
        following=STEP + 1,
        exists=Lt(STEP + 1, END_STEP),
        visits=Ge(STEP, FIRST_STEP),
        span=loop.span,
    )
    return replace(loop, ahead=ahead)


def _is_maximum(let: Let) -> bool:
    return isinstance(let.value, Collapse) and let.value.kind == "max"


def _behind(loop: Loop, name: str) -> tuple[Let, ...]:
    """A value of the body and all in the body that it is made of."""
    wanted, found = {name}, list[Let]()
    for let in reversed(loop.body):
        if let.name in wanted:
            found.insert(0, let)
            wanted |= reads_of(let)
    return tuple(found)


def _stands_apart(loop: Loop, lets: tuple[Let, ...]) -> bool:
    """Whether the lets need nothing carried, and the rest takes -inf for no scores."""
    carried = {update.name for update in loop.updates}
    if any(reads_of(let) & carried for let in lets):
        return False
    made, rest = {let.name for let in lets}, [let for let in loop.body if let not in lets]
    value = lets[-1].name
    if any(reads_of(let) & (made - {value}) for let in rest):
        return False
    return all(_takes_none(let) for let in rest if value in reads_of(let))


def _takes_none(let: Let) -> bool:
    """Whether scores of -inf give what joins nothing: a maximum of -inf, a weight of 0."""
    power = isinstance(let.value, Formula) and isinstance(let.value.expr, Exp2 | exp)
    return power or _is_maximum(let)
