"""Drop from a mask what is known anyway in the tiles that a loop still visits.

Why: `kv_idx < kv_len` costs a comparison and a conjunction for each score; a causal mask or a
window says it already, because no query stands behind the last key.  A condition on the whole
tile (a head that is switched off) has emptied the loop's range where it fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

from sympy import Symbol
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Axis, Formula, Kernel, Level, Loop, Stmt
from attnc.passes.affine import affine
from attnc.passes.box import Box
from attnc.passes.reading import conjuncts, inline, is_tail_test, is_whole, varying_names
from attnc.passes.regions import high_within
from attnc.passes.spans import spans_of
from attnc.symbols import names_in


@dataclass(frozen=True, slots=True)
class DropImpliedBounds:
    """Shorten the condition of a bounded loop's reductions.

    before:  sum over k where kv_idx <= q_pos and kv_idx < kv_len and gate != 0 of x
    after:   sum over k where kv_idx <= q_pos of x
    """

    name: ClassVar[str] = "drop-implied-bounds"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.STREAMED

    inner: str = "k"
    outer: str = "q"

    def run(self, kernel: Kernel) -> Kernel:
        """Shorten the conditions of every masked loop over the inner axis."""
        if not {self.inner, self.outer} <= {axis.name for axis in kernel.axes}:
            return kernel
        body: list[Stmt] = [
            self._shorten(statement, kernel) if self._is_bounded(statement, kernel) else statement
            for statement in kernel.body
        ]
        return replace(kernel, body=tuple(body))

    def _is_bounded(self, statement: Stmt, kernel: Kernel) -> bool:
        return (
            isinstance(statement, Loop)
            and statement.axis == self.inner
            and not is_whole(statement, kernel.axis(self.inner))
        )

    def _shorten(self, loop: Stmt, kernel: Kernel) -> Loop:
        assert isinstance(loop, Loop)
        short: dict[Boolean, Boolean] = {}
        for reduction in loop.reductions:
            if reduction.where not in short:
                short[reduction.where] = self._needed(reduction.where, loop, kernel)
        reductions = tuple(replace(r, where=short[r.where]) for r in loop.reductions)
        conditions = {str(r.where) for r in reductions}
        body = tuple(
            replace(let, value=Formula(self._needed(cast(Boolean, let.value.expr), loop, kernel)))
            if let.name in conditions and isinstance(let.value, Formula)
            else let
            for let in loop.body
        )
        return replace(loop, body=body, reductions=reductions)

    def _needed(self, condition: Boolean, loop: Loop, kernel: Kernel) -> Boolean:
        """The parts of a condition that the loop's range does not imply."""
        inner, outer = kernel.axis(self.inner), kernel.axis(self.outer)
        varying = varying_names(kernel, loop)
        kept = [part for part in conjuncts(condition) if names_in(part) & varying]
        rest = [part for part in kept if not is_tail_test(part, inner)]
        if len(rest) < len(kept) and self._stays_on_axis(And(*rest), inner, outer, kernel, loop):
            kept = rest
        return And(*kept)

    def _stays_on_axis(
        self, condition: Boolean, inner: Axis, outer: Axis, kernel: Kernel, loop: Loop
    ) -> bool:
        """Whether a condition shows no column behind the last one to any row that exists."""
        beyond = Symbol(f"{inner.index.name}_unlimited", integer=True, nonnegative=True)
        end = Symbol(f"{outer.index.name}_end", integer=True, positive=True)
        box = Box(outer.index, outer.first, end, outer.size, inner.index, beyond)
        spans = spans_of(inline(condition, kernel, loop), box, varying_names(kernel, loop))
        last = (affine(inner.size),)
        return all(any(high_within(box, high, last) for high in s.outer.highs) for s in spans)
