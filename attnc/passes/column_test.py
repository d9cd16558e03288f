"""Ask each column of a tile whether some row of the tile sees it.

Why: where the ranges of a mask may hold columns that nobody sees (a remainder, document ids),
what is summed over columns must not be read from such a column.  `0 * NaN` is a NaN: a weight of
0 is no help.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Or, Symbol
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Axis, Collapse, Formula, Kernel, Let, Load, Loop
from attnc.passes.reading import is_read_along, reached
from attnc.symbols import names_in


def add_column_test(
    loop: Loop, inner: Axis, outer: Axis, kernel: Kernel, visible: str, seen: str
) -> Loop:
    """Read what is summed over columns only where some row of the tile sees the column.

    before:  v_tile := load v where inside;  sum over k where mask of p * v_tile
    after:   visible := mask;  seen := any of visible along q
             v_tile := load v where inside and seen;  sum over k where visible of p * v_tile
    """
    weighted = _weighted_loads(loop, inner, kernel)
    wheres = tuple(dict.fromkeys(reduction.where for reduction in loop.reductions))
    if not weighted:
        return loop
    body = {let.name: let for let in loop.body}
    needed = reached(names_in(Or(*wheres)), body)
    test = (
        Let(
            visible,
            Formula(And(Or(*wheres), outer.index < outer.size)),
            (outer.name, inner.name),
            "i1",
            loop.reductions[0].note or "pairs that the mask shows",
        ),
        Let(seen, Collapse("any", visible, outer.name), (inner.name,), "i1", "by some row"),
    )
    first = tuple(let for let in loop.body if let.name in needed)
    rest = tuple(
        _guarded(let, Symbol(seen)) if let.name in weighted else let
        for let in loop.body
        if let.name not in needed
    )
    reductions = loop.reductions
    if len(wheres) == 1:
        reductions = tuple(replace(r, where=Symbol(visible)) for r in reductions)
    return replace(loop, body=(*first, *test, *rest), reductions=reductions)


def _guarded(let: Let, seen: Boolean) -> Let:
    assert isinstance(let.value, Load)
    return replace(let, value=replace(let.value, guard=And(let.value.guard, seen)))


def _weighted_loads(loop: Loop, inner: Axis, kernel: Kernel) -> set[str]:
    """Loads of columns with features that a sum multiplies by weights (v, in attention)."""
    body = {let.name: let for let in loop.body}
    features = {axis.name for axis in kernel.axes if axis.role == "feature"}
    found: set[str] = set()
    for reduction in loop.reductions:
        if reduction.kind == "sum" and features & set(reduction.axes):
            found |= reached(names_in(reduction.element), body, features)
    return {name for name in found if is_read_along(body[name], inner.name)}
