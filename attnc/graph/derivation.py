"""The gradients as a reader's formulas: each value that the backward makes, in order.

p        = exp(logits - lse) where visible
d_p      = sum over e of grad_out * v
d_lse    = -d_lse_sum
d_logits = p * (d_lse + d_p) where visible
"""

from __future__ import annotations

from typing import cast

import networkx as nx
from sympy import true

from attnc.graph.operations import AXES, Contract, Dataflow, Largest, LogSumExp, Map, Scatter
from attnc.notation import plain
from attnc.symbols import Formula

SPOKEN = {
    "b": "batch entries",
    "g": "kv_heads",
    "r": "heads of a group",
    "q": "queries",
    "k": "keys",
    "d": "d",
    "e": "e",
}
ELSEWHERE = ("logits", "lse", "out")  # what the forward computes, said before


def derivation(flow: Dataflow) -> tuple[str, ...]:
    """A line for each value from the gradients of the outputs to those of the operands."""
    graph = flow.graph()
    ends = set(flow.gradients.values())
    needed = ends.union(*(nx.ancestors(graph, end) for end in ends))
    last = {value: f"grad_{leaf}" for leaf, value in flow.gradients.items()}
    last = {value: label for value, label in last.items() if not needed & set(graph[value])}
    texts = {name: _text(flow, name) for name in flow.values if name in needed}
    lines = {last.get(n, n): text for n, text in texts.items() if text and n not in ELSEWHERE}
    lines |= {f"grad_{leaf}": v for leaf, v in flow.gradients.items() if v not in last}
    width = max(map(len, lines), default=0)
    return tuple(f"{name:<{width}} = {text}" for name, text in lines.items())


def _text(flow: Dataflow, name: str) -> str:
    """How a value is made; nothing for what is read."""
    match flow.values[name]:
        case Map(formula, _, where):
            return plain(cast(Formula, formula)) + _shown(where != true)
        case Contract(operands, axes):
            return _sum_over(_summed(flow, operands, axes)) + " * ".join(operands)
        case LogSumExp((operand, *others), over, _, where):
            text = f"log of {_sum_over([over])}exp({operand}){_shown(where != true)}"
            return text + "".join(f", and of exp({other})" for other in others)
        case Largest(operand, over, _, where):
            return f"largest {operand} over {SPOKEN[over]}{_shown(where != true)}"
        case Scatter(tensor, parts):
            reads = (
                f"{value} where {tensor}[{', '.join(map(plain, indices))}] is read"
                for value, indices in parts
            )
            return "sum of " + ", and of ".join(reads)
        case _:
            return ""


def _summed(flow: Dataflow, operands: tuple[str, ...], axes: tuple[str, ...]) -> list[str]:
    read = {axis for operand in operands for axis in flow.values[operand].axes}
    return [axis for axis in AXES if axis in read and axis not in axes]


def _sum_over(axes: list[str]) -> str:
    if set("gr") <= set(axes):
        axes = ["heads" if axis == "g" else axis for axis in axes if axis != "r"]
    spoken = ", ".join(SPOKEN.get(axis, axis) for axis in axes)
    return f"sum over {spoken} of " if axes else ""


def _shown(masked: bool) -> str:
    return " where visible" if masked else ""
