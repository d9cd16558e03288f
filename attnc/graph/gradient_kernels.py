"""From gradients to kernels, by their axes alone.

A row value that tiles read, and that is made from cotangents (d_lse), is made first, by a kernel of
its own.  A gradient with the keys' axis and not the queries' belongs to a kernel that holds a tile
of keys and walks the queries; one with neither, or the queries' alone, to the kernel that holds a
tile of queries and walks the keys.  One with both, or by distance, has a kernel of its own.  Each
element has one owner that adds in a fixed order: no atomics.
"""

from __future__ import annotations

from dataclasses import replace

import networkx as nx

from attnc.graph.derivative import differentiate
from attnc.graph.kernels import group_results, phases_of
from attnc.graph.landings import HEAD_KEYS, KEYS, ROWS, Landing, landings
from attnc.graph.operations import (
    FEATURE_AXES,
    TILE,
    Contract,
    Dataflow,
    KernelGraph,
    is_cotangent,
)
from attnc.graph.recompute import choose_kept

SHARED = (("backward_q", ROWS), ("backward_kv", KEYS), ("backward_keys", HEAD_KEYS))


def add_backward(flow: Dataflow) -> Dataflow:
    """Add gradients, what the forward keeps for them, and their kernels."""
    return group_gradients(choose_kept(differentiate(flow)))


def group_gradients(flow: Dataflow) -> Dataflow:
    """Add the kernels of the backward to a dataflow that knows what it keeps."""
    graph = flow.graph()
    cotangents = _cotangents(flow, graph)
    rows = {name: name for name in cotangents if _is_row_value(flow, graph, name)}
    found = landings(flow)
    kernels = [_kernel(flow, "backward_rows", ROWS, rows, {*flow.kept})]
    for name, grid in SHARED:
        results = {one.buffer: one.value for one in found if one.grid == grid}
        kernels += [_kernel(flow, name, grid, results, {*flow.kept, *rows})] if results else []
    shared = {grid for _, grid in SHARED}
    kernels += [_own_kernel(one) for one in found if one.grid not in shared]
    return replace(flow, kernels=group_results(flow), backward=tuple(kernels))


def _own_kernel(landing: Landing) -> KernelGraph:
    """Of values of pairs: nothing is reduced on the way to them."""
    operand = landing.buffer.removeprefix("grad_")
    taken = {"backward_rows", *(name for name, _ in SHARED)}
    name = f"backward_of_{operand}" if f"backward_{operand}" in taken else f"backward_{operand}"
    return KernelGraph(name, landing.grid, (), ((landing.buffer, landing.value),))


def _cotangents(flow: Dataflow, graph: nx.DiGraph) -> tuple[str, ...]:
    """What varies with the gradient of an output, in order."""
    given = [name for name, operation in flow.values.items() if is_cotangent(operation)]
    found = {name for root in given for name in nx.descendants(graph, root)}
    return tuple(name for name in flow.values if name in found)


def _is_row_value(flow: Dataflow, graph: nx.DiGraph, name: str) -> bool:
    """Whether a value is one number a row or column that a tile reads."""
    axes = set(flow.values[name].axes)
    read = any(TILE <= set(flow.values[reader].axes) for reader in graph.successors(name))
    return read and len(axes & TILE) == 1 and not axes & FEATURE_AXES


def _kernel(
    flow: Dataflow, name: str, grid: tuple[str, ...], results: dict[str, str], made: set[str]
) -> KernelGraph:
    """A kernel, with what it reduces on the way from tiles to its results.

    made: values that are read where they lie.
    """
    graph = flow.graph()
    graph.remove_edges_from([*graph.in_edges(made)])
    tiles = {value for value in flow.values if TILE <= set(flow.values[value].axes)}
    later = {*_cotangents(flow, flow.graph())}
    behind = set[str]().union(*(nx.ancestors(graph, result) for result in results.values()))
    sums = {value for value in behind & later if _sums_positions(flow, value)}
    on_the_way = {
        value
        for value in (behind & later) - tiles - made
        if {value, *nx.ancestors(graph, value)} & (tiles | sums)
    }
    names = [v for v in flow.values if v in on_the_way or v in results.values()]
    return KernelGraph(name, grid, phases_of(flow, names), tuple(results.items()))


def _sums_positions(flow: Dataflow, name: str) -> bool:
    """Whether a value is a sum over more than features."""
    operation = flow.values[name]
    if not isinstance(operation, Contract):
        return False
    read = {axis for operand in operation.operands for axis in flow.values[operand].axes}
    return bool(read - set(operation.axes) - FEATURE_AXES)
