"""From gradients to kernels, by their axes alone.

A row value that tiles read, and that is made from cotangents (d_lse), is made first, by a kernel of
its own.  A gradient with the keys' axis and not the queries' belongs to the kernel that holds a
tile of keys and walks the queries; others to the kernel that holds a tile of queries and walks the
keys.  Each element has one owner that adds in a fixed order: no atomics.
"""

from __future__ import annotations

from dataclasses import replace

import networkx as nx

from attnc.graph.derivative import differentiate
from attnc.graph.kernels import group_results, phases_of
from attnc.graph.operations import FEATURE_AXES, Dataflow, Input, KernelGraph
from attnc.graph.recompute import choose_kept

ROWS, KEYS = ("b", "g", "r", "q"), ("b", "g", "k")
TILE = frozenset("qk")


def add_backward(flow: Dataflow) -> Dataflow:
    """Add gradients, what the forward keeps for them, and their kernels."""
    return group_gradients(choose_kept(differentiate(flow)))


def group_gradients(flow: Dataflow) -> Dataflow:
    """Add the kernels of the backward to a dataflow that knows what it keeps."""
    graph = flow.graph()
    cotangents = _cotangents(flow, graph)
    rows = {name: name for name in cotangents if _is_row_value(flow, graph, name)}
    by_keys = {f"grad_{leaf}": flow.gradients[leaf] for leaf in ("k", "v")}
    by_rows = {f"grad_{leaf}": flow.gradients[leaf] for leaf in ("q",)}
    kernels = (
        _kernel(flow, "backward_rows", ROWS, rows),
        _kernel(flow, "backward_q", ROWS, by_rows),
        _kernel(flow, "backward_kv", KEYS, by_keys),
    )
    return replace(flow, kernels=group_results(flow), backward=kernels)


def _cotangents(flow: Dataflow, graph: nx.DiGraph) -> tuple[str, ...]:
    """What varies with the gradient of an output, in order."""
    given = [
        name
        for name, operation in flow.values.items()
        if isinstance(operation, Input) and operation.tensor.startswith("grad_")
    ]
    found = {name for root in given for name in nx.descendants(graph, root)}
    return tuple(name for name in flow.values if name in found)


def _is_row_value(flow: Dataflow, graph: nx.DiGraph, name: str) -> bool:
    """Whether a value is one number a row or column that a tile reads."""
    axes = set(flow.values[name].axes)
    read = any(TILE <= set(flow.values[reader].axes) for reader in graph.successors(name))
    return read and len(axes & TILE) == 1 and not axes & FEATURE_AXES


def _kernel(
    flow: Dataflow, name: str, grid: tuple[str, ...], results: dict[str, str]
) -> KernelGraph:
    return KernelGraph(name, grid, phases_of(flow, list(results.values())), tuple(results.items()))
