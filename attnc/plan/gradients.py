"""Write the kernels of the backward as plain loops.

    rows:   d_lse = grad_lse - sum over e of out grad_out
    q:      for keys:                        grad_q += d_qk k
    kv:     for heads of the group, queries: grad_v += p^T grad_out;  grad_k += d_qk^T q

A factor that does not vary along what a kernel walks leaves its sum.  exp(t - lse) of an empty row,
whose lse is -inf, is taken against 0: every pair of it is hidden or has t = -inf.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import networkx as nx
from sympy import Expr, Integer, Symbol, true
from sympy.logic.boolalg import And, Boolean

from attnc import symbols
from attnc.algebra import factors_along
from attnc.graph.landings import landings
from attnc.graph.operations import (
    Contract as WholeContract,
)
from attnc.graph.operations import (
    Dataflow,
    KernelGraph,
    Map,
)
from attnc.ir.nodes import Buffer, Collapse, Formula, Kernel, Let, Reduce, Stmt
from attnc.ir.rebuild import map_stmt, prune, substitution
from attnc.plan import buffers
from attnc.plan.pair_gradients import plan_pairs
from attnc.plan.row_terms import with_row_terms
from attnc.plan.tiles import TilePlan
from attnc.plan.walks import anchor_rows, made_of, moving_names, walk
from attnc.symbols import Where, value_symbol


def plan_gradients(flow: Dataflow) -> tuple[Kernel, ...]:
    """The naive kernels of the backward, in order."""
    of_rows, flow = with_row_terms(flow)
    made = frozenset(buffer for graph in flow.backward for buffer, _ in graph.results)
    stored = frozenset({*flow.kept, *(name for name in made if name in flow.values)})
    found = {one.buffer: one for one in landings(flow)}
    kernels: list[Kernel] = []
    for graph in flow.backward:
        if graph.phases:
            own = of_rows if graph is flow.backward[0] else flow
            kernels.append(SumPlan(own, graph, stored).kernel())
        else:
            kernels += [plan_pairs(flow, graph, found[name], stored) for name, _ in graph.results]
    return tuple(map(_wanted, kernels))


def _wanted(kernel: Kernel) -> Kernel:
    """A kernel of the backward: that a gradient is wanted is known."""
    change = substitution({symbols.keep.name: true})
    return prune(replace(kernel, body=tuple(map_stmt(stmt, change) for stmt in kernel.body)))


class SumPlan:
    """One kernel: the tile it holds, what it sums while it walks the other axis, what it stores."""

    def __init__(self, flow: Dataflow, graph: KernelGraph, stored: frozenset[str]) -> None:
        self.flow, self.graph = flow, graph
        self.results = [name for phase in graph.phases for name in phase]
        self.tiles = TilePlan(flow, graph, stored)
        anchor_rows(self.tiles)

    def kernel(self) -> Kernel:
        tiles = self.tiles
        reductions: list[Reduce] = []
        after: list[Stmt] = []
        for name in self.results:
            reduction, lets = self._result(name)
            reductions += reduction
            after += lets
        for buffer, value in self.graph.results:
            if buffer not in tiles.buffers:
                tiles.buffers[buffer] = self._parts(buffer, value)
            after.append(tiles.store(buffer, value))
        body = [*tiles.positions(), *walk(tiles, reductions), *after]
        made, grid = tuple(tiles.buffers.values()), tiles.programs.dims()
        return prune(Kernel(self.graph.name, tiles.axes, grid, made, tiles.scalars(), tuple(body)))

    def _parts(self, name: str, value: str) -> Buffer:
        """A program's share of a gradient that is summed over programs afterwards."""
        held, grid = self.tiles.held, self.graph.grid
        head, heads = ("h", buffers.HEADS) if "r" in grid else ("g", buffers.KV_HEADS)
        last, extent = (
            (held, self.tiles.axis(held).size)
            if held in self.flow.values[value].axes
            else (buffers.BLOCK_DIMS[held], self.tiles.programs.dims()[0].extent)
        )
        meaning = "a program's share of the gradient"
        sizes = (buffers.BATCH, heads, extent)
        return Buffer(name, ("b", head, last), sizes, "f32", "output", meaning, optional=True)

    def _result(self, name: str) -> tuple[list[Reduce], list[Let]]:
        """What the loop sums for a result, and the result after the loop."""
        operation = self.flow.values[name]
        match operation:
            case WholeContract(operands):
                return self._sum(name, operands, operation.axes)
            case Map(formula):
                axes = self.tiles.along(name, operation.axes)
                return [], [Let(name, Formula(cast(Expr, self.tiles.by_label(formula))), axes)]
            case _:
                raise NotImplementedError(f"{name} = {operation} in {self.graph.name}")

    def _sum(
        self, name: str, operands: tuple[str, ...], axes: tuple[str, ...]
    ) -> tuple[list[Reduce], list[Let]]:
        """A sum over what is walked; over what is held as well where the result lacks it.

        Over batch entries and heads it is the program's share alone.
        """
        tiles = self.tiles
        element, where = self._written_out(operands)
        read = {axis for operand in operands for axis in self.flow.values[operand].axes}
        left = [axis for axis in ("d", "e", tiles.held) if axis in read and axis not in axes]
        inner = tiles.along(name, {*axes, *left})
        terms = f"{name}_terms" if left else name
        reductions: list[Reduce] = []
        outside = element
        if tiles.walked in read:
            outside, inside = factors_along(element, tiles.walked, self._varies())
            total = terms if outside == 1 else f"{name}_sum"
            note = tiles.mask_note() if where != true else ""
            shown = tiles.in_range(where)
            reductions = [
                Reduce(total, "sum", tiles.walked, inside, inner, Integer(0), shown, note=note)
            ]
            outside *= value_symbol(total)
        else:
            outside = tiles.unless_blind(outside, operands)
        made = outside == value_symbol(terms)
        lets = [] if made else [Let(terms, Formula(outside), inner)]
        return reductions, [*lets, *self._collapsed(name, terms, inner, left)]

    def _collapsed(
        self, name: str, terms: str, axes: tuple[str, ...], over: list[str]
    ) -> Iterator[Let]:
        """Sum terms over axes that the program holds; rows past the end add nothing."""
        for axis_name in over:
            axis = self.tiles.axis(axis_name)
            rest = tuple(axis for axis in axes if axis != axis_name)
            if axis.role == "rows":
                exists = Where(axis.index < axis.size, value_symbol(terms), Integer(0))
                terms = f"{name}_existing"
                yield Let(terms, Formula(exists), axes)
            last = axis_name == over[-1]
            summed = name if last else f"{name}_{axis_name}"
            yield Let(summed, Collapse("sum", terms, axis_name), rest)
            terms, axes = summed, rest

    def _varies(self) -> dict[str, frozenset[str]]:
        """Along which axes a name varies; what differs from round to round moves with the loop."""
        lets = self.tiles.lets.values()
        along = self.tiles.varies | {let.name: frozenset(let.axes) for let in lets}
        moving = moving_names(self.tiles, self.tiles.programs.rounds())
        own = made_of(lets, moving) | moving
        return along | {n: along.get(n, frozenset()) | {self.tiles.walked} for n in own}

    def _written_out(self, operands: tuple[str, ...]) -> tuple[Expr, Boolean]:
        """The product of the operands and where it counts; a map's constant factors written out."""
        product: Expr = Integer(1)
        where: Boolean = true
        for name in operands:
            operation = self.flow.values[name]
            let = self.tiles.lets.get(name)
            if self.tiles.is_share(name):  # read once more by `unless_blind`
                product *= value_symbol(self.tiles.label(name))
            elif let is not None and isinstance(operation, Map) and isinstance(let.value, Formula):
                where = cast(Boolean, And(where, operation.where))
                product *= self._split(name, cast(Expr, let.value.expr))
            else:
                product *= value_symbol(self.tiles.label(name))
        return product, where

    def _readers(self, name: str) -> int:
        """How many values on the way to the results read a value."""
        graph = self.flow.graph()
        graph.remove_edges_from([*graph.in_edges(self.tiles.stored)])
        ways = set(self.results).union(*(nx.ancestors(graph, one) for one in self.results))
        return len(ways.intersection(graph.successors(name)))

    def _split(self, name: str, formula: Expr) -> Expr:
        """A map as (what does not vary along the loop) * a value that takes over its name.

        Only where nothing else reads it.
        """
        outside, inside = factors_along(formula, self.tiles.walked, self._varies())
        if outside == 1 or self._readers(name) > 1:
            return value_symbol(name)
        if isinstance(inside, Symbol) or inside == 1:
            return formula
        let = self.tiles.lets[name]
        note = f"without the factor {outside}, which comes after the loop"
        self.tiles.lets[name] = Let(name, Formula(inside), let.axes, let.dtype, note)
        return outside * value_symbol(name)
