"""From results to kernels, by their axes alone.

A result owns its grid: its axes without the feature axes.  The tile values that it needs are remade
inside, and the axes that remain are its loops.  Results of equal grid share a kernel; a result that
reads another of the same kernel opens a new phase.  Every element has one owner: no atomics.

Forward, the rows' results come first.  What is summed over the queries (key_mass) reads lse, which
the rows' kernel then writes; nothing of the rows reads a sum over the queries.
"""

from __future__ import annotations

import networkx as nx

from attnc.graph.operations import (
    AXES,
    FEATURE_AXES,
    Contract,
    Dataflow,
    KernelGraph,
    Largest,
    LogSumExp,
)


def group_results(flow: Dataflow) -> tuple[KernelGraph, ...]:
    """The kernels of a dataflow: results with the same grid, in phases."""
    results = _results(flow)
    by_grid: dict[tuple[str, ...], list[str]] = {}
    for name in results:
        by_grid.setdefault(_grid(flow, name), []).append(name)
    written = {**flow.outputs, **{name: name for name in flow.kept}}
    if len(by_grid) > 1:
        written |= {name: name for name in results if isinstance(flow.values[name], LogSumExp)}
    return tuple(
        KernelGraph(
            "forward" if "q" in grid else "forward_keys",
            grid,
            phases_of(flow, names),
            tuple((buffer, name) for buffer, name in written.items() if name in names),
        )
        for grid, names in by_grid.items()
    )


def _results(flow: Dataflow) -> list[str]:
    """Reductions that an output needs, and the outputs, in order."""
    graph = flow.graph()
    written = {*flow.outputs.values(), *flow.kept}
    needed = written.union(*(nx.ancestors(graph, name) for name in written))
    return [
        name
        for name in flow.values
        if name in needed and (_reduces_keys(flow, name) or name in written)
    ]


def _reduces_keys(flow: Dataflow, name: str) -> bool:
    """Whether a value is a reduction over the columns of the score tile."""
    operation = flow.values[name]
    if isinstance(operation, LogSumExp | Largest):
        return True
    if not isinstance(operation, Contract):
        return False
    read = {axis for operand in operation.operands for axis in flow.values[operand].axes}
    return "k" in read and "k" not in operation.axes


def _grid(flow: Dataflow, name: str) -> tuple[str, ...]:
    axes = flow.values[name].axes
    return tuple(axis for axis in AXES if axis in axes and axis not in FEATURE_AXES)


def phases_of(flow: Dataflow, names: list[str]) -> tuple[tuple[str, ...], ...]:
    """Results in phases: one that reads another comes in a later phase."""
    graph = flow.graph()
    depth: dict[str, int] = {}
    for name in names:
        earlier = nx.ancestors(graph, name)
        depth[name] = 1 + max((depth[other] for other in depth if other in earlier), default=-1)
    levels = sorted(set(depth.values()))
    return tuple(tuple(name for name in names if depth[name] == level) for level in levels)
