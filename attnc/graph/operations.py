"""Whole-tensor operations on named axes: the words of the dataflow.

Axes: b batch, g key/value head, r query head within its group, q, k, d (q/k features), e (v
features).  Grouped heads need no code anywhere: k and v simply lack r.

There is no softmax.  `lse = LogSumExp(t over k)` is an operation and `p = exp(t - lse)` an ordinary
Map; the condition sits on them (`where`), never as a select of its own, so an empty row needs no
case.  A dataflow holds its values in a table name -> operation, and equal operations are one value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import networkx as nx
from sympy import Basic, Expr, Integer, Symbol, true
from sympy.logic.boolalg import Boolean

from attnc.spec.schema import AttentionSpec
from attnc.symbols import names_in, value_symbol

AXES = ("b", "g", "r", "q", "k", "d", "e")  # canonical order
FEATURE_AXES = frozenset("de")
TILE = frozenset("qk")


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor of the call; its element at the position of its axes."""

    tensor: str
    axes: tuple[str, ...]
    dtype: str = "element"  # element | f32 | f16 | bf16 | i32 | i64 | i1


@dataclass(frozen=True, slots=True)
class Gather:
    """An element of a tensor at indices that are formulas; 0 outside its shape."""

    tensor: str
    indices: tuple[Expr, ...]
    axes: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Contract:
    """Sum of the product of the operands over every axis that `axes` lacks."""

    operands: tuple[str, ...]
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """An elementwise formula over values, positions and params; 0 where `where` does not hold."""

    formula: Basic
    axes: tuple[str, ...]
    where: Boolean = true


@dataclass(frozen=True, slots=True)
class LogSumExp:
    """log of the sum of exp of the operands: of the first over `over` where `where` holds.

    Others lack that axis, and count once (a sink).  -inf where nothing counts.
    """

    operands: tuple[str, ...]
    over: str
    axes: tuple[str, ...]
    where: Boolean = true


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest operand over `over` where `where` holds; -inf where it never does.

    It has no gradient.
    """

    operand: str
    over: str
    axes: tuple[str, ...]
    where: Boolean = true


@dataclass(frozen=True, slots=True)
class Scatter:
    """A tensor's gradient: elements of values added where the tensor was read at these indices.

    parts: (value, indices) for each way in which the tensor is read.
    """

    tensor: str
    parts: tuple[tuple[str, tuple[Expr, ...]], ...]
    axes: tuple[str, ...] = ()  # none: its dimensions are the tensor's own


Operation = Input | Gather | Contract | Map | LogSumExp | Largest | Scatter


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """Results that share a grid, in phases: a phase may read what an earlier one has reduced.

    results: what it writes, buffer -> value.
    """

    name: str
    grid: tuple[str, ...]
    phases: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A spec as whole-tensor operations.

    values: in order of definition.  outputs: result name -> value.  kernels: of the forward,
    filled by graph.kernels.  gradients: operand of the call -> value.  kept: what the forward
    writes for them.  backward: their kernels, in order, filled by graph.gradient_kernels.
    """

    spec: AttentionSpec
    values: Mapping[str, Operation]
    outputs: Mapping[str, str]
    kernels: tuple[KernelGraph, ...] = ()
    gradients: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    backward: tuple[KernelGraph, ...] = ()

    def operands(self, name: str) -> tuple[str, ...]:
        """The values that a value reads."""
        return operands_of(self.values[name], self.values)

    def graph(self) -> nx.DiGraph:
        """A view for topology: an edge from each operand to what reads it."""
        graph = nx.DiGraph()
        graph.add_nodes_from(self.values)
        graph.add_edges_from((u, v) for v in self.values for u in self.operands(v))
        return graph


def operands_of(operation: Operation, values: Mapping[str, Operation]) -> tuple[str, ...]:
    """Names of the values that an operation reads, each once."""
    match operation:
        case Input():
            return ()
        case Contract(operands):
            return tuple(dict.fromkeys(operands))
        case Gather(_, indices):
            formulas: tuple[Basic, ...] = indices
        case Map(formula, _, where):
            formulas = (formula, where)
        case LogSumExp(operands, _, _, where):
            formulas = (*(Symbol(operand) for operand in operands), where)
        case Largest(operand, _, _, where):
            formulas = (Symbol(operand), where)
        case Scatter(_, parts):
            formulas = tuple(part for name, indices in parts for part in (Symbol(name), *indices))
    names = (name for formula in formulas for name in sorted(names_in(formula)) if name in values)
    return tuple(dict.fromkeys(names))


def is_cotangent(operation: Operation) -> bool:
    """Whether a value is the gradient of a result, which the caller of the backward brings."""
    return isinstance(operation, Input) and operation.tensor.startswith("grad_")


def symbol_of(name: str, operation: Operation) -> Symbol:
    """The Symbol by which formulas name a value."""
    return value_symbol(name, "i32" if is_integer(operation) else "f32")


def is_integer(operation: Operation) -> bool:
    """Whether a value holds integers."""
    if isinstance(operation, Map):
        numbers = operation.formula.atoms(Integer)
        return bool(operation.formula.is_integer) and all(abs(n) < 2**63 for n in numbers)
    return isinstance(operation, Input | Gather) and operation.dtype in ("i32", "i64", "i1")
