"""Sort a formula by what it varies along, and give the parts that vary less a name of their own.

Why: `slope(h)` is one number a head, not one exponential a score.  The graph splits the user's formulas with
this, and the passes split again what they have rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy
from sympy import Basic, Expr
from sympy.logic.boolalg import Boolean

from attnc.symbols import FloorDiv, Read

Varies = Mapping[
    str, frozenset[str]
]  # symbol name -> axes it varies along; a missing name is a constant
Namer = Callable[
    [Basic, frozenset[str]], Expr
]  # gives a subformula a name; returns the symbol that stands for it


def axes_of(formula: Basic, varies: Varies) -> frozenset[str]:
    """The axes along which a formula varies."""
    return frozenset().union(*(varies.get(s.name, frozenset()) for s in formula.free_symbols))


def split_by_axes(formula: Basic, varies: Varies, name: Namer, inside: frozenset[str]) -> Basic:
    """Name every maximal costly subformula that varies along fewer axes than `inside`.

    A subformula is costly when evaluating it anew for every element would cost more than an addition: a function,
    a power, or a product of reals.  Integer arithmetic on positions stays where it stands.
    """
    if not formula.args or isinstance(formula, Read):
        return formula
    axes = axes_of(formula, varies)
    if axes < inside and _is_costly(formula):
        return name(formula, axes)
    if isinstance(formula, sympy.Add | sympy.Mul):
        return _split_terms(formula, varies, name, inside)
    return formula.func(*(split_by_axes(arg, varies, name, inside) for arg in formula.args))


def _split_terms(formula: Expr, varies: Varies, name: Namer, inside: frozenset[str]) -> Expr:
    """Sum or multiply first what varies least, so that only one operation remains for each wider set of axes."""
    narrow = [arg for arg in formula.args if axes_of(arg, varies) < inside]
    wide = [arg for arg in formula.args if arg not in narrow]
    parts = [split_by_axes(arg, varies, name, inside) for arg in wide]
    by_axes: dict[frozenset[str], list[Basic]] = {}
    for arg in narrow:
        by_axes.setdefault(axes_of(arg, varies), []).append(arg)
    for axes, args in sorted(by_axes.items(), key=lambda item: (len(item[0]), sorted(item[0]))):
        together = formula.func(*args)
        parts.append(name(together, axes) if _is_costly(together) else together)
    return formula.func(*parts)


def _is_costly(formula: Basic) -> bool:
    if isinstance(formula, Boolean) or not formula.args or formula.is_number:
        return False
    if formula.is_integer:
        return any(
            isinstance(part, sympy.Pow | FloorDiv)
            for part in sympy.preorder_traversal(formula)
            if part.args
        )
    if isinstance(formula, sympy.Mul) and len(formula.args) == 2 and formula.args[0] == -1:
        return _is_costly(formula.args[1])
    return True


def factors_along(product: Expr, axis: str, varies: Varies) -> tuple[Expr, Expr]:
    """Split a product into (what does not vary along the axis, what does)."""
    fixed, moving = [], []
    for factor in sympy.Mul.make_args(product):
        (moving if axis in axes_of(factor, varies) else fixed).append(factor)
    return sympy.Mul(*fixed), sympy.Mul(*moving)
