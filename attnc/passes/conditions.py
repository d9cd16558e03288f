"""Conditions in normal form: and, or, and atoms that an interval algebra can solve.

not                     is pushed into the relations
x < y, x == y, x != y   become integers: x - y + 1 <= 0; both ways; either way
min max abs where       become cases (max(a, b) <= c: both; max(a, b) >= c: either)
a // c, c a parameter   becomes the case c > 0; the other case is opaque

A condition that falls into more than MOST_CASES cases is opaque: their number doubles with each
choice, and a sum of many is rarely worth a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

from sympy import ITE, Abs, Expr, Implies, Max, Min, Not, Or, Symbol, Xor, preorder_traversal
from sympy.core.relational import Relational
from sympy.logic.boolalg import And, Boolean, BooleanFalse, BooleanTrue

from attnc.passes.affine import Affine, affine, in_integers
from attnc.symbols import FloorDiv, FloorMod, Where, arguments, names_in, replaced, sign_of


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds; without parts: true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Some part holds; without parts: false."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AtMostZero:
    """form <= 0, a form whose values are integers."""

    form: Affine


@dataclass(frozen=True, slots=True)
class Divisible:
    """form % modulus == 0."""

    form: Affine
    modulus: int


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that is the same for the whole tile."""

    condition: Boolean


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition nothing is known of."""


Condition = All | Either | AtMostZero | Divisible | Guard | Opaque
MOST_CASES = 256


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads sympy conditions; `varying` names what differs within a tile."""

    varying: frozenset[str]
    cases: int = MOST_CASES  # into which what is read may still fall

    def within(self, cases: int) -> Reader:
        """The reader of each one of some cases."""
        return replace(self, cases=self.cases // cases)

    def read(self, condition: Boolean, holds: bool = True) -> Condition:
        """Bring a condition (or its opposite, where `holds` is false) into normal form."""
        match condition:
            case BooleanTrue() | BooleanFalse():
                return All(()) if bool(condition) is holds else Either(())
            case _ if not self._varies(condition):
                return Guard(condition if holds else Not(condition))
            case _ if not self.cases:
                return Opaque()
            case Not():
                return self.read(cast(Boolean, condition.args[0]), not holds)
            case And() | Or():
                parts = tuple(self.read(part, holds) for part in condition.args)
                return All(parts) if isinstance(condition, And) is holds else Either(parts)
            case Relational():
                return self._relation(condition if holds else cast(Relational, condition.negated))
            case _:
                return self._connective(condition, holds)

    def _connective(self, condition: Boolean, holds: bool) -> Condition:
        parts = cast(tuple[Boolean, ...], condition.args)
        match condition:
            case ITE():
                return self._cases(parts[0], (parts[1], holds), (parts[2], holds))
            case Implies():
                return self.read(Or(Not(parts[0]), parts[1]), holds)
            case Xor():
                rest = Xor(*parts[1:])
                return self._cases(parts[0], (rest, not holds), (rest, holds))
            case _:
                return Opaque()

    def _cases(
        self, test: Boolean, then: tuple[Boolean, bool], other: tuple[Boolean, bool]
    ) -> Condition:
        """One of two conditions, each to hold or not."""
        one = self.within(2)
        return Either(
            (
                All((one.read(test), one.read(*then))),
                All((one.read(test, False), one.read(*other))),
            )
        )

    def _relation(self, relation: Relational) -> Condition:
        left, right = relation.args
        if not (isinstance(left, Expr) and isinstance(right, Expr)):
            return self._equivalence(relation)
        divisor = self._unknown_divisor(relation)
        if divisor is not None:
            known = Symbol(divisor.name, integer=True, positive=True)
            solved = self._relation(replaced(relation, {divisor: known}))
            return Either((All((Guard(divisor > 0), solved)), All((Guard(divisor <= 0), Opaque()))))
        return self._compare(affine(left) - affine(right), sign_of(relation))

    def _equivalence(self, relation: Relational) -> Condition:
        left, right = relation.args
        if not (isinstance(left, Boolean) and isinstance(right, Boolean)):
            return Opaque()
        same = sign_of(relation) == "=="
        return self._cases(left, (right, same), (right, not same))

    def _compare(self, difference: Affine, operator: str) -> Condition:
        match operator:
            case "<=":
                return self._at_most_zero(difference)
            case ">=":
                return self._at_most_zero(-difference)
            case "<":
                return self._below_zero(difference)
            case ">":
                return self._below_zero(-difference)
            case "!=":
                return Either((self._below_zero(difference), self._below_zero(-difference)))
            case _:
                return self._equal_zero(difference)

    def _equal_zero(self, form: Affine) -> Condition:
        atoms = list(form.terms)
        if len(atoms) == 1 and isinstance(atoms[0], FloorMod) and form.of(atoms[0]) in (1, -1):
            inside, modulus = affine(atoms[0].args[0]), atoms[0].args[1]
            rest = -form.constant * form.of(atoms[0])
            if modulus.is_Integer and 0 <= rest < modulus and inside.is_whole:
                return Divisible(inside - int(rest), int(modulus))
        return All((self._at_most_zero(form), self._at_most_zero(-form)))

    def _below_zero(self, form: Affine) -> Condition:
        if any(isinstance(atom, Where | Max | Min | Abs) for atom in form.terms):
            # the cases first: scaling must see the atoms that remain
            return self._at_most_zero(form + 1) if form.is_whole else Opaque()
        whole = in_integers(form)
        return Opaque() if whole is None else self._at_most_zero(whole + 1)

    def _at_most_zero(self, form: Affine) -> Condition:
        if self._cases_in(form) > self.cases:
            return Opaque()
        choice = self._outer_choice(form)
        if choice is not None:
            return self._choose(form, choice)
        nested = self._nested_choice(form)
        if nested is not None:
            return self._split(form, nested)
        whole = in_integers(form)
        return Opaque() if whole is None else AtMostZero(whole)

    def _outer_choice(self, form: Affine) -> Expr | None:
        """A min, max, abs or where that is a term of the form."""
        return next((a for a in form.terms if self._is_choice(a)), None)

    def _nested_choice(self, form: Affine) -> Expr | None:
        """A min, max, abs or where deep inside a term."""
        atoms = [atom for atom in form.terms if atom.args and self._varies(atom)]
        parts = (cast(Expr, part) for atom in atoms for part in preorder_traversal(atom))
        return next((part for part in parts if self._is_choice(part)), None)

    def _cases_in(self, form: Affine) -> int:
        """How many cases a form falls into where none of its choices decides another."""
        atoms = [atom for atom in form.terms if atom.args and self._varies(atom)]
        parts = {cast(Expr, part) for atom in atoms for part in preorder_traversal(atom)}
        return prod(_values(part) for part in parts if self._is_choice(part))

    def _is_choice(self, expr: Expr) -> bool:
        return isinstance(expr, Where | Max | Min | Abs) and self._varies(expr)

    def _choose(self, form: Affine, choice: Expr) -> Condition:
        if isinstance(choice, Where):
            return self._split(form, choice)
        factor, rest = form.of(choice), form.without(choice)
        options = [affine(value) for value in _options(choice)]
        one = self.within(len(options))
        parts = tuple(one._at_most_zero(rest + option.times(factor)) for option in options)
        largest = not isinstance(choice, Min)
        return All(parts) if largest is (factor > 0) else Either(parts)

    def _split(self, form: Affine, choice: Expr) -> Condition:
        """One case for each value that a choice can take."""
        whole = form.expr()
        cases: list[Condition] = []
        values = _cases_of(choice)
        one = self.within(len(values))
        for value, condition in values:
            inside = affine(replaced(whole, {choice: value}))
            cases.append(All((one.read(condition), one._at_most_zero(inside))))
        return Either(tuple(cases))

    def _unknown_divisor(self, relation: Relational) -> Symbol | None:
        """A parameter that the row or the column is divided by, if its sign is not known."""
        for node in preorder_traversal(relation):
            if isinstance(node, FloorDiv) and node.args[1].is_Symbol and self._varies(node.args[0]):
                divisor = node.args[1]
                if divisor.is_integer and not divisor.is_positive and not self._varies(divisor):
                    return divisor
        return None

    def _varies(self, formula: Expr | Boolean) -> bool:
        return any(name in self.varying for name in names_in(formula))


def _values(choice: Expr) -> int:
    """How many values a max, min, abs or where chooses from."""
    return 2 if isinstance(choice, Where | Abs) else len(choice.args)


def _options(choice: Expr) -> tuple[Expr, ...]:
    """The values of which a max, min or abs is the largest or smallest."""
    values = arguments(choice)
    return (values[0], -values[0]) if isinstance(choice, Abs) else values


def _cases_of(choice: Expr) -> Sequence[tuple[Expr, Boolean]]:
    if isinstance(choice, Where):
        condition, then, other = choice.args
        return ((then, condition), (other, Not(condition)))
    values = _options(choice)
    least = isinstance(choice, Min)
    return [
        (value, And(*(_ordered(value, other, least) for other in values if other != value)))
        for value in values
    ]


def _ordered(value: Expr, other: Expr, least: bool) -> Boolean:
    return value <= other if least else value >= other
