"""What the loops of a READY kernel compute, read back from the program as formulas.

One visit turns a carried value into a formula over the carried values, over sums and maxima along
the keys of the tile, and over the dot products of loaded tiles.  The judges read only this; which
statements the passes chose to get there does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy
from sympy import Basic, Function, S, Symbol

from attnc.ir.functions import Anchor, Exp2, InverseOrZero, without_wide
from attnc.ir.nodes import (
    Collapse,
    Dot,
    Fill,
    Formula,
    Kernel,
    Let,
    Load,
    Loop,
    Pick,
    Start,
)
from attnc.symbols import Random, Where

# stands for -oo where sympy would compute with it, which its Max refuses
MINUS_INFINITY = Symbol("minus infinity", real=True)


RAISED = Symbol("raised", real=True)  # the running maximum after a tile


class KeySum(Function):
    """The sum of an element over the keys of the tile."""

    nargs = 1
    is_real = True


class KeyMax(Function):
    """The maximum of an element over the keys of the tile."""

    nargs = 1
    is_real = True


class Inner(Function):
    """Inner(left, right, axis): the product of two loaded tiles, summed over a feature axis."""

    nargs = 3
    is_real = True


@dataclass(frozen=True)
class Chain:
    """The values of a kernel seen from inside one of its loops, or (loop None) from after them."""

    kernel: Kernel
    loop: Loop | None = None
    keeps_conditions: bool = True  # named conditions stay names

    @cached_property
    def lets(self) -> dict[str, Let]:
        """The Lets that can be seen, by name."""
        inner = self.loop.body if self.loop else ()
        outer = (stmt for stmt in self.kernel.body if isinstance(stmt, Let))
        return {let.name: let for let in (*outer, *inner)}

    @cached_property
    def _memo(self) -> dict[str, Basic]:
        return {}

    @cached_property
    def raised(self) -> str | None:
        """The value that the running maximum becomes in the loop; formulas call it RAISED."""
        leader = leader_of(self.kernel)
        updates = self.loop.updates if self.loop else ()
        found = [u.value for u in updates if u.name == leader and u.value in self.lets]
        return found[0] if len(found) == 1 else None

    def value(self, name: str) -> Any:
        """The formula of a value; loads, positions, scalars and carried values stay names."""
        if name == self.raised:
            return RAISED
        if name not in self._memo:
            let = self.lets.get(name)
            opened = None if let is None else self._expand(let)
            self._memo[name] = Symbol(name, real=True) if opened is None else opened
        return self._memo[name]

    def formula(self, formula: Basic) -> Any:
        """A formula with the values that it names written out."""
        known = {s: self.value(str(s)) for s in formula.free_symbols if str(s) in self.lets}
        return formula.xreplace(known)

    def steps(self) -> dict[str, Any]:
        """What becomes of each carried value in one visit of the loop."""
        assert self.loop is not None
        steps = {update.name: self.value(update.value) for update in self.loop.updates}
        for update in self.loop.updates:
            if update.value == self.raised:
                opened = self._expand(self.lets[update.value])
                steps[update.name] = RAISED if opened is None else opened
        return steps

    def _expand(self, let: Let) -> Any:
        match let.value:
            case Formula(expr):
                kept = let.dtype == "i1" and self.keeps_conditions
                return None if kept else self.formula(without_wide(expr))
            case Fill(number):
                return number
            case Collapse(kind, operand, over) if self._is_columns(over) and kind != "any":
                return (KeyMax if kind == "max" else KeySum)(self.value(operand))
            case Dot(left, right, over, add_to):
                before: Any = self.value(add_to) if add_to else S.Zero
                if self._is_columns(over):
                    return before + KeySum(self.value(left) * self.value(right))
                return before + Inner(self.value(left), self.value(right), Symbol(over))
            case _:
                return None

    def _is_columns(self, axis: str) -> bool:
        return self.kernel.axis(axis).role == "columns"


def key_loops(kernel: Kernel) -> list[Loop]:
    """The loops over the keys, in order."""
    loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    return [loop for loop in loops if kernel.axis(loop.axis).role == "columns"]


def elements(step: Basic) -> list[Any]:
    """What a step sums or maximises over the keys."""
    parts = sympy.preorder_traversal(step)
    return [part for part in parts if isinstance(part, KeySum | KeyMax)]


def selects(steps: Iterable[Basic]) -> list[Basic]:
    """The conditions under which keys count: those of a select between a value and its absence."""
    found: list[Basic] = []
    for step in steps:
        for element in elements(step):
            found += [part.args[0] for part in sympy.preorder_traversal(element) if _selects(part)]
            factors = sympy.Mul.make_args(element.args[0])
            found += [f.args[0] for f in factors if isinstance(f, Where) and f.args[2] == 0]
    return [condition for condition in dict.fromkeys(found) if not condition.has(Random)]


def landing_conditions(loop: Loop) -> list[Basic]:
    """The conditions under which a pair is added to what is carried, pair by pair or picked."""
    lets = {let.name: let for let in loop.body}
    return [*dict.fromkeys(c for u in loop.updates for c in _landing(lets, lets[u.value], u.name))]


def _landing(lets: Mapping[str, Let], let: Let, carried: str) -> list[Basic]:
    match let.value:
        case Formula(sympy.Add() as total):
            rest = total - Symbol(carried, real=True)
            return _landing(lets, lets[str(rest)], carried) if str(rest) in lets else []
        case Collapse(_, operand, _) | Pick(operand):
            return _landing(lets, lets[operand], carried)
        case Formula(Where() as select) if select.args[2] == 0:
            return [select.args[0]]
        case _:
            return []


def _selects(part: Basic) -> bool:
    return isinstance(part, Where) and part.args[2] is S.NegativeInfinity


def hidden_adds_nothing(element: Basic, condition: Basic, maxima: Collection[str]) -> bool:
    """Whether a KeySum's or KeyMax's element is its identity where a condition fails."""
    without = element.args[0].replace(
        lambda part: isinstance(part, Where) and part.args[0] == condition,
        lambda part: MINUS_INFINITY if part.args[2] is S.NegativeInfinity else part.args[2],
    )
    return sort_of(without, maxima) == ("-oo" if isinstance(element, KeyMax) else "0")


def maxima_of(kernel: Kernel) -> frozenset[str]:
    """Carried values that may be -oo: what starts there, or from a sink."""
    starts = (stmt for stmt in kernel.body if isinstance(stmt, Start))
    return frozenset(
        s.name for s in starts if s.value == Fill(S.NegativeInfinity) or starts_from_sink(s, kernel)
    )


def sinks_of(kernel: Kernel) -> frozenset[str]:
    """Values that are the head's sink."""
    lets = (stmt for stmt in kernel.body if isinstance(stmt, Let))
    return frozenset(
        let.name for let in lets if isinstance(let.value, Load) and let.value.buffer == "sink"
    )


