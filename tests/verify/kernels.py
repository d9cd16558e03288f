"""Small attention programs written by hand, so that the judges are tested without the compiler.

Causal attention with grouped heads: two levels of the same meaning.
"""

from __future__ import annotations

from dataclasses import replace

import sympy
from sympy import Abs, And, Float, Integer, Lt, Max, Min, Symbol, exp, log, oo, true
from sympy.logic.boolalg import Boolean

from attnc.ir.functions import Anchor, Clamp, Exp2, InverseOrZero, new, old, tile_symbol
from attnc.ir.interface import Interface, ParamArgument, Schedule, ScheduleRow, TensorArgument
from attnc.ir.nodes import (
    BLOCK_KV,
    BLOCK_Q,
    Axis,
    Buffer,
    Collapse,
    Contract,
    Dot,
    Fill,
    Formula,
    GridDim,
    Kernel,
    Let,
    Level,
    Load,
    Loop,
    Piece,
    Program,
    Reduce,
    Scalar,
    Start,
    Store,
    Update,
)
from attnc.spec.schema import AttentionSpec, Param, Sizes
from attnc.symbols import FloorDiv, Where, b, h, h_kv, kv_idx, kv_len, q_idx, q_len, q_pos
from attnc.symbols import score as s

HEADS, KV_HEADS, WIDTH = 4, 2, 16
BATCH = Symbol("batch", integer=True, nonnegative=True)
HEADS_Q = Symbol("heads", integer=True, nonnegative=True)
HEADS_KV = Symbol("kv_heads", integer=True, nonnegative=True)
Q_TILE = Symbol("q_tile", integer=True, nonnegative=True)
Q_FIRST = Symbol("q_first", integer=True, nonnegative=True)
KV_FIRST = Symbol("kv_first", integer=True, nonnegative=True)
D_IDX = Symbol("d_idx", integer=True, nonnegative=True)
E_IDX = Symbol("e_idx", integer=True, nonnegative=True)
SCALE = Symbol("scale", real=True)
CAUSAL = kv_idx <= q_pos
LOG2E = 1 / sympy.log(2)


def real(name: str) -> Symbol:
    return tile_symbol(name)


def whole(name: str) -> Symbol:
    return tile_symbol(name, "i32")


def attention_spec(
    mask: Boolean = CAUSAL, params: tuple[ParamArgument, ...] = (), score: sympy.Expr | None = None
) -> AttentionSpec:
    """The spec that the hand-written programs implement."""
    return AttentionSpec(
        name="by_hand",
        doc="",
        heads_q=HEADS,
        heads_kv=KV_HEADS,
        head_dim_qk=WIDTH,
        head_dim_v=WIDTH,
        dtype="fp16",
        layout="bhsd",
        scale=Integer(1) / 4,
        score=s if score is None else score,
        mask=mask,
        scale_text="1/sqrt(d)",
        score_text="score",
        mask_text=str(mask),
        outputs=("lse",),
        fp32_dot="ieee",
        backward=False,
        params=tuple(Param(p.name, p.kind, p.default) for p in params),
        tensors=(),
        dropout=False,
        head_gate=False,
        sizes=Sizes(),
        schedule=None,
        check=(),
        fixes_heads=False,
        text="",
        path="by_hand.yaml",
    )


def interface(
    mask: Boolean, params: tuple[ParamArgument, ...] = (), tensors: tuple[TensorArgument, ...] = ()
) -> Interface:
    row = ScheduleRow("sm_90", 2, "attention_forward", Schedule(32, 16, 4, 2))
    return Interface(
        "by_hand", "", "", "by_hand.yaml", "bhsd", HEADS, KV_HEADS, False, WIDTH, WIDTH, "fp16",
        "ieee", Integer(1) / 4, s, mask, params, tensors, ("lse",), False, False, False,
        (), (), (), (row,),
    )  # fmt: skip


