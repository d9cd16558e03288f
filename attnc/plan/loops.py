"""Write each kernel of the dataflow as the textbook's loops: one for each reduction over the keys.

    for keys:  row_max = max of t
    for keys:  row_sum = sum of exp(t - row_max)
    for keys:  acc     = sum of exp(t - row_max) v
    out = acc / row_sum;  lse = row_max + log row_sum

A LogSumExp is computed as a maximum and a sum against it, so wherever exp(t - lse) is summed, lse
is written out and the factors that do not vary along the keys leave the sum.
"""

from __future__ import annotations

from typing import cast

import sympy
from sympy import Expr, Integer, S, Symbol, exp, log
from sympy.logic.boolalg import Boolean

from attnc.algebra import factors_along
from attnc.graph.operations import (
    Contract as WholeContract,
)
from attnc.graph.operations import (
    Dataflow,
    KernelGraph,
    LogSumExp,
    Map,
)
from attnc.ir.functions import InverseOrZero, Log2
from attnc.ir.nodes import (
    Formula,
    Kernel,
    Let,
    Program,
    Reduce,
    Stmt,
)
from attnc.ir.rebuild import prune
from attnc.plan.gradients import plan_gradients
from attnc.plan.interface import interface_of
from attnc.plan.tiles import TilePlan
from attnc.symbols import names_in, replaced, value_symbol

ROW_MAX, ROW_SUM, ACCUMULATOR = "row_max", "row_sum", "acc"
LOG_ROW_SUM = Symbol("log_row_sum", real=True)  # opaque, or sympy would write exp(-log(l)) as 1 / l


def plan_program(flow: Dataflow) -> Program:
    """The naive program: every kernel of the dataflow as plain loops over tiles."""
    forward = (_ForwardPlan(flow, graph).kernel() for graph in flow.kernels)
    return Program(interface_of(flow), (*forward, *plan_gradients(flow)))


class _ForwardPlan:
    """The kernel that walks the keys and gives the outputs."""

    def __init__(self, flow: Dataflow, graph: KernelGraph) -> None:
        self.flow, self.graph = flow, graph
        self.tiles = TilePlan(flow, "q", "k", graph)
        self.written_out: dict[Expr, Expr] = {}  # lse -> row_max + log(row_sum)

    def kernel(self) -> Kernel:
        tiles = self.tiles
        body: list[Stmt] = [
            *tiles.positions(),
            *(let for let in tiles.lets.values() if "k" not in let.axes),
        ]
        for phase in self.graph.phases:
            for name in phase:
                body += self._result(name)
        body += [tiles.store(name, value) for name, value in self.graph.results]
        made = tuple(tiles.buffers.values())
        return prune(
            Kernel(self.graph.name, tiles.axes, tiles.grid(), made, tiles.scalars(), tuple(body))
        )

    def _result(self, name: str) -> list[Stmt]:
        match self.flow.values[name]:
            case LogSumExp(operand, _, _, where):
                return self._log_sum_exp(name, operand, where)
            case WholeContract((weights, values)) if (
                weights in self.flow.values and "k" in self.flow.values[weights].axes
            ):
                return self._weighted_sum(name, weights, values)
            case Map(formula, axes):
                along = self.tiles.along(name, axes)
                return [Let(name, Formula(cast(Expr, formula)), along)]
            case _:
                return []

    def _log_sum_exp(self, name: str, operand: str, where: Boolean) -> list[Stmt]:
        t, row_max, row_sum = (value_symbol(n) for n in (operand, ROW_MAX, ROW_SUM))
        shown, note = self.tiles.in_range(where), self.tiles.mask_note()
        largest = Reduce(ROW_MAX, "max", "k", t, ("q",), S.NegativeInfinity, shown, note=note)
        weights = exp(t - row_max)
        total = Reduce(ROW_SUM, "sum", "k", weights, ("q",), Integer(0), shown, note=note)
        self.written_out[value_symbol(name)] = row_max + LOG_ROW_SUM
        logarithm = row_max + Log2(row_sum) * log(2)
        lse = Let(
            name, Formula(logarithm), ("q",), note="natural log; -inf for a row that sees nothing"
        )
        return [self.tiles.loop([largest]), self.tiles.loop([total]), lse]

    def _weighted_sum(self, name: str, weights: str, values: str) -> list[Stmt]:
        operation = self.flow.values[weights]
        assert isinstance(operation, Map)
        shares = self._shares(operation)
        element = _expand_weights(shares) * value_symbol(self.tiles.label(values))
        varies = self.tiles.varies | {
            self.tiles.label(values): frozenset("ke"),
            ROW_MAX: frozenset("q"),
            ROW_SUM: frozenset("q"),
        }
        outside, inside = factors_along(element, "k", varies)
        where = self.tiles.in_range(operation.where)
        total = Reduce(
            ACCUMULATOR,
            "sum",
            "k",
            inside,
            ("q", "e"),
            Integer(0),
            where,
            note=self.tiles.mask_note(),
        )
        factor = Let(
            "inverse", Formula(outside), ("q",), note="a row that sees nothing divides by nothing"
        )
        product = value_symbol(ACCUMULATOR) * value_symbol("inverse")
        return [self.tiles.loop([total]), factor, Let(name, Formula(product), ("q", "e"))]

    def _shares(self, weights: Map) -> Expr:
        """The formula of weights over tiles that need nothing of what the kernel reduces."""
        formula = cast(Expr, replaced(weights.formula, self.written_out))
        for name in names_in(formula) & set(self.flow.values) - set(self.tiles.lets):
            inner = self.flow.values[name]
            assert isinstance(inner, Map)
            formula = replaced(formula, {value_symbol(name): self._shares(inner)})
        return formula


def _expand_weights(weights: Expr) -> Expr:
    """exp(a - log(l))   ->   exp(a) * InverseOrZero(l)."""
    factors = sympy.Mul.make_args(weights)
    return sympy.Mul(*(_expand(f) if isinstance(f, exp) else f for f in factors))


def _expand(power: exp) -> Expr:
    exponent = sympy.expand(power.args[0])
    if exponent.coeff(LOG_ROW_SUM) != -1:
        return power
    return exp(exponent + LOG_ROW_SUM) * InverseOrZero(value_symbol(ROW_SUM))
