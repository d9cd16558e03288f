"""Say attnc's formulas in z3, at a point of the iteration space.

Habits that keep the proofs linear (each was needed in a prototype):
* a scalar of the program is a z3 constant of its own with a defining equation;
* what is beyond linear arithmetic (products, tensor reads, real functions) becomes an uninterpreted
  function of its translated operands, so that the proof holds for any meaning of it, and the same
  atom in the spec and in the program is the same thing;
* floor(x / c) with a symbolic c names the quotient and c times it, with the order that follows.
Everything lives in one z3 context per translator, so that solver effort does not depend on history.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import sympy
import z3
from sympy import Basic, Expr, Symbol
from sympy.core.relational import Relational

from attnc.ir.functions import Clamp, Wide
from attnc.symbols import FloorDiv, FloorMod, Read, Where

Term = Any  # a z3 expression; z3's own types say less than its operators check

Resolve = Callable[[str], Term | None]  # what a name stands for at the point in question
ReadOf = Callable[[str, list[Term]], Term]  # an element of a user tensor, whatever its index


class Translator:
    """Translates formulas and gathers the facts that their parts obey."""

    def __init__(self) -> None:
        """Start with no facts."""
        self.context = z3.Context()
        self.facts: list[Term] = []
        self._seen: set[int] = set()
        self._functions: dict[str, Any] = {}
        self._quotients: dict[tuple[int, int], tuple[Term, Term, Term, Term]] = {}

    def integer(self, name: str) -> Term:
        """An integer constant."""
        return z3.Int(name, self.context)

    def number(self, value: int) -> Term:
        """An integer numeral."""
        return z3.IntVal(value, self.context)

    def truth_value(self, value: bool) -> Term:
        """True or false."""
        return z3.BoolVal(value, self.context)

    def boolean(self, name: str) -> Term:
        """A Boolean constant."""
        return z3.Bool(name, self.context)

    def assume(self, fact: Term) -> None:
        """Record a fact once."""
        if fact.get_id() not in self._seen:
            self._seen.add(fact.get_id())
            self.facts.append(fact)

    def apply(self, name: str, arguments: list[Term], kind: str) -> Term:
        """An uninterpreted function of its arguments; kind is int or real."""
        sort = z3.IntSort(self.context) if kind == "int" else z3.RealSort(self.context)
        key = f"{name}/{','.join(str(a.sort()) for a in arguments)}/{kind}"
        if not arguments:
            return z3.Const(key, sort)
        if key not in self._functions:
            self._functions[key] = z3.Function(key, *(a.sort() for a in arguments), sort)
        return self._functions[key](*arguments)

    # ------------------------------------------------------------ formulas

    def translate(self, formula: Basic, resolve: Resolve, read: ReadOf) -> Term:
        """Translate a formula; its names mean what `resolve` says."""
        if isinstance(formula, Symbol):
            found = resolve(formula.name)
            if found is not None:
                return found
            raise LookupError(f"no value is called {formula.name!r}")
        if formula in (sympy.true, sympy.false):
            return self.truth_value(formula is sympy.true)
        if formula.is_number:
            return self._constant(formula)
        if isinstance(formula, Read):
            indices = [self.translate(index, resolve, read) for index in formula.indices]
            return read(formula.tensor, indices)
        if isinstance(formula, sympy.Mul):
            special = self._special_product(formula, resolve, read)
            if special is not None:
                return special
        if isinstance(formula, Relational) and isinstance(formula.lhs, Expr):
            self._place_among_quotients(formula, resolve, read)
        arguments = [self.translate(argument, resolve, read) for argument in formula.args]
        return self._compose(formula, arguments)

    def _constant(self, number: Any) -> Term:
        if isinstance(number, sympy.Integer):
            return self.number(int(number))
        if isinstance(number, sympy.Rational):
            return z3.RealVal(f"{number.p}/{number.q}", self.context)
        if isinstance(number, sympy.Float):
            return z3.RealVal(str(Fraction(float(number))), self.context)
        return self.apply(f"constant {sympy.srepr(number)}", [], "real")

    def _compose(self, formula: Basic, arguments: list[Term]) -> Term:
        rule = _RULES.get(formula.func)
        if rule is not None:
            return rule(self, arguments)
        return self.apply(formula.func.__name__, [self.as_number(a) for a in arguments], "real")

    def as_number(self, term: Term) -> Term:
        """A Boolean as 0 or 1."""
        if z3.is_bool(term):
            return z3.If(term, self.number(1), self.number(0))
        return term

    def as_truth(self, term: Term) -> Term:
        """A number as: it is not 0."""
        return term if z3.is_bool(term) else term != 0

    def choose(self, condition: Term, one: Term, other: Term) -> Term:
        """One term where the condition holds, the other elsewhere."""
        return z3.If(condition, one, other)

    def smallest(self, arguments: list[Term]) -> Term:
        """The minimum."""
        return reduce(lambda a, b: self.choose(a <= b, a, b), map(self.as_number, arguments))

    def largest(self, arguments: list[Term]) -> Term:
        """The maximum."""
        return reduce(lambda a, b: self.choose(a >= b, a, b), map(self.as_number, arguments))

    def product(self, arguments: list[Term]) -> Term:
        """A product: linear where at most one factor is not a number, else an opaque function."""
        numbers = [a for a in map(self.as_number, arguments) if _is_numeral(a)]
        others = [a for a in map(self.as_number, arguments) if not _is_numeral(a)]
        if len(others) > 1:
            others = sorted(others, key=lambda term: term.get_id())
            kind = "int" if all(z3.is_int(term) for term in others) else "real"
            others = [reduce(lambda a, b: self.apply("product", [a, b], kind), others)]
        return reduce(lambda a, b: a * b, [*numbers, *others])

    def power(self, arguments: list[Term]) -> Term:
        """A power; a square is a product of its own."""
        base, exponent = arguments
        if z3.is_int_value(exponent) and 2 <= exponent.as_long() <= 4:
            return self.product([base] * exponent.as_long())
        value = self.apply("power", [self.as_number(a) for a in arguments], "real")
        if _is_numeral(base):
            self.assume(z3.Implies(base > 0, value > 0))
            self.assume(z3.Implies(z3.And(base >= 1, exponent >= 0), value >= 1))
        return value

    # ------------------------------------------------------------ quotients

    def floor_quotient(self, arguments: list[Term]) -> Term:
        """floor(a / b); z3's integer division floors for positive divisors only."""
        a, b = map(self.as_number, arguments)
        if not _is_numeral(b):
            return self._named_quotient(a, b)[0]
        divisor = b.as_long() if z3.is_int_value(b) else Fraction(str(b.as_fraction()))
        if divisor < 0:
            return self.floor_quotient([-a, self._literal(-divisor)])
        if z3.is_int(a) and z3.is_int_value(b):
            return a / b
        if z3.is_int(a) and isinstance(divisor, Fraction):
            return (a * divisor.denominator) / self.number(divisor.numerator)
        return z3.ToInt(a / z3.RealVal(str(divisor), self.context))

    def _literal(self, value: int | Fraction) -> Term:
        whole = isinstance(value, int)
        return self.number(value) if whole else z3.RealVal(str(value), self.context)

    def floor_remainder(self, arguments: list[Term]) -> Term:
        """What floor(a / b) leaves of a."""
        a, b = map(self.as_number, arguments)
        if z3.is_int(a) and z3.is_int_value(b) and b.as_long() > 0:
            return a % b
        if not _is_numeral(b):
            return a - self._named_quotient(a, b)[1]
        return a - b * self.floor_quotient([a, b])

    def _named_quotient(self, a: Term, b: Term) -> tuple[Term, Term]:
        """Name floor(a / b) and b times it, and say how quotients by the same b are ordered."""
        key = (a.get_id(), b.get_id())
        if key not in self._quotients:
            kind = "int" if z3.is_int(b) else "real"
            quotient = self.apply("floor quotient", [a, b], "int")
            multiple = self.apply("quotient times divisor", [a, b], kind)
            self._add_quotient(a, b, quotient, multiple)
            for fact in _of_quotient(*self._quotients[key]):
                self.assume(fact)
        return self._quotients[key][2:]

    def _place_among_quotients(self, relation: Any, resolve: Resolve, read: ReadOf) -> None:
        """Order what a quotient by b is compared with: c is the quotient of c * b by b."""
        quotients = [q for q in relation.atoms(FloorDiv) if not q.args[1].is_number]
        difference: Any = sympy.expand(relation.lhs - relation.rhs) if quotients else 0
        for quotient in sorted(quotients, key=str):  # a set has no order
            factor = difference.coeff(quotient)
            c, b = quotient - difference * factor, quotient.args[1]
            if factor in (1, -1) and c.is_integer and not isinstance(c, FloorDiv):
                parts = (self.translate(part, resolve, read) for part in (c * b, b, c, c * b))
                self._add_quotient(*parts)

    def _add_quotient(self, a: Term, b: Term, quotient: Term, multiple: Term) -> None:
        new = (a, b, quotient, multiple)
        for other in self._quotients.values():
            self._order(new, other)
        self._quotients.setdefault((a.get_id(), b.get_id()), new)

    def _order(self, one: tuple[Term, ...], other: tuple[Term, ...]) -> None:
        (_, b, q1, m1), (_, c, q2, m2) = one, other
        if b.get_id() != c.get_id():
            return
        facts = (
            (q1 < q2) == (m1 + b <= m2),
            (q2 < q1) == (m2 + b <= m1),
            (q1 == q2) == (m1 == m2),
        )
        self.assume(z3.Implies(b > 0, z3.And(*facts)))

    def _special_product(self, formula: sympy.Mul, resolve: Resolve, read: ReadOf) -> Term | None:
        """Open sums, for one atom a product; name c * floor(x / c), so that it is linear."""
        if any(isinstance(factor, sympy.Add) for factor in formula.args):
            spread = sympy.expand_mul(formula, deep=False)
            if spread != formula:
                return self.translate(spread, resolve, read)
        for factor in formula.args:
            if isinstance(factor, FloorDiv) and factor.args[1] in formula.args:
                if factor.args[1].is_number:
                    return None
                a, b = (self.translate(part, resolve, read) for part in factor.args)
                rest = [x for x in formula.args if x not in (factor, factor.args[1])]
                parts = [self.translate(part, resolve, read) for part in rest]
                return self.product([self._named_quotient(a, b)[1], *parts])
        return None


