"""What a claim about a kernel is made of: names, places, and two ways to say what they mean.

A claim is written once, as Python over a `Meaning`.  `SolverMeaning` turns it into z3 terms over
free sizes and indices; `ConcreteMeaning` evaluates the same claim on numbers, which is how a
counterexample of the solver is checked without the solver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sympy import And, Basic, Expr, Ne, Symbol
from sympy.logic.boolalg import Boolean

from attnc.divisors import divisors_of
from attnc.ir.nodes import Kernel, Let, Load, Loop
from attnc.spec.schema import AttentionSpec
from attnc.symbols import MAX_LENGTH, MAX_PARAM, Q_POS, FloorDiv, Read, h, tensor_symbol

Term = Any  # a z3 expression, or a Python number


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
        """What counts: the mask; and where no extra output or gradient can tell, a gate not 0."""
        if not self.spec.head_gate or self.spec.outputs or self.spec.backward:
            return self.spec.mask
        opened: Any = Ne(Read(tensor_symbol("head_gate", "fp32"), h), 0)
        return And(self.spec.mask, opened)

    @cached_property
    def shapes(self) -> dict[str, tuple[str | int, ...]]:
        """Shapes of the tensors that formulas may read."""
        return {t.name: t.shape for t in (*self.spec.by_head, *self.spec.tensors)}

    @cached_property
    def lets(self) -> dict[str, Let]:
        """Every Let of the kernel; loops of one kernel may bind the same name again."""
        return {stmt.name: stmt for stmt in self.kernel.body if isinstance(stmt, Let)}

    @cached_property
    def reals(self) -> frozenset[str]:
        """Run-time numbers that are no integers."""
        scalars = {scalar.name for scalar in self.kernel.scalars if scalar.kind != "i32"}
        return frozenset(scalars | {p.name for p in self.spec.params if p.kind == "float"})

    @cached_property
    def divisors(self) -> frozenset[str]:
        """Params by which the mask or the score divides: the launcher refuses 0 for them."""
        params = [param.name for param in self.spec.params]
        formulas = (self.spec.mask, self.spec.score)
        found = divisors_of(formulas, params, self.spec.head_dim_qk)
        return frozenset(divisor.name for divisor in found if isinstance(divisor, Symbol))

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
        self.sizes_read: set[str] = set()  # those of blocks on which the claim depends

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
            self.sizes_read.add(name)
            return subject.block_q if name == "BLOCK_Q" else subject.block_kv
        let = self._let(name, place)
        if let is not None:
            return self.bind(let, place)
        within = self._within(name, place)
        if within is not None:
            return self.formula(within, place)
        if name == "q_pos":
            return self.formula(Q_POS, place)
        if name == "h_kv":
            shared: Any = FloorDiv(h, subject.spec.group)
            return self.formula(shared, place)
        if name == "d":
            return subject.spec.head_dim_qk
        if name == "heads":
            kv_heads: Any = self.resolve("kv_heads", place)
            return kv_heads * subject.spec.group
        if name == "kv_heads" and subject.spec.fixes_heads:
            return subject.spec.heads_kv
        return self.pick(name)

    def _within(self, name: str, place: Place) -> Expr | None:
        """What the program means by a position within a tile."""
        axes = self.subject.kernel.axes if place.program else ()
        return next((axis.index - axis.first for axis in axes if axis.within.name == name), None)

    def _let(self, name: str, place: Place) -> Let | None:
        if not place.program:
            return None
        inner: tuple[Let, ...] = place.loop.body if place.loop else ()
        if place.loop and place.loop.rounds:
            inner = (*place.loop.rounds.lets, *inner)
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
