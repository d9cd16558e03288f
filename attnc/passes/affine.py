"""Linear forms: what the interval algebra computes with.

A linear form is a constant and a coefficient for each atom; an atom is a symbol, a floor
division, or anything sympy that is neither a sum nor a number.  Why not sympy's own sums: adding
two of these takes a microsecond, and compiling a spec has a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product as pairs
from math import gcd, lcm

from sympy import Add, Expr, Integer, Mul, Rational, Symbol

from attnc.symbols import FloorDiv, replaced

Number = int | Fraction
MOST_TERMS = 16  # of a product that is multiplied out


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + sum of coefficient * atom; coefficients are never 0."""

    terms: Mapping[Expr, Number]
    constant: Number = 0

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.constant))

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other)
        terms = dict(self.terms)
        for atom, factor in other.terms.items():
            total = terms.pop(atom, 0) + factor
            if total:
                terms[atom] = total
        return Affine(terms, self.constant + other.constant)

    def __neg__(self) -> Affine:
        return self.times(-1)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + -other

    def times(self, factor: Number) -> Affine:
        """The form multiplied by a number other than 0."""
        return Affine({a: f * factor for a, f in self.terms.items()}, self.constant * factor)

    def of(self, expr: Expr) -> Number:
        """The coefficient of an atom."""
        return self.terms.get(expr, 0)

    def without(self, atom: Expr) -> Affine:
        """The form less one of its terms."""
        return Affine({a: f for a, f in self.terms.items() if a != atom}, self.constant)

    def expr(self) -> Expr:
        """The form as sympy."""
        parts = [
            atom if factor == 1 else _rational(factor) * atom for atom, factor in self.terms.items()
        ]
        return Add(*parts, _rational(self.constant))

    @property
    def is_whole(self) -> bool:
        """Whether every value of the form is an integer for sure."""
        numbers = (self.constant, *self.terms.values())
        return all(n == int(n) for n in numbers) and all(atom.is_integer for atom in self.terms)


def constant(value: int) -> Affine:
    """The form that is a number."""
    return Affine({}, value)


def affine(expr: Expr) -> Affine:
    """Read sympy as a linear form; what is not linear becomes an atom."""
    if isinstance(expr, Rational):
        return Affine({}, int(expr.p) if expr.q == 1 else Fraction(int(expr.p), int(expr.q)))
    if expr.is_Float and float(expr).is_integer():
        return Affine({}, int(expr))
    if isinstance(expr, Add):
        return reduce(Affine.__add__, (affine(arg) for arg in expr.args))
    if isinstance(expr, Mul):
        return _multiplied_out(expr)
    if isinstance(expr, FloorDiv):
        return floor_divide(affine(expr.args[0]), affine(expr.args[1]))
    return Affine({expr: 1})


def _multiplied_out(expr: Mul) -> Affine:
    """A product as the sum it is; one of many terms stays an atom: nothing would solve it."""
    total = constant(1)
    for arg in expr.args:
        total = product(total, affine(arg))
        if len(total.terms) > MOST_TERMS:
            return Affine({expr: 1})
    return total


def product(one: Affine, other: Affine) -> Affine:
    """Multiply out."""
    total: dict[Expr | None, Number] = {}
    for (a, factor), (b, times) in pairs(_parts(one), _parts(other)):
        atom = a if b is None else b if a is None else a * b
        total[atom] = total.get(atom, 0) + factor * times
    rest = total.pop(None, 0)
    return Affine({a: f for a, f in total.items() if a is not None and f}, rest)


def _parts(form: Affine) -> tuple[tuple[Expr | None, Number], ...]:
    """Atoms and their coefficients; None is the constant's."""
    return (*form.terms.items(), (None, form.constant))


def floor_divide(one: Affine, by: Affine) -> Affine:
    """floor(one / by); multiples of a literal divisor leave the floor."""
    if by.terms or not by.constant or by.constant != int(by.constant) or not one.is_whole:
        return Affine({FloorDiv(one.expr(), by.expr()): 1})
    divisor = int(by.constant)
    if divisor < 0:
        one, divisor = -one, -divisor
    outside = Affine({a: int(f) // divisor for a, f in one.terms.items() if f % divisor == 0})
    inside = {a: f for a, f in one.terms.items() if f % divisor}
    whole, rest = divmod(int(one.constant), divisor)
    if not inside:
        return outside + whole
    shared = gcd(
        divisor, *(int(f) for f in inside.values())
    )  # floor((4x + 3) / 6) = floor((2x + 1) / 3)
    numerator = Affine({a: int(f) // shared for a, f in inside.items()}, rest // shared)
    return outside + Affine({FloorDiv(numerator.expr(), Integer(divisor // shared)): 1}, whole)


def in_integers(form: Affine) -> Affine | None:
    """The form scaled so that its values are integers, or None where that cannot be."""
    numbers = (form.constant, *form.terms.values())
    scale = lcm(*(Fraction(n).denominator for n in numbers))
    scaled = Affine({a: int(f * scale) for a, f in form.terms.items()}, int(form.constant * scale))
    return scaled if scaled.is_whole else None


def mentions(expr: Expr, symbol: Symbol) -> bool:
    """Whether a symbol occurs in an expression."""
    return symbol in expr.free_symbols


def substitute(form: Affine, symbol: Symbol, by: Affine) -> Affine:
    """Put a linear form for a symbol, inside floor divisions too."""
    total = Affine({a: f for a, f in form.terms.items() if not mentions(a, symbol)}, form.constant)
    for atom, factor in form.terms.items():
        if mentions(atom, symbol):
            total += _substitute_atom(atom, symbol, by).times(factor)
    return total


def _substitute_atom(atom: Expr, symbol: Symbol, by: Affine) -> Affine:
    if atom == symbol:
        return by
    if isinstance(atom, Mul):
        return reduce(product, (substitute(affine(arg), symbol, by) for arg in atom.args))
    if isinstance(atom, FloorDiv):
        return floor_divide(*(substitute(affine(arg), symbol, by) for arg in atom.args))
    return affine(replaced(atom, {symbol: by.expr()}))


def direction(form: Affine, symbol: Symbol) -> int | None:
    """1 where the form never falls as the symbol grows, -1 where it never rises, 0 where it stays.

    None where neither is known.
    """
    found: set[int | None] = {0}
    for atom, factor in form.terms.items():
        way = _atom_direction(atom, symbol)
        found.add(None if way is None else way * (1 if factor > 0 else -1))
    if None in found or {1, -1} <= found:
        return None
    return sum(way for way in found if way is not None)


def _atom_direction(atom: Expr, symbol: Symbol) -> int | None:
    if not mentions(atom, symbol):
        return 0
    if atom == symbol:
        return 1
    if isinstance(atom, FloorDiv):
        numerator, divisor = atom.args
        if mentions(divisor, symbol) or not divisor.is_positive:
            return None
        return direction(affine(numerator), symbol)
    if isinstance(atom, Mul):
        moving = [arg for arg in atom.args if mentions(arg, symbol)]
        steady = [arg for arg in atom.args if arg not in moving]
        if len(moving) == 1 and all(arg.is_nonnegative for arg in steady):
            return _atom_direction(moving[0], symbol)
    return None


def _rational(number: Number) -> Expr:
    if isinstance(number, int):
        return Integer(number)
    return Rational(number.numerator, number.denominator)
