"""What making or keeping a value costs at the nominal sizes, in picoseconds.

A model, not a measurement: it only has to order choices.  An H100's rates, of which a good kernel
reaches about 60 % of the matrix units and 85 % of the memory (FINDINGS part 1, section 4).  Whole
numbers, so that every machine decides alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import sympy
from sympy import Basic, Function

from attnc.graph.operations import (
    Contract,
    Dataflow,
    Gather,
    Input,
    Largest,
    LogSumExp,
    Map,
    Scatter,
)

MATRIX_FLOPS = 0.6 * 989e12  # a second, 16-bit products
MAP_FLOPS = 0.6 * 67e12  # a second, float32 arithmetic
FUNCTION_FLOPS = 8  # an exponential or the like, in units of an addition
BYTES = 0.85 * 3.35e12  # a second
PICOSECOND = 1e-12
ELEMENT_WIDTHS = {"fp16": 2, "bf16": 2, "fp32": 4}


def extents(flow: Dataflow) -> dict[str, int]:
    """The length of each axis at the nominal sizes."""
    spec = flow.spec
    return {
        "b": spec.sizes.batch,
        "g": spec.heads_kv,
        "r": spec.group,
        "q": spec.sizes.q_len,
        "k": spec.sizes.kv_len,
        "d": spec.head_dim_qk,
        "e": spec.head_dim_v,
    }


def elements(flow: Dataflow, name: str) -> int:
    """How many elements a value has."""
    extent = extents(flow)
    return prod(extent[axis] for axis in flow.values[name].axes)


def stored_bytes(flow: Dataflow, name: str) -> int:
    """What a stored value takes: results over features in the elements' own width, others in 4."""
    axes = flow.values[name].axes
    width = ELEMENT_WIDTHS[flow.spec.dtype] if set(axes) & {"d", "e"} else 4
    return width * elements(flow, name)


def moving_price(count: int) -> int:
    """What moving so many bytes to or from memory costs."""
    return round(count / BYTES / PICOSECOND)


def making_price(flow: Dataflow, name: str) -> int:
    """What computing a value from its operands costs.

    What is summed over tiles takes a pass of its own, which makes these tiles once more.
    """
    made = [name, *([] if is_tile(flow, name) else _tiles_under(flow, name))]
    return round(sum(_seconds(flow, one) for one in made) / PICOSECOND)


def is_tile(flow: Dataflow, name: str) -> bool:
    """Whether a value has a number for each query and key."""
    return {"q", "k"} <= set(flow.values[name].axes)


def _tiles_under(flow: Dataflow, name: str) -> list[str]:
    """The tiles that a value is summed of, directly or by way of other tiles."""
    found: list[str] = []
    todo = list(flow.operands(name))
    while todo:
        operand = todo.pop()
        if is_tile(flow, operand) and operand not in found:
            found.append(operand)
            todo += flow.operands(operand)
    return found


def _seconds(flow: Dataflow, name: str) -> float:
    operation, extent = flow.values[name], extents(flow)
    match operation:
        case Input() | Gather() | Scatter():
            return 0.0
        case Largest(operand):
            return elements(flow, operand) / MAP_FLOPS
        case Contract(operands):
            axes = {axis for operand in operands for axis in flow.values[operand].axes}
            return len(operands) * prod(extent[axis] for axis in axes) / MATRIX_FLOPS
        case Map(formula):
            return _work(formula) * elements(flow, name) / MAP_FLOPS
        case LogSumExp(operands):
            return (FUNCTION_FLOPS + 2) * elements(flow, operands[0]) / MAP_FLOPS


def _work(formula: Basic) -> int:
    """Operations of a formula, additions counting one."""
    parts = [part for part in sympy.preorder_traversal(formula) if part.args]
    functions = sum(isinstance(part, Function | sympy.Pow) for part in parts)
    return len(parts) + (FUNCTION_FLOPS - 1) * functions


def budget(flow: Dataflow) -> Mapping[str, int]:
    """Bytes of q, k, v and the outputs: what a call holds anyway, and what may be kept beside."""
    names = ("q", "k", "v", *dict.fromkeys(flow.outputs.values()))
    return {name: stored_bytes(flow, name) for name in names}
