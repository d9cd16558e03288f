"""Sort a formula by what it varies along, and give the parts that vary less a name of their own.

Why: `slope(h)` is one number a head, not one exponential a score.  The graph splits the user's
formulas with this, and the passes split again what they have rewritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import sympy
from sympy import Basic, Expr
from sympy.logic.boolalg import Boolean

from attnc.symbols import FloorDiv, FloorMod, Read, names_in

Varies = Mapping[
    str, frozenset[str]
]  # symbol name -> axes it varies along; a missing name is a constant
Namer = Callable[
    [Basic, frozenset[str]], Expr
]  # gives a subformula a name; returns the symbol that stands for it


def axes_of(formula: Basic, varies: Varies) -> frozenset[str]:
    """The axes along which a formula varies."""
    return frozenset().union(*(varies.get(name, frozenset()) for name in names_in(formula)))


def split_by_axes(formula: Basic, varies: Varies, name: Namer, inside: frozenset[str]) -> Basic:
    """Name every maximal costly subformula that varies along fewer axes than `inside`.

    A subformula is costly when evaluating it anew for every element would cost more than an
    addition: a function, a power, or a product of reals.  Integer arithmetic on positions stays
    where it stands.
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
    """Sum or multiply first what varies least.

    Only one operation then remains for each wider set of axes.
    """
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
            isinstance(part, sympy.Pow | FloorDiv | FloorMod)
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


def share_repeated(formula: Basic, name: Callable[[Basic], Expr]) -> Basic:
    """Name every subexpression that a formula holds more than once, innermost first."""
    while True:
        parts = (part for part in sympy.preorder_traversal(formula) if _is_shareable(part))
        counts = Counter(parts)
        repeated = [part for part, count in counts.items() if count > 1]
        if not repeated:
            return formula
        innermost = min(repeated, key=lambda part: (part.count_ops(), str(part)))
        formula = formula.xreplace({innermost: name(innermost)})


def _is_shareable(part: Basic) -> bool:
    if not isinstance(part, Expr) or not part.args or part.is_number:
        return False
    return len(part.free_symbols) > 1 or not isinstance(part, sympy.Add | sympy.Mul)


def gather_positions(formula: Basic, name: Callable[[Basic], Expr]) -> Basic:
    """c x - c y   ->   c distance, distance = x - y, for whole x and y.

    Why: no difference of rounded positions.  They reach 2**30, where float32 counts in steps of 64,
    and sympy spreads c over the difference.
    """
    if not formula.args or isinstance(formula, Read) or formula.is_integer:
        return formula
    formula = formula.func(*(gather_positions(arg, name) for arg in formula.args))
    if not isinstance(formula, sympy.Add):
        return formula
    groups: dict[Expr, list[Expr]] = {}
    for term in formula.args:
        factor, rest = term.as_coeff_Mul()
        if rest.is_integer and rest.free_symbols:
            common = sympy.Integer(1) if factor.is_integer else abs(factor)
            groups.setdefault(common, []).append(term)
    for common, terms in groups.items():
        if len(terms) > 1:
            whole = sympy.Add(*(term / common for term in terms))
            formula = formula - sympy.Add(*terms) + common * name(whole)
    return formula