def _of_quotient(a: Term, b: Term, quotient: Term, multiple: Term) -> list[Term]:
    """Say what holds of floor(a / b) and of b times it, whichever of the two are integers."""
    size: Term = z3.If(a < 0, -a, a)
    return [
        z3.Implies(b > 0, z3.And(multiple <= a, a < multiple + b)),
        z3.Implies(b < 0, z3.And(multiple >= a, a > multiple + b)),
        z3.Implies(b > 0, z3.And((quotient < 0) == (a < 0), (multiple < 0) == (a < 0))),
        z3.Implies(b < 0, (quotient < 0) == (a > 0)),
        # a real b between -1 and 1 makes the quotient larger than a
        z3.Implies(z3.Or(b >= 1, b <= -1), z3.And(-size - 1 < quotient, quotient <= size)),
    ]


def _is_numeral(term: Term) -> bool:
    return z3.is_int_value(term) or z3.is_rational_value(term)


def _relation(compare: Callable[[Term, Term], Term]) -> Callable[[Translator, list[Term]], Term]:
    def rule(translator: Translator, arguments: list[Term]) -> Term:
        if all(z3.is_bool(argument) for argument in arguments):
            return compare(*arguments)
        return compare(*map(translator.as_number, arguments))

    return rule


def _chosen(translator: Translator, arguments: list[Term]) -> Term:
    condition, a, b = arguments
    return z3.If(translator.as_truth(condition), translator.as_number(a), translator.as_number(b))


