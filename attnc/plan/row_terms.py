"""What tiles read of a row, made once a row: by the kernel of rows, before the tiles.

lse becomes a number to take exponents against, 0 for -inf: a select a row in place of one a row and
tile.  What a tile adds to a product is stored with its sign turned: Triton would start the product
from `d_p + d_lse`, which takes as many instructions, and then load d_lse in the midst of the loop
instead of ahead of it; `d_p - minus_d_lse` it leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

from sympy import Basic, Expr

from attnc.graph.operations import Dataflow, LogSumExp, Map, Operation
from attnc.ir.functions import Anchor
from attnc.ir.rebuild import substitution
from attnc.symbols import names_in, value_symbol

TILE = frozenset("qk")


def with_row_terms(flow: Dataflow) -> tuple[Dataflow, Dataflow]:
    """Let tiles read finite_lse in place of lse, and minus_x in place of a row value x made before.

    The kernel of rows no longer stores x itself where nothing else reads it.
    Returns: the dataflow of that kernel, whose own tiles read what it reads; that of the others.
    """
    if not flow.backward:
        return flow, flow
    rows, *tiled = flow.backward
    made = {name for _, name in rows.results}
    read = set().union(*(names_in(op.formula) for op in flow.values.values() if _is_tile(op)))
    terms = {
        name: term
        for name, operation in flow.values.items()
        if name in read and (term := _term(name, operation, name in made)) is not None
    }
    change = substitution({name: old for name, (_, _, old) in terms.items()})
    values: dict[str, Operation] = {}
    for name, operation in flow.values.items():
        values[name] = operation
        if name in terms:
            new, values[new], _ = terms[name]
    added = tuple(new for new, _, _ in terms.values())
    tiles = replace(flow, values={name: _over(op, change) for name, op in values.items()})
    others = {operand for name in values if name not in added for operand in tiles.operands(name)}
    others |= {*flow.gradients.values()}
    kept = [(buffer, name) for buffer, name in rows.results if name in others]
    results = (*kept, *((new, new) for new in added))
    rows = replace(rows, phases=(*rows.phases, added), results=results)
    backward = (rows, *tiled)
    return replace(flow, values=values, backward=backward), replace(tiles, backward=backward)


def _over(operation: Operation, change: Callable[[Basic], Basic]) -> Operation:
    """A tile over the new values; anything else as it is."""
    if not _is_tile(operation):
        return operation
    return replace(operation, formula=change(operation.formula))


def _term(name: str, operation: Operation, is_made: bool) -> tuple[str, Map, Expr] | None:
    """The new value, how it is made, and the old one in terms of it."""
    symbol = value_symbol(name)
    if isinstance(operation, LogSumExp):
        finite = f"finite_{name}"
        return finite, Map(Anchor(symbol), operation.axes), Anchor(value_symbol(finite))
    if is_made:
        minus = f"minus_{name}"
        return minus, Map(-symbol, operation.axes), -value_symbol(minus)
    return None


def _is_tile(operation: Operation) -> TypeGuard[Map]:
    return isinstance(operation, Map) and set(operation.axes) >= TILE
