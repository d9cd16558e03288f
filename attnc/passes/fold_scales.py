"""Measure running maxima in units of log 2, with constant factors folded into the exponent.

Why: the hardware has exp2, and exp2(x * factor - m) is one multiply-add and one exp2 a score.  The maximum is
taken before the factor, which is positive: it then costs one product a row.
A score that adds an unbounded user tensor keeps natural units: a bias of -3.4e38 is finite, but times log2 e it is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import sympy
from sympy import Expr, Float, S, Symbol, exp, log

from attnc import symbols
from attnc.algebra import factors_along
from attnc.ir.functions import Exp2, tile_symbol
from attnc.ir.nodes import Formula, Kernel, Let, Level, Load, Loop, Reduce, Scalar, Stmt
from attnc.ir.rebuild import axes_by_name, map_stmt, prune, substitution

LOG2_E = 1 / log(2)
SMALLEST_FACTOR = Float(
    "2e-38"
)  # above the smallest normal float32: keeps -inf * factor = -inf where scale is 0
SIGN = Symbol("scale_sign", real=True)
FACTOR = "factor"
LARGE = 2**100


@dataclass(frozen=True, slots=True)
class FoldScales:
    """m = max(c x);  sum exp(c x - m)   ->   factor = c log2 e;  m = max(x factor);  sum exp2(x factor - m)"""

    name: ClassVar[str] = "fold-scales"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.STREAMED

    def run(self, kernel: Kernel) -> Kernel:
        """Rewrite each running maximum, its followers, and what reads it after the loop."""
        leaders = [
            r
            for stmt in kernel.body
            if isinstance(stmt, Loop)
            for r in stmt.reductions
            if r.kind == "max"
        ]
        for name in dict.fromkeys(leader.name for leader in leaders):
            kernel = _fold(kernel, name)
        return prune(kernel)


def _fold(kernel: Kernel, leader: str) -> Kernel:
    plan = _Fold.of(kernel, leader)
    body: list[Stmt] = []
    for stmt in kernel.body:
        if isinstance(stmt, Loop) and any(
            reduction.name == leader for reduction in stmt.reductions
        ):
            body += [*(let for let in plan.before if let not in body), plan.loop(stmt)]
        else:
            natural = substitution({leader: plan.natural})
            body.append(map_stmt(stmt, lambda formula: _together(natural(formula))))
    scalars = (*kernel.scalars, *plan.scalars)
    return replace(kernel, body=tuple(body), scalars=scalars)


@dataclass(frozen=True, slots=True)
class _Fold:
    leader: str
    score: str  # the value whose maximum is taken
    inside: Expr  # what the loop computes in place of the score's formula
    folded: Expr  # the score in the new units, over `score`
    natural: Expr  # the leader in natural units
    before: tuple[Let, ...]
    scalars: tuple[Scalar, ...]

    @classmethod
    def of(cls, kernel: Kernel, leader: str) -> _Fold:
        """Decide how the score that the leader maximises is written in units of log 2."""
        loop, reduction = _where_reduced(kernel, leader)
        score = str(reduction.element)
        formula = next(
            let.value.expr
            for let in loop.body
            if let.name == score and isinstance(let.value, Formula)
        )
        m, x = tile_symbol(leader), tile_symbol(score)
        if _is_unbounded(formula, loop, kernel):
            return cls(leader, score, formula, x, m, (), ())
        varies = {name: frozenset(axes) for name, axes in axes_by_name(kernel.body).items()}
        varies |= {"q_idx": frozenset("q"), "q_pos": frozenset("q"), "kv_idx": frozenset("k")}
        constant, rest = _constant_factor(formula, varies)
        if constant == symbols.scale:
            factor = sympy.Max(sympy.Abs(symbols.scale) * LOG2_E, SMALLEST_FACTOR)
            sign = Scalar(str(SIGN), "sign", "sign of scale")
            return cls._factored(leader, score, SIGN * rest, factor, (sign,))
        if constant.is_positive:
            return cls._factored(leader, score, rest, constant * LOG2_E, ())
        return cls._factored(leader, score, formula, LOG2_E, ())

    @classmethod
    def _factored(
        cls, leader: str, score: str, inside: Expr, factor: Expr, scalars: tuple[Scalar, ...]
    ) -> _Fold:
        name = Symbol(FACTOR, positive=True)
        let = Let(FACTOR, Formula(factor), note="scores are kept in units of log 2")
        return cls(
            leader,
            score,
            inside,
            tile_symbol(score) * name,
            tile_symbol(leader) * log(2),
            (let,),
            scalars,
        )

    def loop(self, loop: Loop) -> Loop:
        """The loop in the new units."""
        body = tuple(
            replace(let, value=replace(let.value, expr=self.inside))
            if let.name == self.score and isinstance(let.value, Formula)
            else let
            for let in loop.body
        )
        return replace(
            loop, body=body, reductions=tuple(self._reduction(r) for r in loop.reductions)
        )

    def _reduction(self, reduction: Reduce) -> Reduce:
        if reduction.name == self.leader:
            return replace(reduction, element=self.folded)
        if reduction.follows != self.leader or reduction.repair is None:
            return reduction
        unit = S.One if self.natural != tile_symbol(self.leader) else LOG2_E
        element = reduction.element.xreplace({tile_symbol(self.score): self.folded})
        return replace(
            reduction, element=_exp2(element, unit), repair=_exp2(reduction.repair, unit)
        )


def _together(formula: Expr) -> Expr:
    """A log 2 + b log 2   ->   (a + b) log 2"""
    return sympy.collect(formula, log(2)) if isinstance(formula, sympy.Add) else formula


def _exp2(formula: Expr, unit: Expr) -> Expr:
    return formula.replace(exp, lambda x: Exp2(x if unit == 1 else unit * x))


def _where_reduced(kernel: Kernel, leader: str) -> tuple[Loop, Reduce]:
    found = (
        (stmt, reduction)
        for stmt in kernel.body
        if isinstance(stmt, Loop)
        for reduction in stmt.reductions
        if reduction.name == leader
    )
    return next(found)


def _is_unbounded(formula: Expr, loop: Loop, kernel: Kernel) -> bool:
    """Whether a score may come near the largest float32: it holds a value from memory other than q . k, or a huge number."""
    if any(abs(number) > LARGE for number in formula.atoms(sympy.Number)):
        return True
    loaded = {
        let.name
        for let in (*loop.body, *kernel.body)
        if isinstance(let, Let) and isinstance(let.value, Load)
    }
    by_name = {let.name: let for let in (*loop.body, *kernel.body) if isinstance(let, Let)}
    todo, seen = [s.name for s in formula.free_symbols], set()
    while todo:
        name = todo.pop()
        if name in loaded:
            return True
        let = by_name.get(name)
        if let is not None and isinstance(let.value, Formula) and name not in seen:
            seen.add(name)
            todo += [s.name for s in let.value.expr.free_symbols]
    return False


def _constant_factor(formula: Expr, varies: dict[str, frozenset[str]]) -> tuple[Expr, Expr]:
    """Split c * x into (c, x), c free of the tile's axes."""
    constant, rest = formula, S.One
    for axis in ("q", "k"):
        constant, moving = factors_along(constant, axis, varies)
        rest *= moving
    return constant, rest
