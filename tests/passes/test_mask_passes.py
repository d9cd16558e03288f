"""The mask passes keep what a kernel means, hidden NaNs included, and say what they should."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import And, Eq, Integer, Ne, Or, Symbol, true
from sympy.logic.boolalg import Boolean

from attnc.ir.nodes import Buffer, Formula, Kernel, Let, Level, Load, Piece, Program
from attnc.ir.verifier import verify
from attnc.passes.bound_tiles import BoundTiles
from attnc.passes.drop_implied_bounds import DropImpliedBounds
from attnc.passes.lower_reductions import LowerReductions
from attnc.passes.split_phases import SplitPhases
from attnc.symbols import FloorMod, b, h, kv_idx, kv_len, q_idx, q_pos
from attnc.verify.interpreter import run
from tests.passes.masks import BATCH, HEADS, WIDTH, Case, kernel_with, loops_of, pairs
from tests.passes.test_bound_tiles import BLOCKS, CAUSAL, SOLVED, sliding
from tests.passes.test_random_masks import masks
from tests.verify.kernels import interface

PASSES = (BoundTiles(), SplitPhases(), DropImpliedBounds())
PARAMS = ("w", "n", "chunk")


def program(kernel: Kernel, level: Level) -> Program:
    verify(kernel, level)
    return Program(interface(true), (kernel,), level)


def tensors(case: Case, seed: int, heads: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = {"q": case.q_len, "k": case.kv_len, "v": case.kv_len}
    return {name: rng.normal(size=(1, heads, length, WIDTH)) for name, length in lengths.items()}


def outputs(found: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return found["acc_out"], found["sum_out"]


def check(mask: Boolean, case: Case, seed: int) -> None:
    kernel = kernel_with(mask, params=PARAMS)
    inputs, params = tensors(case, seed), dict(case.values)
    schedule = (case.block_q, case.block_kv)
    expected = outputs(run(program(kernel, Level.STREAMED), inputs, params, schedule))
    for step in PASSES:
        kernel = step.run(kernel)
        found = outputs(run(program(kernel, Level.STREAMED), inputs, params, schedule))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12, err_msg=step.name)
    ready = program(LowerReductions().run(kernel), Level.READY)
    clean = outputs(run(ready, inputs, params, schedule))
    for one, other in zip(clean, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
    check_hidden_keys(ready, mask, case, inputs, clean)


def check_hidden_keys(
    ready: Program,
    mask: Boolean,
    case: Case,
    inputs: dict[str, np.ndarray],
    clean: tuple[np.ndarray, np.ndarray],
) -> None:
    """Keys hidden from every query of a tile never matter to it, bit for bit, not even NaNs."""
    dense = pairs(mask, case)
    for first in range(0, case.q_len, case.block_q):
        rows = slice(first, first + case.block_q)
        poisoned = {name: tensor.copy() for name, tensor in inputs.items()}
        for name in ("k", "v"):
            poisoned[name][:, :, ~dense[rows].any(axis=0)] = np.nan
        found = outputs(run(ready, poisoned, dict(case.values), (case.block_q, case.block_kv)))
        for one, other in zip(found, clean, strict=True):
            np.testing.assert_array_equal(one[:, :, rows], other[:, :, rows])


@pytest.mark.parametrize("name", [*BLOCKS, *SOLVED])
@pytest.mark.parametrize(("q", "k"), [(40, 70), (35, 18)])
def test_passes_keep_the_meaning(name: str, q: int, k: int) -> None:
    if k < q and name in SOLVED:
        q, k = 1, 40  # a decoding step
    values = tuple(zip(PARAMS, (20, 9, 24), strict=True))
    check((BLOCKS | SOLVED)[name], Case(q, k, 16, 16, values), seed=q)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(masks, st.integers(0, 40), st.integers(0, 60), st.integers(-9, 30), st.integers(-9, 30))
def test_passes_keep_the_meaning_of_random_masks(
    mask: Boolean, q: int, k: int, w: int, n: int
) -> None:
    check(mask, Case(q, k, 16, 16, (("w", w), ("n", n), ("chunk", 1))), seed=q)


# ---------------------------------------------------------------- what the passes say


def conditions(mask: Boolean) -> list[Boolean]:
    kernel = kernel_with(mask, params=PARAMS)
    for step in PASSES:
        kernel = step.run(kernel)
    return [loop.reductions[0].where for loop in loops_of(kernel)]


def test_the_unmasked_loop_comes_first_and_asks_nothing() -> None:
    kernel = SplitPhases().run(BoundTiles().run(kernel_with(CAUSAL)))
    first, second = loops_of(kernel)
    assert not any(piece.masked for piece in first.pieces)
    assert all(piece.masked for piece in second.pieces)
    assert all(reduction.where == true for reduction in first.reductions)
    assert all(let.value.guard == true for let in first.body if isinstance(let.value, Load))
    assert all(reduction.init is not None for reduction in first.reductions)
    assert all(reduction.init is None for reduction in second.reductions)


def test_a_mask_without_whole_tiles_has_one_loop() -> None:
    kernel = BoundTiles().run(kernel_with(And(CAUSAL, Eq(FloorMod(kv_idx, 3), 0))))
    assert SplitPhases().run(kernel) == kernel
    assert len(loops_of(kernel)) == 1


def test_nothing_visible_visits_nothing() -> None:
    (loop,) = loops_of(BoundTiles().run(kernel_with(SOLVED["nothing"])))
    assert loop.pieces == (Piece(Integer(0), Integer(0)),)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (CAUSAL, CAUSAL),
        (sliding(20), sliding(20)),
        (And(CAUSAL, Ne(h, 1)), CAUSAL),
        (true, kv_idx < kv_len),
        (kv_idx <= q_idx, And(kv_idx <= q_idx, kv_idx < kv_len)),
        (Or(CAUSAL, kv_idx < 9), And(Or(CAUSAL, kv_idx < 9), kv_idx < kv_len)),
    ],
)
def test_what_is_left_of_the_mask(mask: Boolean, expected: Boolean) -> None:
    assert conditions(mask)[-1] == expected


def test_guards_of_other_dimensions_stay() -> None:
    bias = Buffer("bias", ("h", "k"), (HEADS, Integer(50)), "f32", "input", "")
    inside = Load("bias", (h, kv_idx), And(kv_idx < kv_len, kv_idx < 50))
    kernel = kernel_with(CAUSAL, inside=(Let("bias_tile", inside, ("k",)),), buffers=(bias,))
    bounded = BoundTiles().run(kernel)
    (loop,) = loops_of(bounded)
    kv_hi = Symbol("kv_hi", integer=True)
    assert loop.body[0].value == replace(inside, guard=And(kv_idx < kv_hi, kv_idx < 50))


def test_document_ids_are_read_before_the_columns_are_tested() -> None:
    ids = Buffer("ids", ("b", "k"), (BATCH, kv_len), "i32", "input", "")
    row = Let("q_ids", Load("ids", (b, q_pos), q_pos >= 0), ("q",), "i32")
    column = Let("k_ids", Load("ids", (b, kv_idx), kv_idx < kv_len), ("k",), "i32")
    mask = And(Eq(Symbol("q_ids", integer=True), Symbol("k_ids", integer=True)), CAUSAL)
    kernel = kernel_with(mask, outside=(row,), inside=(column,), buffers=(ids,))
    bounded = BoundTiles().run(kernel)
    verify(bounded, Level.STREAMED)
    (loop,) = loops_of(bounded)
    assert [let.name for let in loop.body][:3] == ["k_ids", "visible", "seen"]
    guards = {let.name: let.value.guard for let in loop.body if isinstance(let.value, Load)}
    seen = Symbol("seen")
    assert seen in guards["v_tile"].args
    assert not guards["k_tile"].has(seen)
    assert {reduction.where for reduction in loop.reductions} == {Symbol("visible")}


def test_scalar_reads_stay_names() -> None:
    width = Let("width", Load("widths", (h,)), (), "i32")
    widths = Buffer("widths", ("h",), (HEADS,), "i32", "input", "")
    mask = sliding(Symbol("width", integer=True))
    bounded = BoundTiles().run(kernel_with(mask, outside=(width,), buffers=(widths,)))
    verify(bounded, Level.STREAMED)
    (kv_lo,) = [s for s in bounded.body if isinstance(s, Let) and s.name == "kv_lo"]
    assert isinstance(kv_lo.value, Formula)
    assert Symbol("width", integer=True) in kv_lo.value.expr.free_symbols
    assert not any(let.name == "seen" for loop in loops_of(bounded) for let in loop.body)


def test_names_of_the_user_are_left_alone() -> None:
    mask = kv_idx < Symbol("tile_hi", integer=True)
    bounded = BoundTiles().run(kernel_with(mask, params=("tile_hi", "kv_hi")))
    verify(bounded, Level.STREAMED)
    names = [s.name for s in bounded.body if isinstance(s, Let)]
    assert "tile_hi" not in names
    assert "kv_hi" not in names


@pytest.mark.parametrize(
    "name", ["causal", "sliding_100", "longformer", "chunked", "global_tokens"]
)
def test_bounding_is_fast(name: str) -> None:
    kernel = kernel_with(BLOCKS[name])

    def seconds() -> float:
        start = time.process_time()
        for step in PASSES:
            step.run(kernel)
        return time.process_time() - start

    seconds()
    assert median(seconds() for _ in range(5)) < 0.1
