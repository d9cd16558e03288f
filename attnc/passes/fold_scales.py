"""Fold constant factors of the score and log2 e into the exponent of exp2.

Why: the hardware has exp2, and exp2(x * factor - m * factor) is one multiply-add and one exp2 a
score.  The running maximum is that of x, in x's own units: lse then suffers no change of units and
back.  A maximum that starts from a sink is in the sink's units: the factor joins it row by row.

A score that may come near the largest float32 (a user's bias or param of -3.4e38 is finite) is not
multiplied before the maximum is subtracted: times log2 e it would become -inf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import sympy
from sympy import Expr, Float, Integer, S, Symbol, exp

from attnc import symbols
from attnc.ir.functions import Exp2, tile_symbol
from attnc.ir.nodes import Formula, Kernel, Let, Level, Loop, Reduce, Scalar, Stmt
from attnc.ir.rebuild import map_stmt, prune, substitution
from attnc.passes.exponents import LOG2_E, constant_factor, holds_real_param, may_be_huge
from attnc.symbols import replaced

SMALLEST_UNIT = Float(
    "1.2e-38"
)  # a normal float32: -inf times it is -inf, where scale = 0 gives NaN
LEAST = Float("-3e38")  # no exponent is taken against -inf
SIGN = Symbol("scale_sign", real=True)
UNIT, FACTOR = Symbol("unit", positive=True), Symbol("factor", positive=True)


@dataclass(frozen=True, slots=True)
class FoldScales:
    """m = max(c x), sum exp(c x - m)   ->   m = max(x), sum exp2(x f - m f).

    f = c log2 e.  After the loop, m is read as c m.
    From a sink: m = max(c x), sum exp2(x f - m log2 e).
    """

    name: ClassVar[str] = "fold-scales"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.STREAMED

    def run(self, kernel: Kernel) -> Kernel:
        """Rewrite each running maximum, its followers, and what reads it after the loop."""
        loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
        leaders = [r.name for loop in loops for r in loop.reductions if r.kind == "max"]
        for name in dict.fromkeys(leaders):
            kernel = _fold(kernel, name)
        return prune(kernel)


def _fold(kernel: Kernel, leader: str) -> Kernel:
    fold = _Fold.of(kernel, leader)
    in_score_units = substitution({leader: tile_symbol(leader) * fold.held})
    body: list[Stmt] = []
    for stmt in kernel.body:
        if isinstance(stmt, Loop) and any(r.name == leader for r in stmt.reductions):
            body += [*fold.before, fold.loop(stmt)]
        else:
            body.append(map_stmt(stmt, in_score_units))
    return replace(kernel, body=tuple(body), scalars=(*kernel.scalars, *fold.scalars))


@dataclass(frozen=True, slots=True)
class _Fold:
    leader: str
    score: str  # the value whose maximum is taken
    inside: (
        Expr  # what the loop computes in place of the score's formula: the score is unit * inside
    )
    unit: Expr
    held: Expr  # the maximum is held * what the loop carries: the unit, or 1
    factor: Expr | None  # unit * log2 e, or None where the score must not be multiplied
    before: tuple[Let, ...] = ()
    scalars: tuple[Scalar, ...] = ()

    @classmethod
    def of(cls, kernel: Kernel, leader: str) -> _Fold:
        """Decide which factor leaves the score that the leader maximises."""
        loop, reduction = _where_reduced(kernel, leader)
        score = str(reduction.element)
        lets = {let.name: let.value for let in loop.body}
        value = lets[score]
        assert isinstance(value, Formula)
        formula = cast(Expr, value.expr)
        constant, rest = constant_factor(formula, kernel)
        if may_be_huge(formula, loop, kernel) or holds_real_param(rest, loop, kernel):
            return cls(leader, score, formula, S.One, S.One, None)
        starts_low = reduction.init == S.NegativeInfinity
        if constant == symbols.scale:
            unit = sympy.Max(sympy.Abs(symbols.scale), SMALLEST_UNIT)
            made = (Let("unit", Formula(unit), note="never 0: -inf * unit is -inf"), _factor(UNIT))
            sign = Scalar(str(SIGN), "sign", "sign of scale")
            held = UNIT if starts_low else S.One
            return cls(leader, score, SIGN * rest, UNIT, held, FACTOR, made, (sign,))
        if not constant.is_positive:
            constant, rest = Integer(1), formula
        held = constant if starts_low else S.One
        return cls(leader, score, rest, constant, held, FACTOR, (_factor(constant),))

    def loop(self, loop: Loop) -> Loop:
        """The loop over x in place of c x."""
        body = tuple(
            replace(let, value=Formula(self.inside)) if let.name == self.score else let
            for let in loop.body
        )
        reductions = tuple(self._reduction(reduction) for reduction in loop.reductions)
        return replace(loop, body=body, reductions=reductions)

    def _reduction(self, reduction: Reduce) -> Reduce:
        if reduction.name == self.leader:
            return replace(reduction, element=self.unit / self.held * reduction.element)
        if reduction.follows != self.leader or reduction.repair is None:
            return reduction
        return replace(
            reduction,
            element=reduction.element.replace(exp, self._exp2_of_score),
            repair=reduction.repair.replace(exp, self._exp2_of_difference),
        )

    def _exp2_of_score(self, exponent: Expr) -> Expr:
        """Multiply before subtracting: one multiply-add."""
        if self.factor is None:
            return self._exp2_of_difference(exponent)
        score, leader = tile_symbol(self.score), tile_symbol(self.leader)
        against = leader * self._held_factor
        if self.held != self.unit:  # a sink may be finite and minus the largest float32
            against = sympy.Max(against, LEAST)
        changes = {score: score * self.factor, leader: against}
        return Exp2(sympy.expand(replaced(exponent, changes)))

    def _exp2_of_difference(self, exponent: Expr) -> Expr:
        """Subtract before multiplying: an unmoved maximum must give exactly 1."""
        return Exp2(sympy.Mul(exponent, self._held_factor, evaluate=False))

    @property
    def _held_factor(self) -> Expr:
        return LOG2_E if self.factor is None or self.held != self.unit else self.factor


def _factor(unit: Expr) -> Let:
    return Let(str(FACTOR), Formula(unit * LOG2_E), note="exp(x * unit) is exp2(x * factor)")


def _where_reduced(kernel: Kernel, leader: str) -> tuple[Loop, Reduce]:
    found = (
        (stmt, reduction)
        for stmt in kernel.body
        if isinstance(stmt, Loop)
        for reduction in stmt.reductions
        if reduction.name == leader
    )
    return next(found)