_RULES: dict[Any, Callable[[Translator, list[Term]], Term]] = {
    sympy.Add: lambda t, args: reduce(lambda a, b: a + b, map(t.as_number, args)),
    sympy.Mul: Translator.product,
    sympy.Pow: Translator.power,
    sympy.Min: Translator.smallest,
    sympy.Max: Translator.largest,
    sympy.Abs: lambda t, args: t.largest([args[0], -args[0]]),
    sympy.floor: lambda t, args: t.floor_quotient([args[0], t.number(1)]),
    FloorDiv: Translator.floor_quotient,
    FloorMod: Translator.floor_remainder,
    Wide: lambda t, args: t.as_number(args[0]),
    Clamp: lambda t, args: t.smallest([t.largest([args[0], args[1]]), args[2]]),
    Where: _chosen,
    sympy.Eq: _relation(lambda a, b: a == b),
    sympy.Ne: _relation(lambda a, b: a != b),
    sympy.Lt: _relation(lambda a, b: a < b),
    sympy.Le: _relation(lambda a, b: a <= b),
    sympy.Gt: _relation(lambda a, b: a > b),
    sympy.Ge: _relation(lambda a, b: a >= b),
    sympy.And: lambda t, args: z3.And(*map(t.as_truth, args)),
    sympy.Or: lambda t, args: z3.Or(*map(t.as_truth, args)),
    sympy.Xor: lambda t, args: reduce(z3.Xor, map(t.as_truth, args)),
    sympy.Not: lambda t, args: z3.Not(t.as_truth(args[0])),
}
