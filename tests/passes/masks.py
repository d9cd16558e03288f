"""Small attention kernels with a given mask, and what their formulas come to for given sizes.

The arithmetic here is numpy's, written down anew: nothing of the interval algebra judges itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sympy import And, Basic, Integer, Lt, Symbol, oo
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from attnc.ir.functions import Exp2, tile_symbol
from attnc.ir.nodes import (
    BLOCK_KV,
    BLOCK_Q,
    Axis,
    Buffer,
    Contract,
    Formula,
    GridDim,
    Kernel,
    Let,
    Load,
    Loop,
    Piece,
    Reduce,
    Scalar,
    Store,
)
from attnc.symbols import FloorDiv, Read, b, h, kv_idx, kv_len, q_idx, q_len

Q_BLOCK = Symbol("q_block", integer=True, nonnegative=True)
Q_FIRST = Symbol("q_first", integer=True, nonnegative=True)
KV_FIRST = Symbol("kv_first", integer=True, nonnegative=True)
D_IDX = Symbol("d_idx", integer=True, nonnegative=True)
E_IDX = Symbol("e_idx", integer=True, nonnegative=True)
BATCH = Symbol("batch", integer=True, nonnegative=True)
HEADS = Symbol("heads", integer=True, nonnegative=True)
Q_POS = q_idx + kv_len - q_len
WIDTH = 16

ROWS = Lt(q_idx, q_len)
KEYS = Lt(kv_idx, kv_len)
EVERYTHING = (Piece(Integer(0), FloorDiv(kv_len + BLOCK_KV - 1, BLOCK_KV)),)


def kernel_with(
    mask: Boolean,
    outside: tuple[Let, ...] = (),
    inside: tuple[Let, ...] = (),
    buffers: tuple[Buffer, ...] = (),
    params: tuple[str, ...] = (),
) -> Kernel:
    """Streamed attention with a mask; `outside` and `inside`: more lets before and in the loop."""
    t, m, v = tile_symbol("t"), tile_symbol("row_max"), tile_symbol("v_tile")
    where, p = And(mask, KEYS), Exp2(t - m)
    moved = Exp2(Symbol("row_max_old", real=True) - Symbol("row_max_new", real=True))
    head = (
        Let("q_first", Formula(Q_BLOCK * BLOCK_Q), (), "i32"),
        Let("q_pos", Formula(Q_POS), ("q",), "i32"),
        Let("q_tile", Load("q", (b, h, q_idx, D_IDX), ROWS), ("q", "d"), "element"),
    )
    body = (
        *inside,
        Let("k_tile", Load("k", (b, h, kv_idx, D_IDX), KEYS), ("k", "d"), "element"),
        Let("t", Contract("q_tile", "k_tile", ("d",)), ("q", "k")),
        Let("v_tile", Load("v", (b, h, kv_idx, E_IDX), KEYS), ("k", "e"), "element"),
    )
    sums = (Symbol("row_sum", real=True) * moved, Symbol("acc", real=True) * moved)
    reductions = (
        Reduce("row_max", "max", "k", t, ("q",), -oo, where),
        Reduce("row_sum", "sum", "k", p, ("q",), Integer(0), where, "row_max", sums[0]),
        Reduce("acc", "sum", "k", p * v, ("q", "e"), Integer(0), where, "row_max", sums[1]),
    )
    axes = (
        Axis("q", "rows", q_len, BLOCK_Q, q_idx, Q_FIRST),
        Axis("k", "columns", kv_len, BLOCK_KV, kv_idx, KV_FIRST),
        Axis("d", "feature", Integer(WIDTH), Integer(WIDTH), D_IDX, Integer(0)),
        Axis("e", "feature", Integer(WIDTH), Integer(WIDTH), E_IDX, Integer(0)),
    )
    stores = (
        Store("acc_out", (b, h, q_idx, E_IDX), "acc", ROWS),
        Store("sum_out", (b, h, q_idx), "row_sum", ROWS),
    )
    grid = (
        GridDim(Q_BLOCK, FloorDiv(q_len + BLOCK_Q - 1, BLOCK_Q)),
        GridDim(h, HEADS),
        GridDim(b, BATCH),
    )
    scalars = tuple(Scalar(name, "i32", "") for name in params)
    loop = Loop("k", EVERYTHING, body, reductions)
    return Kernel(
        "forward", axes, grid, (*_tensors(), *buffers), scalars, (*head, *outside, loop, *stores)
    )


def kernel_over_queries(mask: Boolean) -> Kernel:
    """The roles exchanged: a tile of keys, and a sum over the queries that see them."""
    where = And(mask, ROWS)
    queries = (Piece(Integer(0), FloorDiv(q_len + BLOCK_Q - 1, BLOCK_Q)),)
    body = (
        Let("q_pos", Formula(Q_POS), ("q",), "i32"),
        Let("do_tile", Load("q", (b, h, q_idx, E_IDX), ROWS), ("q", "e"), "element"),
    )
    total = Reduce("dv", "sum", "q", tile_symbol("do_tile"), ("k", "e"), Integer(0), where)
    axes = (
        Axis("q", "rows", q_len, BLOCK_Q, q_idx, Q_FIRST),
        Axis("k", "columns", kv_len, BLOCK_KV, kv_idx, KV_FIRST),
        Axis("e", "feature", Integer(WIDTH), Integer(WIDTH), E_IDX, Integer(0)),
    )
    kv_block = Symbol("kv_block", integer=True, nonnegative=True)
    first = Let("kv_first", Formula(kv_block * BLOCK_KV), (), "i32")
    grid = (GridDim(kv_block, FloorDiv(kv_len + BLOCK_KV - 1, BLOCK_KV)),)
    store = Store("dv_out", (b, h, kv_idx, E_IDX), "dv", KEYS)
    loop = Loop("q", queries, body, (total,))
    return Kernel("backward", axes, grid, _tensors(), (), (first, loop, store))


def _tensors() -> tuple[Buffer, ...]:
    def tensor(name: str, length: Any, last: str, role: str) -> Buffer:
        dims = ("b", "h", "k" if length == kv_len else "q", last)
        return Buffer(name, dims, (BATCH, HEADS, length, Integer(WIDTH)), "element", role, "")

    return (
        tensor("q", q_len, "d", "input"),
        tensor("k", kv_len, "d", "input"),
        tensor("v", kv_len, "e", "input"),
        tensor("acc_out", q_len, "e", "output"),
        Buffer("sum_out", ("b", "h", "q"), (BATCH, HEADS, q_len), "f32", "output", ""),
    )


# ---------------------------------------------------------------- arithmetic


def text_of(formula: Basic) -> str:
    """A formula as a numpy expression over names."""
    if isinstance(formula, Symbol):
        return formula.name
    if formula.is_Number or formula in (True, False):
        return f"({formula})"
    if isinstance(formula, Read):
        return f"{formula.tensor}[{', '.join(text_of(index) for index in formula.indices)}]"
    args = [text_of(arg) for arg in formula.args]
    if isinstance(formula, Relational):
        return f"({args[0]} {formula.rel_op} {args[1]})"
    name = type(formula).__name__
    if name in ("Add", "Mul", "And", "Or", "FloorDiv", "FloorMod"):
        sign = {"Add": "+", "Mul": "*", "And": "&", "Or": "|", "FloorDiv": "//", "FloorMod": "%"}
        return f"({f' {sign[name]} '.join(args)})"
    if name in ("Max", "Min"):
        found = args[0]
        for other in args[1:]:
            found = f"np.{'maximum' if name == 'Max' else 'minimum'}({found}, {other})"
        return found
    if name in ("Where", "ITE"):
        return f"np.where({', '.join(args)})"
    if name == "Not":
        return f"np.logical_not({args[0]})"
    return f"np.{name.lower()}({', '.join(args)})"


@cache
def compiled(formula: Basic) -> Any:
    """The formula's code."""
    return compile(text_of(formula), "formula", "eval")