def starts_from_sink(start: Start, kernel: Kernel) -> bool:
    """Whether a carried value is the sink at first."""
    return isinstance(start.value, Fill) and str(start.value.value) in sinks_of(kernel)


def leader_of(kernel: Kernel) -> str | None:
    """The running maximum that exponents are taken against; None where no one of them is."""
    maxima = maxima_of(kernel)
    if len(maxima) > 1:
        maxima &= {name for loop in key_loops(kernel) for name in _anchored(loop)}
    return next(iter(maxima)) if len(maxima) == 1 else None


def _anchored(loop: Loop) -> set[str]:
    """Carried values that something in a loop anchors once they are raised."""
    formulas = [let.value.expr for let in loop.body if isinstance(let.value, Formula)]
    anchored = {str(part.args[0]) for formula in formulas for part in formula.atoms(Anchor)}
    return {update.name for update in loop.updates if update.value in anchored}


def sort_of(formula: Basic, maxima: Collection[str]) -> str:
    """Say what is sure of a value: 0, -oo, positive, finite, or ? (it may be anything).

    Loaded values, dots, positions, scalars and sums are taken to be finite; the carried values in
    `maxima` may be -oo, so only what is anchored is sure to be finite.
    """
    if formula in (S.NegativeInfinity, MINUS_INFINITY):
        return "-oo"
    if formula in (S.NaN, S.ComplexInfinity, S.Infinity):
        return "?"
    if isinstance(formula, Symbol):
        return "?" if formula.name in maxima else "finite"
    rule = _SORTS.get(formula.func)
    if rule is not None:
        return rule([sort_of(arg, maxima) for arg in formula.args])
    if formula.is_number:
        return "0" if formula.is_zero else "positive" if formula.is_positive else "finite"
    return "?"


def _product(sorts: list[str]) -> str:
    if "?" in sorts:
        return "?"
    if "-oo" in sorts:
        others = [sort for sort in sorts if sort != "-oo"]
        return "-oo" if len(others) == len(sorts) - 1 and set(others) <= {"positive"} else "?"
    if "0" in sorts:
        return "0"
    return "positive" if set(sorts) == {"positive"} else "finite"


def _sum(sorts: list[str]) -> str:
    if "?" in sorts:
        return "?"
    if "-oo" in sorts:
        return "-oo"
    return "0" if set(sorts) == {"0"} else "finite"


def _largest(sorts: list[str]) -> str:
    if "?" in sorts:
        return "?"
    if set(sorts) == {"-oo"}:
        return "-oo"
    return "positive" if "positive" in sorts else "finite"


def _finite(sorts: list[str]) -> str:
    return "finite" if set(sorts) <= {"finite", "positive", "0"} else "?"


def _chosen(sorts: list[str]) -> str:
    return _finite(sorts[1:])


def _exponential(sorts: list[str]) -> str:
    return {"-oo": "0", "?": "?"}.get(sorts[0], "positive")


_SORTS: dict[object, Callable[[list[str]], str]] = {
    sympy.Add: _sum,
    sympy.Mul: _product,
    sympy.Max: _largest,
    sympy.Abs: _finite,
    sympy.tanh: _finite,
    Inner: _finite,
    InverseOrZero: _finite,
    Where: _chosen,
    Exp2: _exponential,
    sympy.exp: _exponential,
    Anchor: lambda _: "finite",
}
