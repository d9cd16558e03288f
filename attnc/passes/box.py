"""The rows of one tile, and what can be proved about linear forms over them.

The outer index x of a tile runs over first <= x < end <= size, and a tile always has a row.  So
first, x, end and size grow from one another by amounts that are not negative; written in these
amounts, a form whose coefficients are all at least 0 is at least 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd

from sympy import Expr, Mul, Symbol

from attnc.passes.affine import Affine, Number, affine
from attnc.symbols import FloorDiv


@dataclass(frozen=True, slots=True)
class Box:
    """The tile of rows that a program instance holds, and the columns that it looks at."""

    x: Symbol  # the outer index: first <= x < end
    first: Expr
    end: Symbol  # min(first + tile, size)
    size: Expr
    y: Symbol  # the inner index: 0 <= y < columns
    columns: Expr
    _implied: dict[tuple[Affine, Affine], bool] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )  # what was asked before: pruning edges asks the same again and again

    @property
    def known_nonnegative(self) -> frozenset[Expr]:
        """What is a position or a length, whatever sympy knows of its symbol."""
        return frozenset((self.x, self.first, self.size, self.y, self.columns))

    def proves(self, form: Affine) -> bool:
        """Whether form >= 0 holds for every row of the tile, whatever the run-time values.

        True is certain, False only means that no proof was found.
        """
        if not form.terms:
            return form.constant >= 0
        if not form.is_whole:
            return False
        shared = gcd(*(int(n) for n in form.terms.values()))
        # the atoms' part is a multiple of `shared`, so that only the floor of the rest counts
        terms = {atom: int(n) // shared for atom, n in form.terms.items()}
        rest = Affine(terms, form.constant // shared)
        lowest = self._lower_bound(rest)
        # an integer above -1 is at least 0
        return lowest is not None and lowest > -1

    def implies(self, smaller: Affine, larger: Affine) -> bool:
        """Whether smaller <= larger holds for every row of the tile."""
        asked = smaller, larger
        if asked not in self._implied:
            self._implied[asked] = self.proves(larger - smaller)
        return self._implied[asked]

    def _lower_bound(self, form: Affine) -> Number | None:
        form = self._relax_floors(form)
        first, x, end, size = (form.of(e) for e in (self.first, self.x, self.end, self.size))
        if min(size, end + size, x + end + size, first + x + end + size) < 0:
            return None
        chained = (self.first, self.x, self.end, self.size)
        for atom, factor in form.terms.items():
            if atom not in chained and not self._has_sign(atom, factor):
                return None
        return form.constant + end + size

    def _has_sign(self, atom: Expr, factor: Number) -> bool:
        if atom in self.known_nonnegative:
            return factor > 0
        return bool(atom.is_nonnegative if factor > 0 else atom.is_nonpositive)

    def _relax_floors(self, form: Affine) -> Affine:
        """Replace floors by the linear form below (or above, where subtracted) them."""
        floors = [atom for atom in form.terms if _floor_in(atom) is not None]
        for atom in floors:
            factor = form.of(atom)
            found = _floor_in(atom)
            assert found is not None
            numerator, divisor, exact = found
            below = numerator - (divisor - 1) if factor > 0 else numerator
            form = form.without(atom) + below.times(factor * exact)
        return form


def _floor_in(atom: Expr) -> tuple[Affine, Affine, Fraction] | None:
    """(a, c, f) where the atom stays between f * (a - c + 1) and f * a."""
    if isinstance(atom, FloorDiv) and atom.args[1].is_Integer and atom.args[1] > 0:
        return affine(atom.args[0]), affine(atom.args[1]), Fraction(1, int(atom.args[1]))
    if isinstance(atom, Mul) and len(atom.args) == 2:  # c * floor(a / c), c a positive symbol
        for floor, factor in (atom.args, atom.args[::-1]):
            if isinstance(floor, FloorDiv) and floor.args[1] == factor and factor.is_positive:
                return affine(floor.args[0]), affine(factor), Fraction(1)
    return None
