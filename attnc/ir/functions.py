"""Functions that only a lowered program speaks of."""

from __future__ import annotations

from typing import Any

from sympy import Basic, Max, Min, Symbol
from sympy.core.relational import Relational

from attnc.symbols import Anchor, OwnFunction
from attnc.symbols import value_symbol as tile_symbol

__all__ = ["Anchor", "Clamp", "Exp2", "InverseOrZero", "Log2", "Wide", "new", "old", "tile_symbol"]


class Exp2(OwnFunction):
    """2 to the x; sympy's Pow would merge 2**a * 2**b."""

    nargs = 1
    is_real = True
    is_positive = True


class Log2(OwnFunction):
    """log2(x), as the hardware has it; log2(0) = -inf."""

    nargs = 1
    is_real = True


class InverseOrZero(OwnFunction):
    """1 / x, but 0 where x is 0: a row without visible keys divides by nothing."""

    nargs = 1
    is_real = True


class Wide(OwnFunction):
    """Wide(x) = x, computed in 64 bits: 32 would not hold it, or something on the way to it."""

    nargs = 1
    is_real = True
    is_integer = True


class Clamp(OwnFunction):
    """Clamp(x, lo, hi) = min(max(x, lo), hi)."""

    nargs = 3
    is_real = True
    is_integer = True


def without_wide(formula: Basic) -> Any:
    """The formula less the marks that say where it is computed in 64 bits."""
    if isinstance(formula, Wide):
        return without_wide(formula.args[0])
    if not formula.has(Wide):
        return formula
    return rebuilt(formula, [without_wide(arg) for arg in formula.args])


def rebuilt(formula: Basic, args: list[Basic]) -> Any:
    """The formula over other arguments; bounds stay as they are written."""
    if isinstance(formula, Max | Min | Relational):
        return formula.func(*args, evaluate=False)
    return formula.func(*args)


def old(name: str) -> Symbol:
    """The statistic `name` before this tile joined it (in a Reduce's repair)."""
    return Symbol(f"{name}_old", real=True)


def new(name: str) -> Symbol:
    """The statistic `name` after this tile joined it (in a Reduce's repair)."""
    return Symbol(f"{name}_new", real=True)
