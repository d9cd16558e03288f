"""What tiles of the backward read of a row, made once a row: by the kernel of rows, before them.

lse becomes a number to take exponents against, 0 for -inf: a select a row in place of one a row and
tile.  What a tile adds to a product is stored with its sign turned: Triton would start the product
from `d_p + d_lse`, which takes as many instructions, and then load d_lse in the midst of the loop
instead of ahead of it; `d_p - minus_d_lse` it leaves alone.

A row whose visible scores are all -inf has weights of 0 and no mask that selects them away: where a
score may be -inf, tiles read cotangents that are 0 in such a row, whatever the caller's hold there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard, cast

import networkx as nx
from sympy import Abs, Eq, Expr, Float, Integer, log, true
from sympy.logic.boolalg import And, Boolean, Or

from attnc.graph.operations import (
    TILE,
    Contract,
    Dataflow,
    LogSumExp,
    Map,
    Operation,
    is_cotangent,
)
from attnc.ir.functions import Anchor
from attnc.ir.rebuild import substitution
from attnc.symbols import Read, Where, names_in, nonzero, param_symbol, value_symbol

LARGEST = Float("3.4028234663852886e38")  # of float32


def with_row_terms(flow: Dataflow) -> tuple[Dataflow, Dataflow]:
    """Let tiles read finite_lse for lse, minus_x for a row value x made before, live_x for grad_x.

    The kernel of rows no longer stores x itself where nothing else reads it.
    Returns: the dataflow of that kernel, whose own tiles read what it reads; that of the others.
    """
    if not flow.backward:
        return flow, flow
    rows, *tiled = flow.backward
    terms = _terms(flow)
    values: dict[str, Operation] = {}
    for name, operation in flow.values.items():
        values[name] = operation
        if name in terms:
            values[terms[name].new] = terms[name].made
    added = tuple(term.new for term in terms.values())
    tiles = {name: op if name in added else _over(op, terms) for name, op in values.items()}
    others = replace(flow, values=tiles)
    read = {part for name in values if name not in added for part in others.operands(name)}
    read |= {*flow.gradients.values()}
    kept = [(buffer, name) for buffer, name in rows.results if name in read]
    results = (*kept, *((new, new) for new in added))
    rows = replace(rows, phases=(*rows.phases, added), results=results)
    backward = (rows, *tiled)
    return replace(flow, values=values, backward=backward), replace(others, backward=backward)


def cleared_cotangents(flow: Dataflow) -> tuple[str, ...]:
    """A line for each live_x, as the derivation has one for each value."""
    if not flow.backward:
        return ()
    made = {name: term.new for name, term in _terms(flow).items() if term.is_the_same}
    return tuple(
        f"{new} stands for {name}, with 0 in rows that see nothing" for name, new in made.items()
    )


@dataclass(frozen=True, slots=True)
class _Term:
    """A row's value in another form.

    old: the value in terms of the new one.  is_the_same: wherever tiles may ask for it, so that
    everything reads the new one.
    """

    new: str
    made: Map
    old: Expr
    is_the_same: bool = False


def _terms(flow: Dataflow) -> dict[str, _Term]:
    """By the names of what they replace, in the order of the values."""
    made = {name for _, name in flow.backward[0].results}
    graph = flow.graph()
    graph.remove_edges_from([*graph.in_edges(made)])
    later = set[str]().union(*(nx.ancestors(graph, name) for name in flow.gradients.values()))
    tiled = {part for op in flow.values.values() if _is_tile(op) for part in names_in(op.formula)}
    lse = next(name for name, op in flow.values.items() if isinstance(op, LogSumExp))
    finite = f"finite_{lse}"
    guarded = _may_be_minus_infinity(flow)
    seen = cast(Boolean, Eq(value_symbol(lse), value_symbol(finite)) if guarded else true)
    found: dict[str, _Term] = {}
    for name, operation in flow.values.items():
        symbol = value_symbol(name)
        if name == lse:
            made_of_lse = Map(Anchor(symbol), operation.axes)
            found[name] = _Term(finite, made_of_lse, Anchor(value_symbol(finite)))
        elif name in made & tiled:
            minus = f"minus_{name}"
            found[name] = _Term(minus, _where(seen, -symbol, operation.axes), -value_symbol(minus))
        elif guarded and name in later and is_cotangent(operation) and "q" in operation.axes:
            new = f"live_{name}"
            counts = And(seen, _is_heard(flow, name)) if "e" in operation.axes else seen
            found[name] = _Term(
                new, _where(counts, symbol, operation.axes), value_symbol(new), True
            )
    return found


def _where(seen: Boolean, formula: Expr, axes: tuple[str, ...]) -> Map:
    return Map(formula if seen == true else Where(seen, formula, Integer(0)), axes)


def _is_heard(flow: Dataflow, name: str) -> Boolean:
    """Where lse tells less than all: beside a sink it is finite in a row that sees no key.

    Such a row gives 0, and what is not finite in its cotangent is not the kernel's.
    """
    if not flow.spec.sink:
        return true
    given = next(one for one in flow.kept if "e" in flow.values[one].axes)
    return Or(nonzero(value_symbol(given)), Abs(value_symbol(name)) <= LARGEST)


def _over(operation: Operation, terms: Mapping[str, _Term]) -> Operation:
    """An operation over the new values: a tile over all, another over what is the same."""
    is_tile = _is_tile(operation)
    known = {name: term for name, term in terms.items() if is_tile or term.is_the_same}
    match operation:
        case Contract(operands):
            return replace(
                operation, operands=tuple(known[x].new if x in known else x for x in operands)
            )
        case Map(formula):
            change = substitution({name: term.old for name, term in known.items()})
            return replace(operation, formula=change(formula))
        case _:
            return operation


def _is_tile(operation: Operation) -> TypeGuard[Map]:
    return isinstance(operation, Map) and set(operation.axes) >= TILE


def _may_be_minus_infinity(flow: Dataflow) -> bool:
    """Whether a pair may score -inf: by an element of a tensor, or a logarithm of what varies."""
    params = {param_symbol(param.name, param.kind) for param in flow.spec.params}
    logarithms = (one.args[0] for one in flow.spec.score.atoms(log))
    varied = (inner for inner in logarithms if not inner.free_symbols <= params)
    is_biased = any(not read.is_integer for read in flow.spec.score.atoms(Read))
    return is_biased or any(not inner.is_positive for inner in varied)