def frame(body: tuple, scalars: tuple[Scalar, ...] = ()) -> Kernel:
    axes = (
        Axis("q", "rows", q_len, BLOCK_Q, q_idx, Q_FIRST),
        Axis("k", "columns", kv_len, BLOCK_KV, kv_idx, KV_FIRST),
        Axis("d", "feature", Integer(WIDTH), Integer(WIDTH), D_IDX, Integer(0)),
        Axis("e", "feature", Integer(WIDTH), Integer(WIDTH), E_IDX, Integer(0)),
    )
    buffers = (
        Buffer(
            "q",
            ("b", "h", "q", "d"),
            (BATCH, HEADS_Q, q_len, Integer(WIDTH)),
            "element",
            "input",
            "",
        ),
        Buffer(
            "k",
            ("b", "h", "k", "d"),
            (BATCH, HEADS_KV, kv_len, Integer(WIDTH)),
            "element",
            "input",
            "",
        ),
        Buffer(
            "v",
            ("b", "h", "k", "e"),
            (BATCH, HEADS_KV, kv_len, Integer(WIDTH)),
            "element",
            "input",
            "",
        ),
        Buffer(
            "out",
            ("b", "h", "q", "e"),
            (BATCH, HEADS_Q, q_len, Integer(WIDTH)),
            "element",
            "output",
            "",
        ),
        Buffer("lse", ("b", "h", "q"), (BATCH, HEADS_Q, q_len), "f32", "output", ""),
    )
    grid = (
        GridDim(Q_TILE, FloorDiv(q_len + BLOCK_Q - 1, BLOCK_Q)),
        GridDim(h, HEADS_Q),
        GridDim(b, BATCH),
    )
    return Kernel(
        "attention_forward", axes, grid, buffers, (Scalar("scale", "f32", ""), *scalars), body
    )


