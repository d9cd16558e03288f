"""The state that a READY kernel carries along its keys: a maximum, and sums that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy
from sympy import Basic, Expr, S, Symbol

from attnc.ir.functions import Anchor, Exp2
from attnc.ir.nodes import Fill, Kernel, Let, Load, Loop, Start
from attnc.symbols import Where
from attnc.verify.chains import (
    RAISED,
    Chain,
    KeySum,
    key_loops,
    leader_of,
    maxima_of,
    selects,
    sinks_of,
    sort_of,
)

LN2 = sympy.log(2)
FLOOR = -1e38  # a maximum that starts from a sink may be limited to more than this


class Unreadable(ValueError):
    """A loop is not built as a maximum and sums that follow it."""


@dataclass(frozen=True)
class Step:
    """One carried sum in one loop: sum <- sum * rescale + KeySum(weight * share * values)."""

    name: str
    rescale: Expr
    weight: Expr  # a product of powers, over the anchor's own symbol
    share: Expr
    values: str | None


@dataclass(frozen=True)
class States:
    """Reads the loops of a kernel."""

    kernel: Kernel

    @cached_property
    def maximum(self) -> str:
        """The carried running maximum."""
        leader = leader_of(self.kernel)
        if leader is None:
            count = len(maxima_of(self.kernel))
            raise Unreadable(f"{count} running maxima start at -oo, and exponents follow no one")
        return leader

    def steps(self, loop: Loop) -> dict[str, Any]:
        """What one visit makes of each carried value; all of them must be updated."""
        steps = Chain(self.kernel, loop, keeps_conditions=False).steps()
        carried = {s.name for s in self.kernel.body if isinstance(s, Start)}
        if set(steps) != carried:
            raise Unreadable(f"the loop does not update {', '.join(carried - set(steps))}")
        return steps

    def visible(self, loop: Loop) -> dict[str, Any]:
        """The steps where every key of the tile counts."""
        steps = self.steps(loop)
        conditions = selects(steps.values())

        def counted(part: Basic) -> bool:
            absent = isinstance(part, Where) and part.args[2] in (S.NegativeInfinity, S.Zero)
            return absent and part.args[0] in conditions

        return {
            name: without_floor(step.replace(counted, lambda part: part.args[1]))
            for name, step in steps.items()
        }

    def sums(self, loop: Loop) -> list[Step]:
        """The carried sums of a loop, read apart."""
        if id(loop) not in self._sums:
            steps = self.visible(loop)
            maxima = maxima_of(self.kernel)
            rest = {name: step for name, step in steps.items() if name not in maxima}
            self._sums[id(loop)] = [
                self._read_sum(name, step)
                for name, step in rest.items()
                if logarithm_of(step) is None
            ]
        return self._sums[id(loop)]

    def moments(self, loop: Loop) -> dict[str, Any]:
        """The steps of sums of weights, each times its logarithm."""
        steps = self.visible(loop)
        return {name: step for name, step in steps.items() if logarithm_of(step) is not None}

    @cached_property
    def starts(self) -> dict[str, Any]:
        """What each carried value is at first: a number, or the name of a value."""
        found = (stmt for stmt in self.kernel.body if isinstance(stmt, Start))
        filled = {s.name: s.value.value if isinstance(s.value, Fill) else S.NaN for s in found}
        return {n: sympy.Integer(x) if x in (0.0, 1.0) else x for n, x in filled.items()}

    @cached_property
    def _sums(self) -> dict[int, list[Step]]:
        return {}

    def _read_sum(self, name: str, step: Any) -> Step:
        carried = Symbol(name, real=True)
        parts = list(step.atoms(KeySum))
        if len(parts) != 1:
            raise Unreadable(f"{name} joins {len(parts)} sums over the keys, not 1")
        rest = sympy.expand(step - parts[0])
        rescale = rest.xreplace({carried: S.One})
        if rest.has(KeySum) or rescale.has(carried) or sympy.expand(rest - rescale * carried) != 0:
            raise Unreadable(f"{name} is not a rescaled old sum and a new one")
        factors = sympy.Mul.make_args(parts[0].args[0])
        values = [f.name for f in factors if isinstance(f, Symbol) and f.name in self.loads("v")]
        powers = [f for f in factors if isinstance(f, Exp2 | sympy.exp)]
        share = sympy.Mul(*(f for f in factors if f not in powers and str(f) not in values))
        if len(values) > 1:
            raise Unreadable(f"{name} sums a product of {', '.join(values)}")
        return Step(name, rescale, sympy.Mul(*powers), share, values[0] if values else None)

    @cached_property
    def plain(self) -> frozenset[str]:
        """The carried sums of the weights themselves, in every loop."""
        loops = key_loops(self.kernel)
        plain = [
            {s.name for s in self.sums(loop) if s.values is None and s.share == 1} for loop in loops
        ]
        return frozenset(set.intersection(*plain)) if loops else frozenset()

    @cached_property
    def denominator(self) -> str:
        """The sum of all weights, the sink's among them: with a sink it starts from 1.

        Plain sums that start alike are alike.
        """
        wanted = 1 if sinks_of(self.kernel) else 0
        found = [name for name in self.starts if name in self.plain and self.starts[name] == wanted]
        if not found:
            raise Unreadable("nothing carries the sum of all weights")
        return found[0]

    def loads(self, buffer: str) -> dict[str, Let]:
        """Lets that load a buffer, in and outside of loops."""
        found: dict[str, Let] = {}
        for stmt in self.kernel.body:
            lets = stmt.body if isinstance(stmt, Loop) else [stmt] if isinstance(stmt, Let) else []
            found |= {
                let.name: let
                for let in lets
                if isinstance(let.value, Load) and let.value.buffer == buffer
            }
        return found

    def exponent(self, step: Step) -> tuple[Expr, Expr]:
        """Split a weight's exponent to base 2: (score, unit of the maximum)."""
        raised = Anchor(RAISED)
        power = log2_of(step.weight)
        unit = -sympy.expand(power).coeff(raised)
        score = sympy.expand(power + unit * raised)
        fixed = {scalar.name for scalar in self.kernel.scalars}
        varies = {str(symbol) for symbol in unit.free_symbols} - fixed
        if score.has(Anchor) or varies or sort_of(unit, ()) != "positive":
            raise Unreadable(
                f"the exponent of {step.name} is not a score less the maximum: {power}"
            )
        return score, unit


def logarithm_of(step: Any) -> Any:
    """The logarithm by which a step multiplies what it sums, or None."""
    factors = (f for part in step.atoms(KeySum) for f in sympy.Mul.make_args(part.args[0]))
    return next((factor.args[0] for factor in factors if isinstance(factor, Anchor)), None)


def _is_floor(part: Basic) -> bool:
    return isinstance(part, sympy.Float) and float(part) < FLOOR


def without_floor(formula: Any) -> Any:
    """Drop the limit that keeps a maximum which starts from a sink from overflowing."""

    def floored(part: Basic) -> bool:
        return isinstance(part, sympy.Max) and any(map(_is_floor, part.args))

    def bare(part: Basic) -> Basic:
        return sympy.Max(*(x for x in part.args if not _is_floor(x)))

    return formula.replace(floored, bare)


def log2_of(power: Any) -> Any:
    """The exponent to base 2 of a product of powers."""
    total: Any = S.Zero
    for factor in sympy.Mul.make_args(power):
        if isinstance(factor, Exp2):
            total += factor.args[0]
        elif isinstance(factor, sympy.exp):
            total += factor.args[0] / LN2
        else:
            raise Unreadable(f"{factor} is no power")
    return total
