"""Decide whether two formulas are equal: by algebra, or by numbers of 50 digits.

A difference that sympy reduces to 0 is a proof.  Where it does not, and all sample points agree to
40 digits, the answer says that numbers decided; a single point that disagrees refutes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from random import Random
from typing import Any

import mpmath
import sympy
from sympy import Basic, Expr, Symbol

from attnc.ir.functions import Anchor, Clamp, Exp2, InverseOrZero, Log2, Wide
from attnc.symbols import FloorDiv, FloorMod, Read, Where, sigmoid
from attnc.verify.obligations import Obligation

Number = Any  # mpmath's numbers

DIGITS, AGREE, POINTS = 50, 40, 32
DRAWS = 20 * POINTS  # many may lie where a formula has no value
SIMPLIFY_UP_TO = 40  # operations; sympy's simplify takes seconds on longer formulas

Point = Mapping[str, Number]


@dataclass(frozen=True)
class Sampler:
    """Draws values for the names of formulas; positions are integers in their ranges."""

    heads: int
    integers: frozenset[str]  # params that are integers
    positive: frozenset[str] = frozenset()

    def draw(self, names: set[str], random: Random) -> dict[str, Number]:
        """A random point."""
        q_len, kv_len = random.randint(1, 3000), random.randint(1, 3000)
        values = {
            "q_len": q_len,
            "kv_len": kv_len,
            "q_idx": random.randrange(q_len),
            "kv_idx": random.randrange(kv_len),
            "h": random.randrange(self.heads),
            "b": random.randrange(4),
        }
        for name in sorted(names - set(values)):
            if name in self.integers:
                values[name] = random.randint(1, 200)
            else:
                real = mpmath.mpf(random.randrange(1, 10**30)) / mpmath.mpf(10) ** 29
                sign = 1 if name in self.positive else random.choice((1, 1, 1, -1, -1, -1, 0))
                values[name] = sign * real  # 0 is where formulas like to differ
        return values


def equal(name: str, one: Expr, other: Expr, sampler: Sampler) -> Obligation:
    """Compare two formulas over real and integer names.

    Returns: proved, refuted with the point that shows it, checked numerically, or undecided where
    points at which both have a value are rare.
    """
    one, other = _without_needless(one), _without_needless(other)
    if one == other:
        return Obligation(name, "proved")
    difference = sympy.expand(one - other)
    if difference == 0:
        return Obligation(name, "proved")
    compared, apart = _disagreement(one, other, sampler)
    if apart:
        return Obligation(name, "refuted", apart)
    if compared < POINTS:
        return Obligation(name, "undecided", "too few points where both formulas have a value")
    if difference.count_ops() <= SIMPLIFY_UP_TO and sympy.simplify(difference) == 0:
        return Obligation(name, "proved")
    reason = (
        "sympy does not reduce the difference to 0; "
        f"{POINTS} or more points agree to {AGREE} digits"
    )
    return Obligation(name, "checked numerically", reason)


def _without_needless(formula: Expr) -> Any:
    return formula.replace(_is_needless, lambda part: part.args[1])


def _is_needless(part: Basic) -> bool:
    """Whether a Where tells x = 0 apart only to say what its formula gives there anyway."""
    if not isinstance(part, Where) or not isinstance(part.args[0], sympy.Ne):
        return False
    condition, formula, at_zero = part.args
    x, zero = condition.args
    return zero == 0 and formula.xreplace({x: sympy.S.Zero}) == at_zero


def _disagreement(one: Basic, other: Basic, sampler: Sampler) -> tuple[int, str]:
    """How many points were compared, and the first at which the formulas differ, if any."""
    random = Random(2026)
    names = {str(symbol) for symbol in one.free_symbols | other.free_symbols}
    with mpmath.workdps(DIGITS):
        compared = 0
        for _ in range(DRAWS):
            if compared == 2 * POINTS:
                break
            point = sampler.draw(names, random)
            try:
                a, b = evaluate_exactly(one, point), evaluate_exactly(other, point)
            except (ZeroDivisionError, ValueError):  # a pole of either side, or no real number
                continue
            if not (mpmath.isfinite(a) and mpmath.isfinite(b)):
                continue
            compared += 1
            if not abs(a - b) <= mpmath.mpf(10) ** -AGREE * (1 + abs(a)):
                at = ", ".join(f"{n} = {mpmath.nstr(v, 6)}" for n, v in point.items() if n in names)
                return compared, f"{mpmath.nstr(a, 8)} is not {mpmath.nstr(b, 8)} at {at}"
    return compared, ""


def evaluate_exactly(formula: Basic, point: Point) -> Number:
    """Evaluate a formula at mpmath's working precision; tensors hold arbitrary fixed numbers.

    Raises: ZeroDivisionError, ValueError where it, or a part of it, has no real value.
    """
    if isinstance(formula, Symbol):
        return point[formula.name]
    if formula in (sympy.true, sympy.false):
        return formula is sympy.true
    if isinstance(formula, sympy.Integer):
        return int(formula)
    if formula.is_number and isinstance(formula, Expr) and not formula.args:
        return mpmath.mpf(sympy.Float(formula, DIGITS + 5)._mpf_)
    arguments = [
        evaluate_exactly(arg, point) for arg in formula.args if not _is_tensor(arg, formula)
    ]
    if isinstance(formula, Read):
        return _arbitrary(formula, arguments)
    rule = _RULES.get(formula.func)
    if rule is None:
        raise NotImplementedError(f"no exact meaning for {formula.func.__name__}")
    value = rule(*arguments)
    if isinstance(value, mpmath.mpc):
        raise ValueError(f"{formula} is no real number")
    return value


def _is_tensor(arg: Basic, formula: Basic) -> bool:
    return isinstance(formula, Read) and arg == formula.args[0]


def _arbitrary(read: Read, indices: list[Number]) -> Number:
    key = f"{read.tensor} {[int(index) for index in indices]}".encode()
    drawn = int.from_bytes(hashlib.sha256(key).digest()[:12])
    if read.args[0].is_integer:
        return drawn % 64
    return 0 if drawn % 8 == 0 else mpmath.mpf(drawn) / mpmath.mpf(2) ** 95 - 1


def _floor(a: Number, b: Number) -> int:
    return (
        a // b
        if isinstance(a, int) and isinstance(b, int)
        else int(mpmath.floor(a / mpmath.mpf(b)))
    )


def _power(base: Number, exponent: Number) -> Number:
    return mpmath.power(mpmath.mpf(base), exponent)


_RULES: dict[Any, Callable[..., Number]] = {
    sympy.Add: lambda *args: reduce(lambda a, b: a + b, args),
    sympy.Mul: lambda *args: reduce(lambda a, b: a * b, args),
    sympy.Pow: _power,
    sympy.exp: mpmath.exp,
    sympy.log: mpmath.log,
    sympy.tanh: mpmath.tanh,
    sympy.Abs: abs,
    sympy.sign: mpmath.sign,
    sympy.Min: min,
    sympy.Max: max,
    sympy.floor: lambda x: _floor(x, 1),
    FloorDiv: _floor,
    FloorMod: lambda a, b: a - b * _floor(a, b),
    Where: lambda condition, a, b: a if condition else b,
    sigmoid: lambda x: 1 / (1 + mpmath.exp(-x)),
    Exp2: lambda x: mpmath.power(2, x),
    Log2: lambda x: mpmath.log(x, 2),
    Anchor: lambda x: x,
    InverseOrZero: lambda x: 1 / mpmath.mpf(x) if x else 0,
    Wide: lambda x: x,
    Clamp: lambda x, low, high: min(max(x, low), high),
    sympy.Eq: lambda a, b: a == b,
    sympy.Ne: lambda a, b: a != b,
    sympy.Lt: lambda a, b: a < b,
    sympy.Le: lambda a, b: a <= b,
    sympy.Gt: lambda a, b: a > b,
    sympy.Ge: lambda a, b: a >= b,
    sympy.And: lambda *args: all(args),
    sympy.Or: lambda *args: any(args),
    sympy.Xor: lambda *args: sum(map(bool, args)) % 2 == 1,
    sympy.Not: lambda a: not a,
}


def worst(name: str, outcomes: list[Obligation]) -> Obligation:
    """The least certain of several outcomes."""
    if not outcomes:
        return Obligation(name, "refuted", "there is nothing to compare")
    order = ("refuted", "undecided", "checked numerically", "proved")
    return replace(min(outcomes, key=lambda outcome: order.index(outcome.status)), name=name)