ROWS = Lt(q_idx, q_len)
KEYS = Lt(kv_idx, kv_len)
HEAD = (
    Let("h_kv", Formula(FloorDiv(h, HEADS // KV_HEADS)), (), "i32"),
    Let("q_first", Formula(Q_TILE * BLOCK_Q), (), "i32"),
    Let("q_tile_values", Load("q", (b, h, q_idx, D_IDX), ROWS), ("q", "d"), "element"),
)
LOAD_K = Let("k_tile", Load("k", (b, h_kv, kv_idx, D_IDX), KEYS), ("k", "d"), "element")
LOAD_V = Let("v_tile", Load("v", (b, h_kv, kv_idx, E_IDX), KEYS), ("k", "e"), "element")
STORES = (
    Store("out", (b, h, q_idx, E_IDX), "out_value", ROWS),
    Store("lse", (b, h, q_idx), "lse_value", ROWS),
)


def naive(mask: Boolean = CAUSAL) -> Program:
    """Three loops over all keys: maximum, sum, weighted sum."""
    t, m, total, p = real("t"), real("m"), real("l"), exp(real("t") - real("m"))
    scores = (
        LOAD_K,
        Let("dots", Contract("q_tile_values", "k_tile", ("d",)), ("q", "k")),
        Let("t", Formula(real("dots") * SCALE), ("q", "k")),
    )
    everything = (Piece(Integer(0), FloorDiv(kv_len + BLOCK_KV - 1, BLOCK_KV)),)

    def loop(body: tuple[Let, ...], *reductions: Reduce) -> Loop:
        return Loop("k", everything, body, reductions)

    body = (
        *HEAD,
        loop(scores, Reduce("m", "max", "k", t, ("q",), -oo, mask)),
        loop(scores, Reduce("l", "sum", "k", p, ("q",), Integer(0), mask)),
        loop(
            (*scores, LOAD_V),
            Reduce("acc", "sum", "k", p * real("v_tile"), ("q", "e"), Integer(0), mask),
        ),
        Let("out_value", Formula(real("acc") * InverseOrZero(total)), ("q", "e"), "element"),
        Let("lse_value", Formula(m + log(total)), ("q",)),
        *STORES,
    )
    return Program(interface(mask), (frame(body),), Level.NAIVE)


def streamed(mask: Boolean = CAUSAL) -> Program:
    """One loop; sums follow the running maximum."""
    t, m, p = real("t"), real("m"), exp(real("t") - real("m"))
    scores = (
        LOAD_K,
        LOAD_V,
        Let("dots", Contract("q_tile_values", "k_tile", ("d",)), ("q", "k")),
        Let("t", Formula(real("dots") * SCALE), ("q", "k")),
    )
    move = exp(old("m") - new("m"))
    reductions = (
        Reduce("m", "max", "k", t, ("q",), -oo, mask),
        Reduce("l", "sum", "k", p, ("q",), Integer(0), mask, "m", real("l") * move),
        Reduce(
            "acc",
            "sum",
            "k",
            p * real("v_tile"),
            ("q", "e"),
            Integer(0),
            mask,
            "m",
            real("acc") * move,
        ),
    )
    everything = (Piece(Integer(0), FloorDiv(kv_len + BLOCK_KV - 1, BLOCK_KV)),)
    body = (
        *HEAD,
        Loop("k", everything, scores, reductions),
        Let("out_value", Formula(real("acc") * InverseOrZero(real("l"))), ("q", "e"), "element"),
        Let("lse_value", Formula(m + log(real("l"))), ("q",)),
        *STORES,
    )
    return Program(interface(mask), (frame(body),), Level.STREAMED)


def ready_body(masked: bool, mask: Boolean) -> tuple[Let, ...]:
    """The body of a READY loop, with the select when `masked`."""
    score = "signed"
    select: tuple[Let, ...] = ()
    key_guard = And(KEYS, kv_idx < whole("key_stop")) if masked else true
    if masked:
        score = "score_visible"
        select = (
            Let("visible", Formula(mask), ("q", "k"), "i1"),
            Let(score, Formula(Where(Symbol("visible"), real("signed"), -oo)), ("q", "k")),
        )
    factor, anchor = real("factor"), real("anchor")
    return (
        Let("k_tile", Load("k", (b, h_kv, kv_idx, D_IDX), key_guard), ("k", "d"), "element"),
        Let("v_tile", Load("v", (b, h_kv, kv_idx, E_IDX), key_guard), ("k", "e"), "element"),
        Let("dots", Dot("q_tile_values", "k_tile", "d"), ("q", "k")),
        Let("signed", Formula(real("dots") * real("scale_sign")), ("q", "k")),
        *select,
        Let("tile_max", Collapse("max", score, "k"), ("q",)),
        Let("row_max_new", Formula(Max(real("row_max"), real("tile_max") * factor)), ("q",)),
        Let("anchor", Formula(Anchor(real("row_max_new"))), ("q",)),
        Let("p", Formula(Exp2(real(score) * factor - anchor)), ("q", "k")),
        Let("rescale", Formula(Exp2(real("row_max") - anchor)), ("q",)),
        Let("tile_sum", Collapse("sum", "p", "k"), ("q",)),
        Let("row_sum_new", Formula(real("row_sum") * real("rescale") + real("tile_sum")), ("q",)),
        Let("acc_scaled", Formula(real("acc") * real("rescale")), ("q", "e")),
        Let("acc_new", Dot("p", "v_tile", "k", "acc_scaled"), ("q", "e")),
    )


UPDATES = (
    Update("row_max", "row_max_new"),
    Update("row_sum", "row_sum_new"),
    Update("acc", "acc_new"),
)


def scalar(name: str, expr: sympy.Expr) -> Let:
    return Let(name, Formula(expr), (), "i32")


def ready() -> Program:
    """Causal attention as the passes leave it: unmasked tiles, then masked ones."""
    key_stop = whole("key_stop")
    body = (
        *HEAD,
        scalar("q_last", Min(whole("q_first") + BLOCK_Q, q_len) - 1),
        scalar("key_stop", Clamp(whole("q_last") + kv_len - q_len + 1, 0, kv_len)),
        scalar("kv_stop", FloorDiv(key_stop + BLOCK_KV - 1, BLOCK_KV)),
        scalar(
            "all_stop", FloorDiv(Clamp(whole("q_first") + kv_len - q_len + 1, 0, kv_len), BLOCK_KV)
        ),
        Let("factor", Formula(Max(Abs(SCALE) * LOG2E, Float("2e-38"))), ()),
        Start("row_max", Fill(-oo), ("q",)),
        Start("row_sum", Fill(Integer(0)), ("q",)),
        Start("acc", Fill(Integer(0)), ("q", "e")),
        Loop(
            "k",
            (Piece(Integer(0), whole("all_stop"), False),),
            ready_body(False, true),
            (),
            UPDATES,
        ),
        Loop(
            "k",
            (Piece(whole("all_stop"), whole("kv_stop")),),
            ready_body(True, CAUSAL),
            (),
            UPDATES,
        ),
        Let(
            "out_value",
            Formula(real("acc") * InverseOrZero(real("row_sum"))),
            ("q", "e"),
            "element",
        ),
        Let(
            "lse_value", Formula((real("row_max") + log(real("row_sum")) / log(2)) * log(2)), ("q",)
        ),
        *STORES,
    )
    sign = Scalar("scale_sign", "sign", "sign of scale")
    return Program(interface(CAUSAL), (frame(body, (sign,)),), Level.READY)


def within_tiles(slack: int = 0) -> Program:
    """The ready program, its keys compared within their tile, with `slack` keys too many."""
    program = ready()
    (kernel,) = program.kernels
    columns = kernel.axis("k")
    bound = columns.within < whole("key_stop") + slack - columns.first

    def loads(let: Let) -> Let:
        masked = isinstance(let.value, Load) and let.value.guard != true
        return replace(let, value=replace(let.value, guard=bound)) if masked else let

    body = tuple(
        replace(stmt, body=tuple(map(loads, stmt.body))) if isinstance(stmt, Loop) else stmt
        for stmt in kernel.body
    )
    return replace(program, kernels=(replace(kernel, body=body),))


__all__ = ["attention_spec", "naive", "ready", "streamed", "within_tiles"]