def value_of(formula: Basic, names: Mapping[str, Any]) -> Any:
    """The formula's value, given those of its names."""
    return eval(compiled(formula), {"np": np}, dict(names))


@dataclass(frozen=True)
class Case:
    """Sizes, tile shape and params of one call."""

    q_len: int
    kv_len: int
    block_q: int
    block_kv: int
    values: tuple[tuple[str, Any], ...] = ()

    def names(self) -> dict[str, Any]:
        """What formulas may name."""
        blocks = {"BLOCK_Q": self.block_q, "BLOCK_KV": self.block_kv}
        lengths = {"q_len": self.q_len, "kv_len": self.kv_len}
        return {"b": 0, "h": 0, **dict(self.values), **lengths, **blocks}


def pairs(mask: Boolean, case: Case) -> np.ndarray:
    """The dense mask [q_len, kv_len]."""
    rows, columns = np.arange(case.q_len)[:, None], np.arange(case.kv_len)[None, :]
    names = case.names() | {"q_idx": rows, "kv_idx": columns}
    names["q_pos"] = rows + case.kv_len - case.q_len
    shown = value_of(mask, names)
    return np.broadcast_to(np.asarray(shown, dtype=bool), (case.q_len, case.kv_len))


def scalars_of(kernel: Kernel, case: Case, instance: dict[str, int]) -> dict[str, Any]:
    """The scalar lets of a kernel for one program instance, by name."""
    names = case.names() | instance
    for statement in kernel.body:
        if isinstance(statement, Let) and not statement.axes:
            assert isinstance(statement.value, Formula), statement
            names[statement.name] = value_of(statement.value.expr, names)
    return names


def loops_of(kernel: Kernel) -> list[Loop]:
    """The loops of a kernel."""
    return [statement for statement in kernel.body if isinstance(statement, Loop)]
