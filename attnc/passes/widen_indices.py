"""Compute in 64 bits the integer formulas whose value may pass 2**31.

Why: lengths reach 2**30 and int params 2**29, so `2 * kv_idx` or a user's int32 tensor minus a position can wrap, and a
wrapped comparison flips a mask.  Sums and products are exact modulo 2**32, so only the value of a whole sum
counts, where something other than a sum or a product reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import sympy
from sympy import Basic, Expr

from attnc import symbols
from attnc.ir.nodes import Formula, Kernel, Let, Level, Loop, Stmt
from attnc.ranges import bounds

LEAST, MOST = -(2**31), 2**31 - 1
Ranges = Mapping[str, tuple[int | None, int | None]]
LENGTH = (0, symbols.MAX_LENGTH)
POSITION = (0, symbols.MAX_LENGTH - 1)
KNOWN: Ranges = {
    "q_len": LENGTH,
    "kv_len": LENGTH,
    "q_idx": POSITION,
    "kv_idx": POSITION,
    "q_pos": (-symbols.MAX_LENGTH, symbols.MAX_LENGTH - 1),
    "q_first": LENGTH,
    "q_block": POSITION,
    "b": POSITION,
    "h": (0, 2**16 - 1),
    "h_kv": (0, 2**16 - 1),
    "heads": (1, 2**16),
    "BLOCK_Q": (16, 256),
    "BLOCK_KV": (16, 256),
}
LOADED: Mapping[str, tuple[int | None, int | None]] = {
    "i32": (LEAST, MOST),
    "i64": (None, None),
    "i1": (0, 1),
}


@dataclass(frozen=True, slots=True)
class WidenIndices:
    """visible := 2 * kv_idx <= q_pos   ->   visible := wide 2 * kv_idx <= q_pos"""

    name: ClassVar[str] = "widen-indices"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Mark every formula that 32 bits do not hold."""
        ranges: dict[str, tuple[int | None, int | None]] = dict(KNOWN)
        for scalar in kernel.scalars:
            if scalar.kind == "i32" and scalar.name not in ranges:
                ranges[scalar.name] = (-symbols.MAX_PARAM, symbols.MAX_PARAM)
        body: list[Stmt] = []
        for stmt in kernel.body:
            if isinstance(stmt, Let):
                body.append(_widen(stmt, ranges))
            elif isinstance(stmt, Loop):
                body.append(replace(stmt, body=tuple(_widen(let, ranges) for let in stmt.body)))
            else:
                body.append(stmt)
        return replace(kernel, body=tuple(body))


def _widen(let: Let, ranges: dict[str, tuple[int | None, int | None]]) -> Let:
    """Widen one value, and learn its range."""
    if not isinstance(let.value, Formula):
        if let.dtype in LOADED:
            ranges[let.name] = LOADED[let.dtype]
        return let
    integer = let.dtype in ("i32", "i64")
    if integer and let.name not in KNOWN:
        ranges[let.name] = bounds(let.value.expr, ranges)
    if all(_fits(part, ranges) for part in _read_values(let.value.expr)):
        return let
    dtype = "i64" if integer and not _fits(let.value.expr, ranges) else let.dtype
    return replace(let, value=replace(let.value, wide=True), dtype=dtype)


def _fits(formula: Expr, ranges: Ranges) -> bool:
    low, high = bounds(formula, ranges)
    return low is not None and high is not None and low >= LEAST and high <= MOST


def _read_values(formula: Basic) -> Iterator[Expr]:
    """Whole sums and products of integers that something other than a sum or product reads."""
    if isinstance(formula, Expr) and formula.is_integer and formula.args:
        yield formula
        todo = [formula]
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
