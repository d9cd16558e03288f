"""What a claim about a kernel is made of: names, places, and two ways to say what they mean.

A claim is written once, as Python over a `Meaning`.  `SolverMeaning` turns it into z3 terms over
free sizes and indices; `ConcreteMeaning` evaluates the same claim on numbers, which is how a
counterexample of the solver is checked without the solver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import z3
from sympy import And, Basic, Ne, Symbol
from sympy.logic.boolalg import Boolean

from attnc.ir.nodes import Collapse, Formula, Kernel, Let, Load, Loop
from attnc.spec.schema import AttentionSpec
from attnc.symbols import MAX_LENGTH, MAX_PARAM, Q_POS, FloorDiv, Read, h, tensor_symbol
from attnc.verify.evaluation import Environment, evaluate
from attnc.verify.z3_translation import Translator

Term = Any  # a z3 expression, or a Python number

_INTEGERS = ("i32", "i64", "i1")


@dataclass(frozen=True)
class Subject:
    """What is judged: a kernel against a spec, at one tile shape."""

    spec: AttentionSpec
    kernel: Kernel
    block_q: int
    block_kv: int
    largest_element: int = 2**31 - 1  # what integer tensors are assumed to hold, in size

    @cached_property
    def meant(self) -> Boolean:
        """What counts: the mask; and where no extra output can tell, a gate that is not 0."""
        if not self.spec.head_gate or self.spec.outputs:
            return self.spec.mask
        return And(self.spec.mask, Ne(Read(tensor_symbol("head_gate", "fp32"), h), 0))

    @cached_property
    def shapes(self) -> dict[str, tuple[str | int, ...]]:
        """Shapes of the tensors that formulas may read."""
        return {"head_gate": ("heads",)} | {t.name: t.shape for t in self.spec.tensors}

    @cached_property
    def lets(self) -> dict[str, Let]:
        """Every Let of the kernel; loops of one kernel may bind the same name again."""
        return {stmt.name: stmt for stmt in self.kernel.body if isinstance(stmt, Let)}

    @cached_property
    def reals(self) -> frozenset[str]:
        """Run-time numbers that are no integers."""
        scalars = {scalar.name for scalar in self.kernel.scalars if scalar.kind != "i32"}
        return frozenset(scalars | {p.name for p in self.spec.params if p.kind == "float"})

    def limits(self, name: str) -> tuple[int, int] | None:
        """The inclusive range of a run-time integer of the call; None for what is no integer."""
        kinds = {param.name: param.kind for param in self.spec.params}
        if name in kinds:
            return (-MAX_PARAM, MAX_PARAM) if kinds[name] == "int" else None
        if name in ("q_len", "kv_len"):
            return 0, MAX_LENGTH
        if name in ("batch", "kv_heads"):
            return 1, 2**16 if name == "kv_heads" else 2**31 - 1
        return None


@dataclass(frozen=True)
class Place:
    """A point of the iteration space: index names, and the loop whose Lets can be seen.

    On the spec's side (`program` False) only the spec's own vocabulary is known, so that a wrong
    statement of the program cannot change what the spec means.
    """

    at: Mapping[str, Term]
    program: bool = True
    loop: Loop | None = None

    def moved(self, **at: Term) -> Place:
        """The same place with other indices."""
        return Place({**self.at, **at}, self.program, self.loop)

    def spec_side(self) -> Place:
        """The same point as the spec sees it."""
        return Place(self.at, False)


class Meaning(ABC):
    """Says what formulas mean at a place, and gathers the hypotheses of a claim."""

    def __init__(self, subject: Subject) -> None:
        """Start with no hypotheses."""
        self.subject = subject
        self.hypotheses: list[Term] = []

    @abstractmethod
    def pick(self, name: str) -> Term:
        """A free integer of the claim."""

    @abstractmethod
    def formula(self, formula: Basic, place: Place) -> Term:
        """The value of a formula: a number or a truth value."""

    @abstractmethod
    def truth(self, formula: Basic, place: Place) -> Term:
        """The truth value of a condition."""

    @abstractmethod
    def element(self, tensor: str, indices: list[Term], inside: Term) -> Term:
        """An element of a tensor; 0 where `inside` fails."""

    @abstractmethod
    def both(self, *terms: Term) -> Term:
        """All hold."""

    @abstractmethod
    def either(self, *terms: Term) -> Term:
        """At least one holds."""

    @abstractmethod
    def negate(self, term: Term) -> Term:
        """It does not hold."""

    @abstractmethod
    def choose(self, condition: Term, one: Term, other: Term) -> Term:
        """One number where the condition holds, the other elsewhere."""

    @abstractmethod
    def all_rows(self, first: Term, last: Term) -> list[Term]:
        """Rows of the tile first .. last to look at besides the obvious ones."""

    @abstractmethod
    def bind(self, let: Let, place: Place) -> Term:
        """The value of a Let at a place."""

    def implies(self, premise: Term, conclusion: Term) -> Term:
        """The conclusion holds where the premise does."""
        return self.either(self.negate(premise), conclusion)

    def same(self, one: Term, other: Term) -> Term:
        """Two conditions hold together."""
        return self.both(self.implies(one, other), self.implies(other, one))

    def given(self, *terms: Term) -> None:
        """Assume."""
        self.hypotheses += terms

    def between(self, low: Term, value: Term, high: Term) -> Term:
        """Whether low <= value < high."""
        return self.both(low <= value, value < high)

    def pick_between(self, name: str, low: Term, high: Term) -> Term:
        """A free integer with low <= value < high."""
        value = self.pick(name)
        self.given(self.between(low, value, high))
        return value

    def resolve(self, name: str, place: Place) -> Term | None:
        """What a name means at a place; None when nothing defines it."""
        subject = self.subject
        if name in place.at:
            return place.at[name]
        if name in ("BLOCK_Q", "BLOCK_KV"):
            return subject.block_q if name == "BLOCK_Q" else subject.block_kv
        let = self._let(name, place)
        if let is not None:
            return self.bind(let, place)
        if name == "q_pos":
            return self.formula(Q_POS, place)
        if name == "h_kv":
            return self.formula(FloorDiv(h, subject.spec.group), place)
        if name == "d":
            return subject.spec.head_dim_qk
        if name == "heads":
            kv_heads = self.resolve("kv_heads", place)
            return kv_heads * subject.spec.group
        if name == "kv_heads" and subject.spec.fixes_heads:
            return subject.spec.heads_kv
        return self.pick(name)

    def _let(self, name: str, place: Place) -> Let | None:
        if not place.program:
            return None
        inner = place.loop.body if place.loop else ()
        found = next((let for let in inner if let.name == name), None)
        return found or self.subject.lets.get(name)

    def read(self, tensor: str, indices: list[Term]) -> Term:
        """An element of a user tensor as the spec means it: 0 outside of its shape."""
        shape = self.subject.shapes[tensor]
        spec_side = Place({}, False)
        sizes = [self.formula(Symbol(s), spec_side) if isinstance(s, str) else s for s in shape]
        pairs = zip(indices, sizes, strict=True)
        inside = self.both(*(self.between(0, index, size) for index, size in pairs))
        return self.element(tensor, indices, inside)

    def load(self, load: Load, place: Place) -> Term:
        """An element as the program loads it: 0 where the guard fails."""
        indices = [self.formula(index, place) for index in load.index]
        return self.element(load.buffer, indices, self.truth(load.guard, place))


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
        return self.picked[name]

    def formula(self, formula: Basic, place: Place) -> Term:
        """Translate a formula at a place."""

        def resolve(name: str) -> Term:
            return self._as_term(self.resolve(name, place))

        return self.z3.translate(formula, resolve, self.read)

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


@dataclass
class ConcreteMeaning(Meaning):
    """Numbers, with the tensors' elements as the solver's counterexample has them."""

    subject: Subject
    values: Mapping[str, Term]
    elements: Callable[[str, list[int]], Term]
    hypotheses: list[Term] = field(default_factory=list)

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
