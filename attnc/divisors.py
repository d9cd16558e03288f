"""What formulas divide by and params alone decide.

Why: a formula has no value where it divides by 0.  A spec may not suggest such params, the launcher
refuses them, verify tries none and proves nothing about them: all by this one list.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping

from sympy import Basic, Expr, Float, Integer, Mul, Pow, Symbol

from attnc import symbols
from attnc.symbols import FloorDiv, FloorMod, arguments, names_in, replaced, symbols_in


def divisors_of(formulas: Iterable[Basic], params: Collection[str], head_dim: int) -> list[Expr]:
    """Each factor that formulas divide by and that speaks of params alone, `d` being known."""
    size = {symbols.d: Integer(head_dim)}
    known = [replaced(formula, size) for formula in formulas]
    parts = {part for formula in known for part in formula.atoms(FloorDiv, FloorMod, Pow)}
    divisors = [
        arguments(part)[0] if isinstance(part, Pow) else arguments(part)[1]
        for part in parts
        if not isinstance(part, Pow) or part.exp.is_negative
    ]
    factors = {factor for divisor in divisors for factor in Mul.make_args(divisor)}
    return sorted((f for f in factors if f.free_symbols and names_in(f) <= set(params)), key=str)


def is_zero_at(divisor: Expr, values: Mapping[str, float]) -> bool:
    """Whether a divisor is 0 in float32, as the launcher computes it, whatever has no value yet."""
    try:
        known = {s: _in_float32(s, values[s.name]) for s in symbols_in(divisor) if s.name in values}
        return bool(replaced(divisor, known).is_zero)
    except (ArithmeticError, TypeError, ValueError):
        return False  # no real number at all


def _in_float32(param: Symbol, value: float) -> Expr:
    if param.is_integer:
        return Integer(value)
    return Float(*struct.unpack("f", struct.pack("f", value)), precision=24)
