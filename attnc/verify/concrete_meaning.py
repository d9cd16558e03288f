"""Claims on numbers: how a counterexample of the solver is checked without the solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sympy import Basic, Symbol

from attnc.ir.nodes import Collapse, Formula, Let, Load
from attnc.verify.evaluation import Environment, evaluate
from attnc.verify.meaning import Meaning, Place, Subject

Term = Any


@dataclass
class ConcreteMeaning(Meaning):
    """Numbers, with the tensors' elements as the solver's counterexample has them."""

    subject: Subject
    values: Mapping[str, Term]
    elements: Callable[[str, list[int]], Term]
    hypotheses: list[Term] = field(default_factory=list)
    sizes_read: set[str] = field(default_factory=set)

    def pick(self, name: str) -> Term:
        """The counterexample's value."""
        return self.values.get(name, 0)

    def formula(self, formula: Basic, place: Place) -> Term:
        """Evaluate a formula at a place."""
        found = self.array(formula, place)
        return found.item() if np.ndim(found) == 0 and hasattr(found, "item") else found

    def array(self, formula: Basic, place: Place) -> Term:
        """Evaluate a formula at a place whose indices may be arrays."""
        env = Environment({}, {}, lambda name: self.resolve(name, place), self.read)
        return evaluate(formula, env)

    def truth(self, formula: Basic, place: Place) -> Term:
        """Evaluate a condition at a place."""
        return bool(self.formula(formula, place))

    def element(self, tensor: str, indices: list[Term], inside: Term) -> Term:
        """The counterexample's element."""
        return self.elements(tensor, [int(i) for i in indices]) if inside else 0

    def both(self, *terms: Term) -> Term:
        """All hold."""
        return all(terms)

    def either(self, *terms: Term) -> Term:
        """At least one holds."""
        return any(terms)

    def negate(self, term: Term) -> Term:
        """It does not hold."""
        return not term

    def choose(self, condition: Term, one: Term, other: Term) -> Term:
        """One number where the condition holds, the other elsewhere."""
        return one if condition else other

    def all_rows(self, first: Term, last: Term) -> list[Term]:
        """All of them."""
        return list(range(first, last + 1))

    def bind(self, let: Let, place: Place) -> Term:
        """Compute the Let."""
        match let.value:
            case Formula(expr):
                return self.formula(expr, place)
            case Load():
                return self.load(let.value, place)
            case Collapse("any", operand, over):
                axis = self.subject.kernel.axis(over)
                first = self.formula(axis.first, place)
                rows = range(first, first + self.formula(axis.tile, place))
                moved = (place.moved(**{axis.index.name: row}) for row in rows)
                return any(self.truth(Symbol(operand), there) for there in moved)
            case _:
                raise LookupError(f"{let.name} is no number that a claim may speak of")
