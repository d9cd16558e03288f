"""Write each kernel of the dataflow as the textbook's loops: one for each reduction over the keys.

    for keys:  row_max = max of t
    for keys:  row_sum = sum of exp(t - row_max)
    for keys:  acc     = sum of exp(t - row_max) v
    out = acc / row_sum;  lse = row_max + log row_sum

A LogSumExp is computed as a maximum and a sum against it, so wherever exp(t - lse) is summed, lse
is written out and the factors that do not vary along the keys leave the sum.  A sink is where both
start: row_max from the sink, row_sum from exp(sink - row_max).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import sympy
from sympy import Expr, S, Symbol, exp, log, true
from sympy.logic.boolalg import And, Boolean

from attnc.algebra import factors_along
from attnc.graph.operations import (
    Contract as WholeContract,
)
from attnc.graph.operations import (
    Dataflow,
    KernelGraph,
    Largest,
    LogSumExp,
    Map,
)
from attnc.ir.functions import Anchor, InverseOrZero, Log2
from attnc.ir.nodes import (
    Formula,
    Kernel,
    Let,
    Program,
    Reduce,
    Stmt,
)
from attnc.ir.rebuild import prune
from attnc.plan.gradients import SumPlan, plan_gradients
from attnc.plan.interface import interface_of
from attnc.plan.tiles import TilePlan
from attnc.symbols import names_in, replaced, value_symbol

ROW_MAX, ROW_SUM, ACCUMULATOR = "row_max", "row_sum", "acc"
LOG_ROW_SUM = Symbol("log_row_sum", real=True)  # opaque, or sympy would write exp(-log(l)) as 1 / l


def plan_program(flow: Dataflow) -> Program:
    """The naive program: every kernel of the dataflow as plain loops over tiles."""
    written = frozenset(name for graph in flow.kernels for name, _ in graph.results)
    forward = (
        _ForwardPlan(flow, graph).kernel()
        if "q" in graph.grid
        else SumPlan(flow, graph, written).kernel()
        for graph in flow.kernels
    )
    return Program(interface_of(flow), (*forward, *plan_gradients(flow)))


class _ForwardPlan:
    """The kernel that walks the keys and gives the outputs."""

    def __init__(self, flow: Dataflow, graph: KernelGraph) -> None:
        self.flow, self.graph = flow, graph
        self.tiles = TilePlan(flow, graph)
        self.written_out: dict[Expr, Expr] = {}  # lse -> row_max + log(row_sum)
        self.made: dict[Reduce, str] = {}  # reductions by what they are, less their name
        self._last = ""  # the reduction that was asked for last

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
            Kernel(
                self.graph.name,
                tiles.axes,
                tiles.programs.dims(),
                made,
                tiles.scalars(),
                tuple(body),
            )
        )

    def _result(self, name: str) -> list[Stmt]:
        match self.flow.values[name]:
            case Largest(operand, _, _, where):
                made = self._reduce(
                    "largest", "max", value_symbol(operand), S.NegativeInfinity, where
                )
                return [*made, Let(name, Formula(value_symbol(self._last)), ("q",))]
            case LogSumExp(operands, _, _, where):
                return self._log_sum_exp(name, operands, where)
            case WholeContract(operands, axes) if any(
                "k" in self.flow.values[operand].axes for operand in operands
            ):
                return self._sum(name, operands, axes)
            case Map() as map_:
                along = self.tiles.along(name, map_.axes)
                return [Let(name, Formula(self._of_rows(map_)), along)]
            case _:
                return []

    def _log_sum_exp(self, name: str, operands: tuple[str, ...], where: Boolean) -> list[Stmt]:
        t, *sinks = (value_symbol(operand) for operand in operands)
        row_max, row_sum = value_symbol(ROW_MAX), value_symbol(ROW_SUM)
        least = sympy.Max(*sinks) if sinks else S.NegativeInfinity
        first = sympy.Add(*(exp(sink - row_max) for sink in sinks))
        self.written_out[value_symbol(name)] = row_max + LOG_ROW_SUM
        logarithm = row_max + Log2(row_sum) * log(2)
        note = "natural log" if sinks else "natural log; -inf for a row that sees nothing"
        return [
            *self._reduce(ROW_MAX, "max", t, least, where),
            *self._reduce(ROW_SUM, "sum", exp(t - row_max), first, where),
            Let(LOG_ROW_SUM.name, Formula(Anchor(Log2(row_sum) * log(2))), ("q",)),
            Let(name, Formula(logarithm), ("q",), note=note),
        ]

    def _sum(self, name: str, operands: tuple[str, ...], axes: tuple[str, ...]) -> list[Stmt]:
        """A sum over the keys, each of its terms less the factors that are the row's own."""
        element, where = self._element(operands)
        along = self.tiles.along(name, axes)
        body: list[Stmt] = []
        total: Expr = S.Zero
        terms = sympy.Add.make_args(sympy.expand_mul(element))
        for i, term in enumerate(sorted(terms, key=lambda term: term.count_ops())):
            outside, inside = factors_along(term, "k", self.tiles.varies)
            wanted = ACCUMULATOR if "e" in axes else f"{name}_sum" + (f"_{i}" if i else "")
            body += self._reduce(wanted, "sum", inside, S.Zero, where, along)
            if "e" in axes:
                note = "a row that sees nothing divides by nothing"
                body.append(Let("inverse", Formula(outside), ("q",), note=note))
                outside = value_symbol("inverse")
            total += outside * value_symbol(self._last)
        return [*body, Let(name, Formula(total), along)]

    def _reduce(
        self,
        wanted: str,
        kind: str,
        element: Expr,
        init: Expr,
        where: Boolean,
        axes: tuple[str, ...] = ("q",),
    ) -> list[Stmt]:
        """A loop that reduces an element; none where a loop before does just that."""
        shown, note = self.tiles.in_range(where), self.tiles.mask_note()
        reduction = Reduce("", kind, "k", element, axes, init, shown, note=note)
        known = reduction in self.made
        self._last = self.made.setdefault(reduction, wanted)
        return [] if known else [self.tiles.loop([replace(reduction, name=wanted)])]

    def _element(self, operands: tuple[str, ...]) -> tuple[Expr, Boolean]:
        """A product of values, what is made of lse written out, and where it counts."""
        product: Expr = S.One
        where: Boolean = true
        for operand in operands:
            operation = self.flow.values[operand]
            if isinstance(operation, Map) and operand not in self.tiles.lets:
                product *= _expand_weights(self._shares(operation))
                where = cast(Boolean, And(where, operation.where))
            else:
                product *= value_symbol(self.tiles.label(operand))
        return product, where

    def _of_rows(self, map_: Map) -> Expr:
        """A formula over results; against 0 where lse is -inf, as everything is there."""
        finite = {lse: Anchor(lse) for lse in self.written_out}
        formula = cast(Expr, replaced(map_.formula, finite))
        known = {*self.tiles.lets, *self.tiles.results}
        for name in names_in(formula) & set(self.flow.values) - known:
            inner = self.flow.values[name]
            assert isinstance(inner, Map)
            formula = replaced(formula, {value_symbol(name): self._of_rows(inner)})
        return formula

    def _shares(self, weights: Map) -> Expr:
        """The formula of weights over tiles that need nothing of what the kernel reduces."""
        formula = cast(Expr, replaced(weights.formula, self.written_out))
        for name in names_in(formula) & set(self.flow.values) - set(self.tiles.lets):
            inner = self.flow.values[name]
            assert isinstance(inner, Map)
            formula = replaced(formula, {value_symbol(name): self._shares(inner)})
        return formula


def _expand_weights(weights: Expr) -> Expr:
    """exp(a - log(l)) -> exp(a) * InverseOrZero(l);  Anchor(a - log(l)) -> Anchor(a) - log(l)."""
    return cast(Expr, weights.replace(exp, _expand).replace(Anchor, _expand_log))


def _expand(exponent: Expr) -> Expr:
    exponent = sympy.expand(exponent)
    if exponent.coeff(LOG_ROW_SUM) != -1:
        return exp(exponent)
    return exp(exponent + LOG_ROW_SUM) * InverseOrZero(value_symbol(ROW_SUM))


def _expand_log(weight: Expr) -> Expr:
    """Where the weight is 0 it does not matter which finite number its logarithm is."""
    weight = sympy.expand(weight)
    if weight.coeff(LOG_ROW_SUM) != -1:
        return Anchor(weight)
    return Anchor(weight + LOG_ROW_SUM) - LOG_ROW_SUM
