"""Pieces of printed Triton: their text, how tightly it binds, and the axes it varies along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy
from sympy import Expr

SMALLEST_NORMAL, LARGEST = 1.1754943508222875e-38, 3.4028234663852886e38  # float32
COMPARISON, SUM, PRODUCT, UNARY, ATOM = 0, 1, 2, 3, 4  # how tightly a text binds


@dataclass(frozen=True, slots=True)
class Name:
    """What the printer knows of a name: its text, its axes, whether it holds (long) integers."""

    text: str
    axes: tuple[str, ...] = ()
    integer: bool = False
    long: bool = False
    switch: bool = False  # known when the kernel is compiled


@dataclass(frozen=True, slots=True)
class Text:
    """A printed part: its text, how tightly it binds, its axes."""

    text: str
    binds: int
    axes: tuple[str, ...]

    def within(self, binds: int) -> str:
        """The text, in parentheses unless it binds at least so tightly."""
        return self.text if self.binds >= binds else f"({self.text})"

    def widened(self, axes: tuple[str, ...], binds: int) -> Text:
        """The text indexed so that it broadcasts against `axes`, binding at least so tightly."""
        if not self.axes or self.axes == axes or len(axes) == 1:
            return Text(self.within(binds), max(self.binds, binds), axes)
        index = ", ".join(":" if axis in self.axes else "None" for axis in axes)
        return Text(f"{self.within(ATOM)}[{index}]", ATOM, axes)


def widen(part: Text, axes: tuple[str, ...]) -> str:
    """The text, indexed so that it broadcasts against `axes`."""
    return part.widened(axes, COMPARISON).text


def union(parts: Sequence[Text], order: tuple[str, ...]) -> tuple[str, ...]:
    """Every axis of the parts, in order."""
    found = {axis for part in parts for axis in part.axes}
    return tuple(axis for axis in order if axis in found)


def by_axes(parts: Sequence[Text]) -> dict[tuple[str, ...], list[Text]]:
    """Parts grouped by their axes, in order of first appearance."""
    groups: dict[tuple[str, ...], list[Text]] = {}
    for part in parts:
        groups.setdefault(part.axes, []).append(part)
    return groups


def rank(text: Text) -> tuple[bool, bool, str]:
    """Order of terms and factors: values, then constants of the kernel, then numbers."""
    return text.text[0] in "-0123456789", text.text.isupper(), text.text.lstrip("(")


def number(value: Expr) -> str:
    """A number as Triton may read it.

    A float below the normal range would turn its expression into float64.
    """
    if value.is_Integer and abs(int(value)) < 2**63:
        return str(int(value))
    if value in (sympy.oo, -sympy.oo):
        return 'float("inf")' if value == sympy.oo else 'float("-inf")'
    real = float(value)
    if abs(real) > LARGEST:
        return 'float("inf")' if real > 0 else 'float("-inf")'
    return repr(real) if abs(real) >= SMALLEST_NORMAL else "0.0"
