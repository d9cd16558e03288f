"""The smallest kernel that uses most of the IR, for tests to break in one place each."""

from __future__ import annotations

from dataclasses import replace

from sympy import Integer, Symbol, exp, oo

from attnc.ir.functions import new, old
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
    Stmt,
    Store,
)
from attnc.symbols import FloorDiv, b, kv_idx, kv_len, q_idx, q_len, value_symbol

Q_FIRST, KV_FIRST = Symbol("q_first", integer=True), Symbol("kv_first", integer=True)
D_IDX, Q_BLOCK = Symbol("d_idx", integer=True), Symbol("q_block", integer=True)
BATCH = Symbol("batch", integer=True)
S, M = value_symbol("s"), value_symbol("m")


def lets() -> tuple[Let, ...]:
    return (
        Let("k_tile", Load("k", (b, kv_idx, D_IDX), kv_idx < kv_len), ("k", "d"), "element"),
        Let("s", Contract("q_tile", "k_tile", ("d",)), ("q", "k")),
    )


def reductions() -> tuple[Reduce, ...]:
    visible = kv_idx <= q_idx
    repair = value_symbol("l") * exp(old("m") - new("m"))
    return (
        Reduce("m", "max", "k", S, ("q",), -oo, visible),
        Reduce("l", "sum", "k", exp(S - M), ("q",), Integer(0), visible, "m", repair),
    )


def loop() -> Loop:
    stop = FloorDiv(kv_len + BLOCK_KV - 1, BLOCK_KV)
    return Loop("k", (Piece(Integer(0), stop),), lets(), reductions())


def body() -> tuple[Stmt, ...]:
    return (
        Let("q_first", Formula(BLOCK_Q * Q_BLOCK), (), "i32"),
        Let("q_tile", Load("q", (b, q_idx, D_IDX), q_idx < q_len), ("q", "d"), "element"),
        loop(),
        Store("out", (b, q_idx), "l", q_idx < q_len),
    )


def kernel(stmts: tuple[Stmt, ...] | None = None) -> Kernel:
    """Sum of exp(s - max) over visible keys, streamed."""
    d = Integer(16)
    return Kernel(
        "row_sum",
        (
            Axis("q", "rows", q_len, BLOCK_Q, q_idx, Q_FIRST),
            Axis("k", "columns", kv_len, BLOCK_KV, kv_idx, KV_FIRST),
            Axis("d", "feature", d, d, D_IDX, Integer(0)),
        ),
        (GridDim(Q_BLOCK, FloorDiv(q_len + BLOCK_Q - 1, BLOCK_Q)), GridDim(b, BATCH)),
        (
            Buffer("q", ("b", "q", "d"), (BATCH, q_len, d), "element", "input", "queries"),
            Buffer("k", ("b", "k", "d"), (BATCH, kv_len, d), "element", "input", "keys"),
            Buffer("out", ("b", "q"), (BATCH, q_len), "f32", "output", "sums"),
        ),
        (Scalar("q_len", "i32", "queries"), Scalar("kv_len", "i32", "keys")),
        body() if stmts is None else stmts,
    )


def with_loop(**changes: object) -> Kernel:
    """The kernel with its loop changed."""
    first, second, old_loop, last = body()
    return kernel((first, second, replace(old_loop, **changes), last))  # type: ignore[arg-type]
