"""Functions that only a lowered program speaks of."""

from __future__ import annotations

from sympy import Symbol

from attnc.symbols import OwnFunction
from attnc.symbols import value_symbol as tile_symbol

__all__ = ["Anchor", "Clamp", "Exp2", "InverseOrZero", "Log2", "new", "old", "tile_symbol"]


class Exp2(OwnFunction):
    """2 to the x; sympy's Pow would merge 2**a * 2**b."""

    nargs = 1
    is_real = True
    is_positive = True


class Log2(OwnFunction):
    """log2(x), as the hardware has it; log2(0) = -inf."""

    nargs = 1
    is_real = True


class Anchor(OwnFunction):
    """x, but 0 where x is -inf: what exponents of an empty row are taken against."""

    nargs = 1
    is_real = True


class InverseOrZero(OwnFunction):
    """1 / x, but 0 where x is 0: a row without visible keys divides by nothing."""

    nargs = 1
    is_real = True


class Clamp(OwnFunction):
    """Clamp(x, lo, hi) = min(max(x, lo), hi)."""

    nargs = 3
    is_real = True
    is_integer = True


def old(name: str) -> Symbol:
    """The statistic `name` before this tile joined it (in a Reduce's repair)."""
    return Symbol(f"{name}_old", real=True)


def new(name: str) -> Symbol:
    """The statistic `name` after this tile joined it (in a Reduce's repair)."""
    return Symbol(f"{name}_new", real=True)
