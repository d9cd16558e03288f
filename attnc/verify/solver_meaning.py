"""Claims as z3 terms over free sizes and indices."""

from __future__ import annotations

from typing import Any

import z3
from sympy import Basic, StrictLessThan, Symbol

from attnc.ir.nodes import Collapse, Formula, Let, Load
from attnc.verify.meaning import Meaning, Place, Subject
from attnc.verify.z3_translation import Translator

Term = Any

_INTEGERS = ("i32", "i64", "i1")


class SolverMeaning(Meaning):
    """z3 terms over free integers."""

    def __init__(self, subject: Subject) -> None:
        """Start with a z3 context of its own."""
        super().__init__(subject)
        self.z3 = Translator()
        self.picked: dict[str, Term] = {}
        self._bound: dict[object, Term] = {}
        self.witnesses: list[Term] = []  # rows that some column's `any` rests on

    def pick(self, name: str) -> Term:
        """A free integer of the claim, or a free real for a float param."""
        if name not in self.picked:
            limits = self.subject.limits(name)
            if name in self.subject.reals:
                self.picked[name] = z3.Real(name, self.z3.context)
            else:
                self.picked[name] = self.z3.integer(name)
            if limits is not None:
                self.given(limits[0] <= self.picked[name], self.picked[name] <= limits[1])
            if name in self.subject.divisors:
                self.given(self.picked[name] != 0)
        return self.picked[name]

    def formula(self, formula: Basic, place: Place) -> Term:
        """Translate a formula at a place."""

        def resolve(name: str) -> Term:
            return self._as_term(self.resolve(name, place))

        if place.program:
            formula = self._on_whole_axes(formula)
        return self.z3.translate(formula, resolve, self.read)

    def _on_whole_axes(self, formula: Basic) -> Basic:
        """kv_in_tile < end - kv_first   ->   kv_idx < end: the solver is spared a product."""
        for axis in self.subject.kernel.axes:
            tests = [test for test in formula.atoms(StrictLessThan) if test.lhs == axis.within]
            moved = {test: axis.index < test.rhs + axis.first for test in tests}
            formula = formula.xreplace(moved)
        return formula

    def _as_term(self, value: Term) -> Term:
        return self.z3.number(value) if isinstance(value, int) else value

    def truth(self, formula: Basic, place: Place) -> Term:
        """Translate a condition at a place."""
        return self.z3.as_truth(self.formula(formula, place))

    def element(self, tensor: str, indices: list[Term], inside: Term) -> Term:
        """An uninterpreted function of the indices, within the limits of its dtype."""
        dtype = self._dtype(tensor)
        kind = "int" if dtype in _INTEGERS else "real"
        value = self.z3.apply(f"tensor {tensor}", [self._as_term(i) for i in indices], kind)
        if dtype == "i1":
            self.z3.assume(z3.And(0 <= value, value <= 1))
        elif dtype == "i32":
            limit = self.subject.largest_element
            self.z3.assume(z3.And(-limit - 1 <= value, value <= limit))
        nothing = self.z3.number(0) if kind == "int" else z3.ToReal(self.z3.number(0))
        return z3.If(inside, value, nothing)

    def _dtype(self, tensor: str) -> str:
        buffers = {buffer.name: buffer.dtype for buffer in self.subject.kernel.buffers}
        declared = {t.name: t.dtype for t in self.subject.spec.tensors}
        named = {"int32": "i32", "int64": "i64", "bool": "i1"}
        return named.get(declared.get(tensor, ""), buffers.get(tensor, "f32"))

    def both(self, *terms: Term) -> Term:
        """All hold."""
        return z3.And(self.z3.truth_value(True), *terms)

    def either(self, *terms: Term) -> Term:
        """At least one holds."""
        return z3.Or(self.z3.truth_value(False), *terms)

    def negate(self, term: Term) -> Term:
        """It does not hold."""
        return z3.Not(term, self.z3.context)

    def choose(self, condition: Term, one: Term, other: Term) -> Term:
        """One number where the condition holds, the other elsewhere."""
        if isinstance(condition, bool):
            return one if condition else other
        return z3.If(condition, self._as_term(one), self._as_term(other))

    def all_rows(self, first: Term, last: Term) -> list[Term]:
        """Rows that a column's `any` rests on."""
        return self.witnesses

    def bind(self, let: Let, place: Place) -> Term:
        """A scalar is a constant with a defining equation; a tile's element is written out."""
        key = (let.name, self._loop_number(let, place), self._whereabouts(let, place))
        if key not in self._bound:
            self._bound[key] = self._define(let, place)
        return self._bound[key]

    def _terms(self, place: Place) -> list[tuple[str, Term]]:
        return [(name, self._as_term(term)) for name, term in place.at.items()]

    def _loop_number(self, let: Let, place: Place) -> int:
        if self.subject.lets.get(let.name) is let or place.loop is None:
            return -1
        body = enumerate(self.subject.kernel.body)
        return next(number for number, stmt in body if stmt is place.loop)

    def _whereabouts(self, let: Let, place: Place) -> tuple[tuple[str, int], ...]:
        """The part of a place that a value may depend on."""
        where = sorted((name, term.get_id()) for name, term in self._terms(place))
        if let.axes:
            return tuple(where)
        lanes = {axis.index.name for axis in self.subject.kernel.axes}
        digits = {dim.index.name for dim in self.subject.kernel.grid}
        outer = self.subject.lets.get(let.name) is let
        return tuple((n, t) for n, t in where if (n in digits if outer else n not in lanes))

    def _define(self, let: Let, place: Place) -> Term:
        match let.value:
            case Formula(expr):
                value = self.formula(expr, place)
            case Load():
                value = self.load(let.value, place)
            case Collapse("any", operand, over):
                return self._any(let, operand, over, place)
            case _:
                terms = [term for _, term in self._terms(place)]
                return self.z3.apply(f"value {let.name}", terms, "real")
        if let.axes or not z3.is_int(value):
            return value
        named = self.z3.integer(f"{let.name} {len(self._bound)}")
        self.z3.assume(named == value)
        return named

    def _any(self, let: Let, operand: str, over: str, place: Place) -> Term:
        """Whether an element along an axis holds: some row's does, and no row's does otherwise."""
        axis = self.subject.kernel.axis(over)
        found = self.z3.boolean(f"{let.name} {len(self._bound)}")
        first = self.formula(axis.first, place)
        witness = self.z3.integer(f"some {over} {len(self._bound)}")
        self.witnesses.append(witness)
        there = place.moved(**{axis.index.name: witness})
        holds = self.truth(Symbol(operand), there)
        inside = z3.And(first <= witness, witness < first + self.formula(axis.tile, place))
        self.z3.assume(z3.Implies(found, z3.And(inside, holds)))
        if axis.index.name in place.at:
            self.z3.assume(z3.Implies(self.truth(Symbol(operand), place), found))
        return found
