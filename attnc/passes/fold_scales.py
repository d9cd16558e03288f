"""Fold constant factors of the score and log2 e into the exponent of exp2.

Why: the hardware has exp2, and exp2(x * factor - m * factor) is one multiply-add and one exp2 a
score.  The running maximum is that of x, in x's own units: lse then suffers no change of units and
back.  A maximum that starts from a sink is in the sink's units: the factor joins it row by row.

A score that may come near the largest float32 (a user's bias or param of -3.4e38 is finite) is not
multiplied before the maximum is subtracted: times log2 e it would become -inf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import sympy
from sympy import Basic, Dummy, Expr, Float, Integer, S, Symbol, exp, log

from attnc import symbols
from attnc.ir.functions import Anchor, Exp2, new, old, tile_symbol
from attnc.ir.nodes import Formula, Kernel, Let, Level, Loop, Reduce, Scalar, Stmt
from attnc.ir.rebuild import map_stmt, prune, substitution
from attnc.passes.exponents import LOG2_E, constant_factor, holds_real_param, may_be_huge
from attnc.symbols import arguments, replaced

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
        """Rewrite each score's running maxima, their followers, and what reads them after."""
        loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
        scores = [r.element for loop in loops for r in loop.reductions if r.kind == "max"]
        for score in dict.fromkeys(scores):
            kernel = _fold(kernel, str(score))
        return prune(kernel)


def _fold(kernel: Kernel, score: str) -> Kernel:
    fold = _Fold.of(kernel, score)
    body: list[Stmt] = []
    in_score_units: dict[str, Basic] = {}
    for stmt in kernel.body:
        if isinstance(stmt, Loop) and any(str(r.element) == score for r in stmt.reductions):
            in_score_units |= {
                r.name: tile_symbol(r.name) * fold.unit_of(r) for r in stmt.reductions
            }
            body += [*fold.before, fold.loop(stmt)]
        else:
            body.append(map_stmt(stmt, substitution(in_score_units)))
    return replace(kernel, body=tuple(body), scalars=(*kernel.scalars, *fold.scalars))


@dataclass(frozen=True, slots=True)
class _Fold:
    """What leaves a score: it is unit * what the loop computes in its place."""

    score: str  # the value whose maximum is taken
    inside: Expr  # its formula in the loop
    unit: Expr
    factor: Expr | None  # unit * log2 e, or None where the score must not be multiplied
    from_sinks: frozenset[str]  # maxima that start from a sink: in the sink's units
    before: tuple[Let, ...] = ()
    scalars: tuple[Scalar, ...] = ()

    @classmethod
    def of(cls, kernel: Kernel, score: str) -> _Fold:
        """Decide which factor leaves a score."""
        loop = _where_reduced(kernel, score)
        value = next(let.value for let in loop.body if let.name == score)
        assert isinstance(value, Formula)
        formula = cast(Expr, value.expr)
        constant, rest = constant_factor(formula, kernel)
        if may_be_huge(formula, loop, kernel) or holds_real_param(rest, loop, kernel):
            return cls(score, formula, S.One, None, frozenset())
        maxima = [one for one in loop.reductions if one.kind == "max"]
        high = frozenset(one.name for one in maxima if one.init != S.NegativeInfinity)
        if constant == symbols.scale:
            unit = sympy.Max(sympy.Abs(symbols.scale), SMALLEST_UNIT)
            made = (Let("unit", Formula(unit), note="never 0: -inf * unit is -inf"), _factor(UNIT))
            sign = Scalar(str(SIGN), "sign", "sign of scale")
            return cls(score, SIGN * rest, UNIT, FACTOR, high, made, (sign,))
        if not constant.is_positive:
            constant, rest = Integer(1), formula
        return cls(score, rest, constant, FACTOR, high, (_factor(constant),))

    def held(self, leader: str) -> Expr:
        """A maximum is held * what the loop carries."""
        return S.One if leader in self.from_sinks else self.unit

    def unit_of(self, reduction: Reduce) -> Expr:
        """A statistic is this times what the loop carries."""
        if reduction.kind == "max":
            return self.held(reduction.name)
        return log(2) if self.factor is not None and reduction.element.has(Anchor) else S.One

    def units(self, loop: Loop) -> dict[str, Basic]:
        """Each statistic of a loop in the score's units."""
        return {one.name: tile_symbol(one.name) * self.unit_of(one) for one in loop.reductions}

    def loop(self, loop: Loop) -> Loop:
        """The loop over x in place of c x."""
        body = tuple(
            replace(let, value=Formula(self.inside)) if let.name == self.score else let
            for let in loop.body
        )
        units = self.units(loop)
        reductions = tuple(self._reduction(reduction, units) for reduction in loop.reductions)
        return replace(loop, body=body, reductions=reductions)

    def _reduction(self, reduction: Reduce, units: Mapping[str, Basic]) -> Reduce:
        if str(reduction.element) == self.score and reduction.kind == "max":
            return replace(
                reduction, element=self.unit / self.held(reduction.name) * reduction.element
            )
        if reduction.follows is None or reduction.repair is None:
            return reduction
        leader = reduction.follows
        powers = {power: Dummy(positive=True) for power in reduction.repair.atoms(exp)}
        written = {
            stand_in: self._exp2_of_difference(arguments(power)[0], leader)
            for power, stand_in in powers.items()
        }
        own = {str(at(leader)): at(leader) * self.held(leader) for at in (old, new)}
        power = sympy.Mul(*written)
        rest = substitution({**units, **own})(replaced(reduction.repair, powers)) / power
        unit = self.unit_of(reduction)  # differences of maxima stay differences
        terms = (sympy.factor_terms(term / unit) for term in sympy.Add.make_args(rest))
        return replace(
            reduction,
            element=self._element(reduction.element, leader),
            repair=replaced(power * sympy.Add(*terms), written),
        )

    def _element(self, element: Expr, leader: str) -> Expr:
        """exp(t - m) Anchor(t - m), the latter a logarithm to base 2."""
        if self.factor is None:
            return cast(Expr, element.replace(exp, lambda x: self._exp2_of_difference(x, leader)))
        changed = element.replace(exp, lambda x: Exp2(self._exponent(x, leader)))
        return cast(Expr, changed.replace(Anchor, lambda x: Anchor(self._exponent(x, leader))))

    def _exponent(self, difference: Expr, leader: str) -> Expr:
        """A difference of score and maximum to base 2: multiplied first, one multiply-add."""
        m = tile_symbol(leader)
        against = m * self._held_factor(leader)
        if leader in self.from_sinks:  # a sink may be finite and minus the largest float32
            against = sympy.Max(against, LEAST)
        score = tile_symbol(self.score)
        changes = {score: score * cast(Expr, self.factor), m: against}
        return sympy.expand(replaced(difference, changes))

    def _exp2_of_difference(self, exponent: Expr, leader: str) -> Expr:
        """Subtract before multiplying: an unmoved maximum must give exactly 1."""
        return Exp2(sympy.Mul(exponent, self._held_factor(leader), evaluate=False))

    def _held_factor(self, leader: str) -> Expr:
        return LOG2_E if self.factor is None or leader in self.from_sinks else self.factor


def _factor(unit: Expr) -> Let:
    return Let(str(FACTOR), Formula(unit * LOG2_E), note="exp(x * unit) is exp2(x * factor)")


def _where_reduced(kernel: Kernel, score: str) -> Loop:
    loops = (stmt for stmt in kernel.body if isinstance(stmt, Loop))
    return next(loop for loop in loops if any(str(r.element) == score for r in loop.reductions))
