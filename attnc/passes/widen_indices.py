"""Compute in 64 bits the integer formulas whose value may pass 2**31.

Why: lengths reach 2**30 and int params 2**29, so `3 * kv_idx` or a user's int32 tensor minus a
position can wrap, and a wrapped comparison flips a mask.  Sums and products are exact modulo 2**32,
so only the value of a whole sum counts, where something other than a sum or a product reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import sympy
from sympy import Basic, Expr, Integer
from sympy.core.relational import Relational

from attnc.ir.functions import Wide, rebuilt
from attnc.ir.nodes import Formula, Kernel, Let, Level, Loop, Stmt
from attnc.ir.position_ranges import KNOWN, LEAST, MOST, Range, learn, scalar_ranges, tightest
from attnc.symbols import arguments


@dataclass(frozen=True, slots=True)
class WidenIndices:
    """visible := 3 * kv_idx <= q_pos   ->   visible := wide(3 * kv_idx) <= q_pos.

    a + x < b + y   ->   a + x - b - y < 0, where x and y alone may pass 2**31 but not their
    difference.
    """

    name: ClassVar[str] = "widen-indices"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Mark every formula that 32 bits do not hold."""
        ranges = scalar_ranges(kernel)
        body: list[Stmt] = []
        for stmt in kernel.body:
            if isinstance(stmt, Let):
                body.append(_widen(stmt, ranges))
            elif isinstance(stmt, Loop):
                body.append(replace(stmt, body=tuple(_widen(let, ranges) for let in stmt.body)))
            else:
                body.append(stmt)
        return replace(kernel, body=tuple(body))


def _widen(let: Let, ranges: dict[str, Range]) -> Let:
    """Widen one value, and learn its range."""
    learn(let, ranges)
    if let.name in KNOWN or not isinstance(let.value, Formula):
        return let  # the launcher's limits bound positions themselves
    integer = let.dtype in ("i32", "i64")
    if all(_fits(part, ranges) for part in _read_values(let.value.expr)):
        return let
    expr = _one_sided(let.value.expr, ranges)
    dtype = "i64" if integer and not _fits(cast(Expr, expr), ranges) else let.dtype
    return replace(let, value=replace(let.value, expr=_marked(expr, ranges)), dtype=dtype)


def _marked(formula: Basic, ranges: dict[str, Range], in_ring: bool = False) -> Any:
    """Mark the outermost integers that 32 bits do not hold; terms of a sum may wrap."""
    whole = bool(formula.is_integer and formula.args)
    ring = whole and isinstance(formula, sympy.Add | sympy.Mul)
    if whole and not (in_ring and ring) and not _fits(cast(Expr, formula), ranges):
        return Wide(formula)
    args = [_marked(arg, ranges, ring) for arg in formula.args]
    return formula if args == list(formula.args) else rebuilt(formula, args)


def _one_sided(formula: Basic, ranges: dict[str, Range]) -> Basic:
    """Compare a difference with 0 where it fits and a side does not."""
    changed = {}
    for relation in formula.atoms(Relational):
        left, right = sides = arguments(relation)
        if not all(side.is_integer for side in sides) or all(_fits(side, ranges) for side in sides):
            continue
        difference = left - right
        if _fits(difference, ranges):
            changed[relation] = relation.func(difference, Integer(0), evaluate=False)
    return formula.xreplace(changed) if changed else formula


def _fits(formula: Expr, ranges: dict[str, Range]) -> bool:
    low, high = tightest(formula, ranges)
    return low is not None and high is not None and low >= LEAST and high <= MOST


def _read_values(formula: Basic) -> Iterator[Expr]:
    """Whole sums and products of integers that something other than a sum or product reads."""
    if isinstance(formula, Expr) and formula.is_integer and formula.args:
        yield formula
        todo: list[Basic] = [formula]
        while todo:
            part = todo.pop()
            ring = isinstance(part, sympy.Add | sympy.Mul)
            for arg in part.args:
                if ring and isinstance(arg, sympy.Add | sympy.Mul):
                    todo.append(arg)
                elif arg.args:
                    yield from _read_values(arg)
        return
    for arg in formula.args:
        yield from _read_values(arg)
