"""Reverse mode on the dataflow, by five rules.

    Contract   d x   = sum of d times the other operands, over the axes that x lacks
    Map        d x   = sum of d times the formula's partial by x, where the map holds
    LogSumExp  d x   = d exp(x - lse), where it holds
    Gather     d tab = what lands on each element of the table (Scatter)
    Input      d tab = d

No rule is named softmax or delta: exp(t - lse), met again, is p; and d_lse = -sum_k p d_p comes
out as minus the textbook's delta, which `reassociate` turns into -out . grad_out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import networkx as nx
import sympy
from sympy import Expr, Symbol, exp, true
from sympy.logic.boolalg import And, Boolean, Or

from attnc import symbols
from attnc.graph.forward import DIM_INDEX, declared_names
from attnc.graph.operations import (
    Contract,
    Dataflow,
    Gather,
    Input,
    Largest,
    LogSumExp,
    Map,
    Operation,
    Scatter,
    is_integer,
)
from attnc.graph.partials import partial
from attnc.graph.reassociate import reassociate
from attnc.graph.value_table import ValueTable
from attnc.symbols import names_in, value_symbol


def differentiate(flow: Dataflow) -> Dataflow:
    """Add the gradient of every operand that may have one.

    `gradients` maps q, k, v, tensors with `grad: true`, float params, scale, head_gate and sink
    to values.  The cotangents of the outputs are inputs called grad_out, grad_lse ...
    """
    leaves = _leaves(flow)
    reverse = _Reverse(flow, leaves)
    for output, value in flow.outputs.items():
        if isinstance(flow.values[value], Largest):
            continue
        operation = Input(f"grad_{output}", flow.values[value].axes, _dtype(output))
        reverse.reaches(
            value, Map(value_symbol(reverse.table.add(f"grad_{output}", operation)), operation.axes)
        )
    for name in reversed(tuple(flow.values)):
        reverse.step(name)
    return replace(flow, values=reverse.table.values, gradients=reverse.gradients())


def _dtype(output: str) -> str:
    return "element" if output == "out" else "f32"


def _leaves(flow: Dataflow) -> tuple[str, ...]:
    """What may have a gradient, in the order of the call."""
    spec = flow.spec
    formulas = names_in(spec.score, spec.scale)
    return (
        "q", "k", "v",
        *(tensor.name for tensor in spec.tensors if tensor.grad),
        *(param.name for param in spec.params if param.kind == "float" and param.name in formulas),
        *(tensor.name for tensor in spec.by_head),
        "scale",
    )  # fmt: skip


class _Reverse:
    """The sweep from the outputs to the leaves."""

    def __init__(self, flow: Dataflow, leaves: tuple[str, ...]) -> None:
        self.flow, self.leaves = flow, leaves
        self.table = ValueTable.of(flow.values.items(), declared_names(flow.spec))
        self.numbers = set(leaves) - {getattr(op, "tensor", "") for op in flow.values.values()}
        self.moving = self._moving()
        self.found: dict[str, list[Operation]] = {}  # value -> what reaches its cotangent
        self.landed: dict[str, list[Operation]] = {}  # leaf -> what reaches its gradient

    def _moving(self) -> set[str]:
        """The values that vary with a leaf."""
        graph = self.flow.graph()
        roots = {
            name
            for name, op in self.flow.values.items()
            if (isinstance(op, Input | Gather) and op.tensor in self.leaves)
            or (isinstance(op, Map) and names_in(op.formula) & self.numbers)
        }
        real = {name for name, op in self.flow.values.items() if not is_integer(op)}
        return (roots | {name for root in roots for name in nx.descendants(graph, root)}) & real

    def reaches(self, name: str, operation: Operation) -> None:
        """Note a contribution to the cotangent of a value."""
        self.found.setdefault(name, []).append(operation)

    def lands(self, leaf: str, operation: Operation) -> None:
        """Note a contribution to the gradient of a leaf."""
        self.landed.setdefault(leaf, []).append(operation)

    def gradients(self) -> Mapping[str, str]:
        """The gradient of each leaf that something reaches."""
        return {
            leaf: self._total(leaf, self.landed[leaf])
            for leaf in self.leaves
            if leaf in self.landed
        }

    def _total(self, name: str, operations: list[Operation]) -> str:
        """The cotangent of a value: the sum of what reaches it."""
        if any(isinstance(operation, Scatter) for operation in operations):
            return self._add(f"d_{name}", self._scattered(name, operations))
        if len(operations) == 1:
            return self._add(f"d_{name}", operations[0])
        maps = [operation for operation in operations if isinstance(operation, Map)]
        if len(maps) == len(operations) and len({(m.axes, m.where) for m in maps}) == 1:
            total = _sum([cast(Expr, m.formula) for m in maps])
            return self._add(f"d_{name}", replace(maps[0], formula=total))
        parts = [self._add(f"d_{name}_part", operation) for operation in operations]
        whole = sympy.Add(*(value_symbol(part) for part in parts))
        where = Or(*map(_where_of, operations))
        return self._add(f"d_{name}", Map(whole, operations[0].axes, cast(Boolean, where)))

    def _scattered(self, tensor: str, operations: list[Operation]) -> Scatter:
        """The gradient of a tensor that is read at several places: in step at its own indices."""
        shape = next(t.shape for t in self.flow.spec.tensors if t.name == tensor)
        parts: list[tuple[str, tuple[Expr, ...]]] = []
        for operation in operations:
            if isinstance(operation, Scatter):
                parts += operation.parts
            else:
                assert isinstance(operation, Map)
                parts.append((str(operation.formula), tuple(DIM_INDEX[str(dim)] for dim in shape)))
        return Scatter(tensor, tuple(parts))

    def _add(self, name: str, operation: Operation) -> str:
        """Name a value; a map that only renames another is that other."""
        if isinstance(operation, Map) and operation.where == true:
            known = str(operation.formula)
            if isinstance(operation.formula, Symbol) and known in self.table.values:
                return known
        made = reassociate(operation, self.table.values)
        if isinstance(made, Contract):
            made = self._product(made.operands, made.axes)
        return self.table.add(name, made)

    # ------------------------------------------------------------ the rules

    def step(self, name: str) -> None:
        """Hand the cotangent of a value on to its operands."""
        if name not in self.found or name not in self.moving:
            return
        cotangent = self._total(name, self.found[name])
        match self.flow.values[name]:
            case Contract() as contract:
                self._contract(contract, cotangent)
            case Map() as map_:
                self._map(name, map_, cotangent)
            case LogSumExp() as lse:
                self._log_sum_exp(name, lse, cotangent)
            case Input() | Gather() as read:
                self._read(read, cotangent)
            case Largest() | Scatter():
                raise AssertionError(f"{name} has no gradient")

    def _contract(self, contract: Contract, cotangent: str) -> None:
        for i, operand in enumerate(contract.operands):
            if operand in self.moving:
                rest = (cotangent, *contract.operands[:i], *contract.operands[i + 1 :])
                self.reaches(operand, self._product(rest, self.table.axes(operand)))

    def _product(self, operands: tuple[str, ...], axes: tuple[str, ...]) -> Operation:
        """A contraction; a map where nothing is summed."""
        if {axis for operand in operands for axis in self.table.axes(operand)} <= set(axes):
            return Map(sympy.Mul(*map(value_symbol, operands)), axes)
        return Contract(operands, axes)

    def _map(self, name: str, map_: Map, cotangent: str) -> None:
        formula = cast(Expr, map_.formula)
        mine = value_symbol(name)
        for symbol in sorted(symbols.symbols_in(formula), key=str):
            if symbol.name not in self.moving | self.numbers or symbol.is_integer:
                continue
            slope = partial(formula, symbol, mine)
            if slope != 0:
                self._weigh(symbol.name, cotangent, slope, map_)

    def _weigh(self, operand: str, cotangent: str, slope: Expr, map_: Map) -> None:
        """d operand = cotangent * slope, summed over the axes that the operand lacks."""
        reaches = self.lands if operand in self.numbers else self.reaches
        axes = () if operand in self.numbers else self.table.axes(operand)
        if axes == map_.axes:
            product = slope * value_symbol(cotangent)
            where = And(map_.where, _where_of(self.table.values[cotangent]))
            reaches(operand, Map(product, axes, cast(Boolean, where)))
            return
        coefficient, rest = slope.as_coeff_Mul()
        weights = () if rest == 1 else (self._weights(operand, rest, map_),)
        for total in self._totals(cotangent, weights, axes):
            if coefficient == 1:
                reaches(operand, total)
            else:
                summed = self._add(f"d_{operand}_sum", total)
                reaches(operand, Map(coefficient * value_symbol(summed), axes))

    def _totals(
        self, cotangent: str, weights: tuple[str, ...], axes: tuple[str, ...]
    ) -> list[Contract]:
        """The sum of a product; of each term of the cotangent, where one of these sums exists."""
        made = self.table.values[cotangent]
        terms = sympy.Add.make_args(cast(Expr, made.formula)) if isinstance(made, Map) else ()
        whole = Contract((cotangent, *weights), axes)
        if len(terms) > 1 and all(str(term) in self.table.values for term in terms):
            each = [Contract((str(term), *weights), axes) for term in terms]
            if any(reassociate(one, self.table.values) != one for one in each):
                return each
        return [whole]

    def _weights(self, operand: str, slope: Expr, map_: Map) -> str:
        """The slope as a value, hidden where the map is."""
        if isinstance(slope, Symbol) and slope.name in self.table.values:
            return slope.name
        return self.table.add(f"slope_of_{operand}", Map(slope, map_.axes, map_.where))

    def _log_sum_exp(self, name: str, lse: LogSumExp, cotangent: str) -> None:
        for operand in lse.operands:
            if operand not in self.moving:
                continue
            axes = self.table.axes(operand)
            weights = exp(value_symbol(operand) - value_symbol(name))
            if lse.over in axes:
                p = self.table.add("p", Map(weights, axes, lse.where))
                product = value_symbol(p) * value_symbol(cotangent)
                self.reaches(operand, Map(product, axes, lse.where))
            else:
                p = self.table.add(f"p_{operand}", Map(weights, lse.axes))
                self.reaches(operand, Contract((cotangent, p), axes))

    def _read(self, read: Input | Gather, cotangent: str) -> None:
        if isinstance(read, Gather):
            self.lands(read.tensor, Scatter(read.tensor, ((cotangent, read.indices),)))
        else:
            self.lands(read.tensor, Map(value_symbol(cotangent), read.axes))


def _where_of(operation: Operation) -> Boolean:
    """Where an operation may be other than 0."""
    return operation.where if isinstance(operation, Map) else true


def _sum(terms: list[Expr]) -> Expr:
    """A sum with the factors that all terms share before it: p (d_p + d_lse)."""
    factors = [sympy.Mul.make_args(term) for term in terms]
    shared = [factor for factor in factors[0] if all(factor in other for other in factors[1:])]
    outside = sympy.Mul(*shared)
    inside = sympy.Add(*(sympy.cancel(term / outside) for term in terms))
    return sympy.Mul(outside, inside, evaluate=False) if outside != 1 else inside
