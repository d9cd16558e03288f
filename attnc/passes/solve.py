"""Solve one inequality for the column, or for the row."""

from __future__ import annotations

from sympy import Expr, Le, Mul, Symbol

from attnc.passes.affine import Affine, affine, constant, direction, floor_divide, mentions
from attnc.passes.affine import product as multiply
from attnc.passes.box import Box
from attnc.passes.conditions import AtMostZero
from attnc.passes.regions import Region
from attnc.symbols import FloorDiv, arguments, names_in


def solve(box: Box, atom: AtMostZero, varying: frozenset[str]) -> Region | None:
    """The region of an inequality, or None where it cannot be solved."""
    form = atom.form
    if any(_varies_beyond(box, expr, varying) for expr in form.terms):
        return None
    has_column = any(mentions(expr, box.y) for expr in form.terms)
    has_row = any(mentions(expr, box.x) for expr in form.terms)
    if not has_column and not has_row:
        return Region(guards=(Le(form.expr(), 0),))
    found = _isolate(form, box.y if has_column else box.x)
    if found is None:
        return None
    is_low, bound = found
    if has_column and direction(bound, box.x) is None and not _moves_by_parts(bound, box.x):
        return None
    if has_column:
        return Region(lows=((bound,),)) if is_low else Region(highs=((bound,),))
    return Region(rows_from=(bound,)) if is_low else Region(rows_to=(bound,))


def _varies_beyond(box: Box, expr: Expr, varying: frozenset[str]) -> bool:
    """Whether an atom depends on the tile's elements through more than their positions."""
    return bool((names_in(expr) & varying) - {box.x.name, box.y.name})


def _moves_by_parts(bound: Affine, x: Symbol) -> bool:
    return all(direction(Affine({atom: 1}), x) is not None for atom in bound.terms)


def _isolate(form: Affine, unknown: Symbol) -> tuple[bool, Affine] | None:
    """Solve form <= 0: (True, a) means unknown >= a, (False, a) means unknown < a."""
    atoms = [atom for atom in form.terms if mentions(atom, unknown)]
    if len(atoms) != 1:
        return None
    atom, rest = atoms[0], form.without(atoms[0])
    factor = int(form.of(atom))
    scale, inside = _scaled(atom, unknown)
    if inside is None:
        return None
    divisor = multiply(constant(abs(factor)), scale)
    # factor * scale * inside <= -rest
    if factor > 0:
        bound = floor_divide(-rest, divisor)  # inside <= bound
    else:
        bound = -floor_divide(-rest, divisor)  # inside >= ceil(rest / divisor)
    if inside == unknown:
        return (False, bound + 1) if factor > 0 else (True, bound)
    return _isolate(_without_floor(inside, bound, factor > 0), unknown)


def _scaled(atom: Expr, unknown: Symbol) -> tuple[Affine, Expr | None]:
    """Write an atom as positive scale * (the unknown or a floor division of it)."""
    if isinstance(atom, Mul):
        moving = [arg for arg in atom.args if mentions(arg, unknown)]
        steady = Mul(*(arg for arg in atom.args if arg not in moving))
        if len(moving) == 1 and steady.is_positive and steady.is_integer:
            return affine(steady), _solvable(moving[0], unknown)
        return constant(1), None
    return constant(1), _solvable(atom, unknown)


def _solvable(expr: Expr, unknown: Symbol) -> Expr | None:
    if expr == unknown:
        return expr
    if isinstance(expr, FloorDiv) and expr.args[1].is_positive and expr.args[1].is_integer:
        whole = affine(expr.args[0]).is_whole and not mentions(expr.args[1], unknown)
        return expr if whole else None
    return None


def _without_floor(floor: Expr, bound: Affine, at_most: bool) -> Affine:
    """A // c <= bound as A - c * bound - c + 1 <= 0;  a // c >= bound as c * bound - a <= 0."""
    numerator, divisor = (affine(arg) for arg in arguments(floor))
    edge = multiply(bound, divisor)
    return numerator - edge - divisor + 1 if at_most else edge - numerator
