"""Tile bounds: judged against the dense mask for many masks, sizes and tile shapes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sympy import Abs, And, Eq, Max, Min, Ne, Not, Or, Symbol, true
from sympy.logic.boolalg import Boolean

from attnc.passes.bound_tiles import BoundTiles
from attnc.symbols import FloorDiv, FloorMod, Read, Where, h, kv_idx, q_idx, q_len, q_pos
from tests.passes.judge_bounds import Score, judge, judge_exchanged
from tests.passes.masks import Case, kernel_over_queries, kernel_with, loops_of

w, n, chunk = (Symbol(name, integer=True) for name in ("w", "n", "chunk"))
ids = Symbol("ids", integer=True)
CAUSAL = kv_idx <= q_pos


def window(left: object, right: object) -> Boolean:
    return And(q_pos - left <= kv_idx, kv_idx <= q_pos + right)


def sliding(width: object) -> Boolean:
    return And(q_pos - width < kv_idx, kv_idx <= q_pos)


def documents() -> Boolean:
    b = Symbol("b", integer=True, nonnegative=True)
    return And(Eq(Read(ids, b, q_pos), Read(ids, b, kv_idx)), q_pos >= 0)


def dilated(count: int, step: int) -> Boolean:
    return And(Abs(q_pos - kv_idx) < count * step, Eq(FloorMod(q_pos - kv_idx, step), 0))


# Every building block of the contract and every mask that the specs use: bounds must be exact.
BLOCKS: dict[str, Boolean] = {
    "full": true,
    "causal": CAUSAL,
    "causal_top_left": kv_idx <= q_idx,
    "window_left_inf": kv_idx <= q_pos + 5,
    "window_right_inf": q_pos - 5 <= kv_idx,
    "window_both": window(20, 7),
    "window_wide": window(70, 64),
    "window_ahead": window(-3, 9),
    "window_behind": window(30, -9),
    "window_empty": window(3, -4),
    "sliding_1": sliding(1),
    "sliding_20": sliding(20),
    "sliding_100": sliding(100),
    "prefix": kv_idx < 21,
    "prefix_lm": Or(CAUSAL, kv_idx < 21),
    "global_tokens": Or(kv_idx < 10, q_pos < 10),
    "longformer": Or(window(20, 20), kv_idx < 21),
    "longformer_wide": Or(window(70, 70), kv_idx < 40),
    "longformer_both": Or(window(40, 40), kv_idx < 21, q_pos < 21),
    "etc_causal": And(CAUSAL, Or(sliding(33), kv_idx < 19)),
    "etc_top": Or(window(30, 30), kv_idx < 5, q_idx < 5),
    "chunked": And(CAUSAL, Eq(FloorDiv(kv_idx, 24), FloorDiv(q_pos, 24))),
    "chunked_both_ways": Eq(FloorDiv(kv_idx, 24), FloorDiv(q_pos, 24)),
    "dilated": dilated(4, 5),
    "dilated_causal": And(CAUSAL, dilated(6, 3)),
    "modulo": And(CAUSAL, Eq(FloorMod(q_pos - kv_idx, 5), 0)),
    "per_head_window": sliding(Where(h < 2, 20, 50)),
    "per_head_full": Or(h < 2, sliding(20)),
    "head_gate": And(CAUSAL, Ne(h, 1)),
}
# Further masks that the algebra solves exactly.
SOLVED: dict[str, Boolean] = {
    "sliding_param": sliding(w),
    "window_params": window(w, n),
    "prefix_param": Or(CAUSAL, kv_idx < w),
    "global_params": Or(window(w, w), kv_idx < n, q_pos < n),
    "abs": Abs(q_pos - kv_idx) <= 20,
    "not_far": Not(Abs(q_pos - kv_idx) > 20),
    "not_window_or_far": Not(Or(q_pos - kv_idx > 20, kv_idx > q_pos)),
    "twice": 2 * kv_idx <= q_pos,
    "twice_window": And(2 * kv_idx <= q_pos, 2 * kv_idx >= q_pos - 30),
    "half": FloorDiv(kv_idx, 2) <= q_idx,
    "row_above": And(CAUSAL, q_pos >= 17),
    "row_below": And(CAUSAL, q_idx < 17),
    "row_between": And(sliding(20), q_idx >= 5, q_idx < 37),
    "antidiagonal": kv_idx + q_idx >= 30,
    "antidiagonal_band": And(kv_idx + q_idx >= 30, kv_idx + q_idx <= 50),
    "min": kv_idx <= Min(q_pos, 40),
    "max": kv_idx <= Max(q_pos, 40),
    "half_condition": 2 * kv_idx < q_len + 7,
    "chunk_of_rows": kv_idx < 16 * FloorDiv(q_idx, 16) + 16,
    "block_causal": FloorDiv(kv_idx, 12) <= FloorDiv(q_pos, 12),
    "far_bands": Or(window(60, -40), window(8, 0)),
    "far_bands_params": Or(window(w, 5 - w), window(n, 9 - n)),
    "chunk_param": And(CAUSAL, Eq(FloorDiv(kv_idx, chunk), FloorDiv(q_pos, chunk))),
    "nothing": And(kv_idx < 3, kv_idx > 5),
    "where_window": q_pos - kv_idx < Where(Eq(FloorMod(h, 2), 0), 10, 40),
    "two_chunks": And(CAUSAL, FloorDiv(q_pos, 16) - FloorDiv(kv_idx, 16) <= 1),
}
# Sound, not exact: what is visited may be more than what is needed.
OPAQUE: dict[str, Boolean] = {
    "documents": documents(),
    "documents_causal": And(documents(), CAUSAL),
    "kv_modulo": And(CAUSAL, Eq(FloorMod(kv_idx, 5), 0)),
    "window_or_modulo": And(CAUSAL, Or(sliding(20), Eq(FloorMod(kv_idx, 4), 3))),
    "product": q_idx * kv_idx < 900,
    "row_modulo": And(CAUSAL, Eq(FloorMod(q_idx, 2), 1)),
    "row_and_prefix": Or(And(q_idx < 21, kv_idx < 40), sliding(20)),
    "where_rows": q_pos - kv_idx < Where(q_idx < 20, 10, 30),
    "where_keys": And(CAUSAL, q_pos - kv_idx < Where(kv_idx < 20, 100, 20)),
    "not_equal": Ne(kv_idx, q_pos),
    "hole": And(CAUSAL, Or(kv_idx < 5, q_pos - kv_idx > 20)),
    "four": And(Or(kv_idx < 9, sliding(9)), Or(kv_idx < 30, q_pos - kv_idx < 50)),
    "remainder_edge": kv_idx <= q_idx + FloorMod(q_idx, 7),
    "real_edge": kv_idx * 3 < q_pos * 2 + 1,
    "steep": And(kv_idx >= 40 * q_idx, kv_idx < 40 * q_idx + 3),
    "nested_floor": FloorDiv(kv_idx + Min(q_idx, 9), 3) <= q_idx,
    "float_edge": kv_idx * 0.37 < q_idx,
    "many": Or(*(window(10 * i + 1, -10 * i) for i in range(6))),
}
SIZES = [
    (1, 1), (1, 50), (50, 1), (0, 5), (5, 0), (16, 16), (17, 33), (64, 64), (33, 17),
    (40, 100), (100, 40), (65, 129), (90, 90),
]  # fmt: skip
TILES = [(16, 16), (32, 16), (16, 32), (1, 16), (24, 8)]
PARAMS = [(20, 9, 24), (0, 0, 1), (-5, 40, 7), (70, 3, 16), (3, -8, 100)]


def cases(mask: Boolean) -> list[Case]:
    names = {str(symbol) for symbol in mask.free_symbols}
    choices = PARAMS if names & {"w", "n", "chunk"} else PARAMS[:1]
    heads = (0, 1, 3) if "h" in names else (0,)
    rng = np.random.default_rng(0)
    found = []
    for (q, k), (block_q, block_kv), params, head in product(SIZES, TILES, choices, heads):
        values = [*zip(("w", "n", "chunk"), params, strict=True), ("h", head)]
        table = np.sort(rng.integers(0, 4, size=(1, max(k, q) + 1)), axis=1)
        values.append(("ids", table))
        found.append(Case(q, k, block_q, block_kv, tuple(values)))
    return found


def total(mask: Boolean, least_rows: int = 1) -> Score:
    kernel = BoundTiles().run(kernel_with(mask))
    score = Score()
    for case in cases(mask)[::2]:
        if case.block_q >= least_rows:
            score.add(judge(kernel, mask, case))
    return score


@pytest.mark.parametrize("mask", {**BLOCKS, **SOLVED}.values(), ids=[*BLOCKS, *SOLVED])
def test_bounds_are_exact(mask: Boolean) -> None:
    # a tile shows every residue of a remainder only if it has as many rows; real tiles have 16
    least_rows = 16 if mask.has(FloorMod) else 1
    score = total(mask, least_rows)
    assert not score.wrong, score.wrong[0]
    assert score.needed > 0 or mask in (BLOCKS["window_empty"], SOLVED["nothing"])
    assert score.visited == score.needed
    assert score.unmasked == score.whole
    assert score.dead_columns == 0


@pytest.mark.parametrize("mask", OPAQUE.values(), ids=OPAQUE)
def test_other_bounds_are_sound(mask: Boolean) -> None:
    score = total(mask)
    assert not score.wrong, score.wrong[0]
    assert score.dead_columns == 0


# Masks that need a column test: the ranges may hold keys that no query of the tile sees.
LOOSE = {
    *("dilated", "dilated_causal", "modulo", "documents", "documents_causal", "kv_modulo"),
    *("window_or_modulo", "product", "row_modulo", "remainder_edge", "steep", "float_edge"),
    *("chunk_param", "many"),  # a negative chunk is opaque; more bands than the algebra keeps
}


@pytest.mark.parametrize("name", [*BLOCKS, *SOLVED, *OPAQUE])
def test_columns_are_tested_only_where_needed(name: str) -> None:
    kernel = BoundTiles().run(kernel_with((BLOCKS | SOLVED | OPAQUE)[name]))
    found = any(let.name == "seen" for loop in loops_of(kernel) for let in loop.body)
    assert found is (name in LOOSE)


@pytest.mark.parametrize("name", [*BLOCKS, *SOLVED, *OPAQUE])
def test_roles_may_be_exchanged(name: str) -> None:
    mask = (BLOCKS | SOLVED | OPAQUE)[name]
    kernel = BoundTiles(inner="q", outer="k").run(kernel_over_queries(mask))
    score = Score()
    for case in cases(mask)[::3]:
        if case.block_q > 1:
            score.add(judge_exchanged(kernel, mask, case))
    assert not score.wrong, score.wrong[0]
    assert score.dead_columns == 0
    # etc_causal: keys before and after the 19th are seen by queries in different ways
    if name in BLOCKS and not mask.has(FloorMod) and name != "etc_causal":
        assert (score.visited, score.unmasked) == (score.needed, score.whole)
