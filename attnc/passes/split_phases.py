"""Give the tiles that need no mask a loop of their own.

Why: most tiles of a long sequence are wholly visible; their loop holds no comparison and no
select. Two loops are enough however many pieces there are: a loop visits the concatenation of its
pieces, which is half the code of a loop for each and as fast.  The order of tiles does not
matter, because reductions commute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sympy import Symbol, true
from sympy.core.relational import Relational
from sympy.logic.boolalg import And, Boolean, Or

from attnc.ir.nodes import Axis, Collapse, Kernel, Let, Level, Load, Loop, Reduce, Stmt
from attnc.passes.reading import conjuncts, is_tail_test, reached
from attnc.symbols import names_in, sign_of


@dataclass(frozen=True, slots=True)
class SplitPhases:
    """Split a loop with pieces of both kinds in two.

    before:  loop over [a, b) unmasked, [b, c) masked: sum over k where mask of x from init
    after:   loop over [a, b): sum over k of x from init
             loop over [b, c) masked: sum over k where mask of x, continued
    """

    name: ClassVar[str] = "split-phases"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.STREAMED

    def run(self, kernel: Kernel) -> Kernel:
        """Split every loop that has unmasked pieces."""
        body: list[Stmt] = []
        for statement in kernel.body:
            if isinstance(statement, Loop):
                body += _phases(statement, kernel)
            else:
                body.append(statement)
        return replace(kernel, body=tuple(body))


def _phases(loop: Loop, kernel: Kernel) -> tuple[Loop, ...]:
    unmasked = tuple(piece for piece in loop.pieces if not piece.masked)
    masked = tuple(piece for piece in loop.pieces if piece.masked)
    if not unmasked or loop.note:
        return (loop,)
    first = replace(_without_mask(loop, kernel), pieces=unmasked)
    if not masked:
        return (first,)
    rest = replace(
        loop,
        pieces=masked,
        reductions=tuple(replace(r, init=None) for r in loop.reductions),
        note="tiles in which something is hidden",
    )
    return first, rest


def _without_mask(loop: Loop, kernel: Kernel) -> Loop:
    axis = kernel.axis(loop.axis)
    edges = _edges(loop, kernel)
    reductions = tuple(replace(reduction, where=true) for reduction in loop.reductions)
    body = tuple(_without_guard(let, axis, edges, _tests(loop)) for let in loop.body)
    return replace(
        loop,
        body=_needed(body, reductions),
        reductions=reductions,
        note="tiles in which everything is visible",
    )


def _without_guard(let: Let, axis: Axis, edges: set[str], tests: set[str]) -> Let:
    """A load less the conditions that hold in every wholly visible tile."""
    if not isinstance(let.value, Load):
        return let
    kept = [
        part
        for part in conjuncts(let.value.guard)
        if not (is_tail_test(part, axis) or _is_inside(part, axis, edges) or str(part) in tests)
    ]
    return replace(let, value=replace(let.value, guard=And(*kept)))


def _is_inside(condition: Boolean, axis: Axis, edges: set[str]) -> bool:
    """Whether a condition only compares the index with the edges of what some row sees."""
    if isinstance(condition, And | Or):
        return all(_is_inside(part, axis, edges) for part in condition.args)
    if not isinstance(condition, Relational) or condition.lhs != axis.index:
        return False
    edge = condition.rhs
    is_edge = isinstance(edge, Symbol) and edge.name in edges
    return is_tail_test(condition, axis) or (is_edge and sign_of(condition) in ("<", ">="))


def _edges(loop: Loop, kernel: Kernel) -> set[str]:
    """The scalars that the loop's range was made of (columns and tiles alike)."""
    scalars = {s.name: s for s in kernel.body if isinstance(s, Let) and not s.axes}
    ends = (end for piece in loop.pieces for end in (piece.start, piece.stop))
    return reached(names_in(*ends), scalars)


def _tests(loop: Loop) -> set[str]:
    """Values that say which columns some row sees: any of the reductions' condition."""
    conditions = {str(reduction.where) for reduction in loop.reductions}
    return {
        let.name
        for let in loop.body
        if isinstance(let.value, Collapse) and let.value.value in conditions
    }


def _needed(body: tuple[Let, ...], reductions: tuple[Reduce, ...]) -> tuple[Let, ...]:
    """The lets that something still reads."""
    by_name = {let.name: let for let in body}
    needed = reached(names_in(*(reduction.element for reduction in reductions)), by_name)
    return tuple(let for let in body if let.name in needed)
