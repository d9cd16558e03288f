"""The naive program is the textbook's: loops for the maximum, the sum and the weighted sum."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Integer

from attnc import symbols
from attnc.graph.forward import build_dataflow
from attnc.ir.interface import Schedule
from attnc.ir.levels import Level
from attnc.ir.nodes import BLOCK_KV, BLOCK_Q, Kernel, Let, Loop, Piece, Program, Store
from attnc.ir.verifier import verify
from attnc.plan.loops import plan_program
from attnc.plan.schedule import default_schedules
from attnc.spec import parse_spec
from attnc.symbols import FloorDiv
from attnc.verify.interpreter import run


def planned(body: str = "mask: causal") -> Program:
    head = {
        "name": "sample",
        "heads": "{q: 4, kv: 2}",
        "head_dim": "{qk: 16, v: 24}",
        "outputs": "[lse]",
    }
    lines = [f"{key}: {value}" for key, value in head.items() if f"{key}:" not in body]
    program = plan_program(build_dataflow(parse_spec("\n".join([*lines, body]) + "\n")))
    verify(program, Level.NAIVE)
    return program


def kernel_of(body: str = "mask: causal") -> Kernel:
    (kernel,) = planned(body).kernels
    return kernel


def loops(kernel: Kernel) -> list[Loop]:
    return [stmt for stmt in kernel.body if isinstance(stmt, Loop)]


def test_three_loops_over_all_keys() -> None:
    found = loops(kernel_of())
    reductions = [(r.name, r.kind, r.over) for loop in found for r in loop.reductions]
    assert reductions == [("row_max", "max", "k"), ("row_sum", "sum", "k"), ("acc", "sum", "k")]
    everything = Piece(Integer(0), FloorDiv(symbols.kv_len + BLOCK_KV - 1, BLOCK_KV))
    assert all(loop.pieces == (everything,) for loop in found)


def test_a_reduction_sees_the_mask_and_the_end_of_the_keys() -> None:
    for loop in loops(kernel_of("mask: sliding_window(5)")):
        (reduction,) = loop.reductions
        text = str(reduction.where)
        assert "kv_idx < kv_len" in text and "q_pos - 5 < kv_idx" in text
        assert reduction.note == "mask: sliding_window(5)"


def test_a_loop_loads_only_what_its_reduction_needs() -> None:
    loaded = [
        {let.name for let in loop.body if let.name.endswith("_tile")} for loop in loops(kernel_of())
    ]
    assert loaded == [{"k_tile"}, {"k_tile"}, {"k_tile", "v_tile"}]


def test_one_linear_grid_over_query_tile_head_and_batch_entry() -> None:
    kernel = kernel_of()
    assert [str(dim.index) for dim in kernel.grid] == ["q_block", "h", "b"]
    assert kernel.grid[0].extent == FloorDiv(symbols.q_len + BLOCK_Q - 1, BLOCK_Q)


def test_what_varies_by_row_or_head_stands_before_the_loops() -> None:
    kernel = kernel_of("score: alibi(score) * log(2 + max(q_pos, 0))\nmask: causal")
    first = next(at for at, stmt in enumerate(kernel.body) if isinstance(stmt, Loop))
    before = [stmt for stmt in kernel.body[:first] if isinstance(stmt, Let)]
    assert {"q_pos", "q_tile", "head_term", "row_term"} <= {let.name for let in before}
    assert all("k" not in let.axes for let in before)


def test_every_output_is_stored_once_within_its_bounds() -> None:
    stores = [stmt for stmt in kernel_of().body if isinstance(stmt, Store)]
    assert [store.buffer for store in stores] == ["out", "lse"]
    assert all("q_idx < q_len" in str(store.guard) for store in stores)
    only_out = [stmt for stmt in kernel_of("outputs: []").body if isinstance(stmt, Store)]
    assert [store.buffer for store in only_out] == ["out"]


@pytest.mark.parametrize(
    ("heads", "read"), [("{q: 4, kv: 2}", "h_kv"), ("{q: 4, kv: 1}", "h_kv"), ("4", "h")]
)
def test_keys_are_read_at_the_head_that_the_group_shares(heads: str, read: str) -> None:
    (key,) = {
        let.value.index[1]
        for loop in loops(kernel_of(f"heads: {heads}"))
        for let in loop.body
        if let.name == "k_tile"
    }
    assert str(key) == read


def test_a_read_outside_a_tensor_is_guarded_and_one_in_step_is_not() -> None:
    body = "tensors: {w: {shape: [heads, kv_len]}}\nscore: score + w[h, kv_idx] + w[h, kv_idx + 3]"
    lets = {let.name: let for let in loops(kernel_of(body))[0].body}
    guards = {
        name: str(let.value.guard)
        for name, let in lets.items()
        if name.startswith("w_") and hasattr(let.value, "guard")
    }
    assert len(guards) == 2
    assert any(guard == "kv_idx < kv_len" for guard in guards.values())


@pytest.mark.parametrize(
    ("asked", "width"),
    [("", 128), ("schedule: {piece: 16}", 16), ("schedule: {piece: [64, 32]}", 64)],
)
def test_the_widest_piece_of_a_head_dim_is_the_specs(asked: str, width: int) -> None:
    features = [axis for axis in kernel_of(asked).axes if axis.role == "feature"]
    assert [axis.piece for axis in features] == [width, width]


def test_the_schedule_table_is_the_rules() -> None:
    assert planned().interface.schedules == default_schedules(16, 24)


def test_a_schedule_of_the_spec_overrides_field_by_field() -> None:
    asked = planned("schedule: {block_q: [64, 32], warps: 2, piece: 16}").interface.schedules
    for usual, row in zip(default_schedules(16, 24), asked, strict=True):
        expected = Schedule(64, usual.schedule.block_kv, 2, usual.schedule.stages)
        assert (row.device, row.element_bytes, row.schedule) == (
            usual.device,
            usual.element_bytes,
            expected,
        )


@pytest.mark.parametrize(
    "body", ["mask: causal", "heads: 4\nscore: softcap(score, 3)\nmask: window(2, 1)"]
)
def test_the_naive_program_computes_attention(body: str) -> None:
    draw = np.random.default_rng(0)
    heads_kv = 4 if "heads: 4" in body else 2
    q, k, v = (
        draw.normal(size=(1, h, n, d))
        for h, n, d in ((4, 7, 16), (heads_kv, 19, 16), (heads_kv, 19, 24))
    )
    result = run(planned(body), {"q": q, "k": k, "v": v}, {"scale": 0.3})
    scores = 0.3 * q @ np.repeat(k, 4 // heads_kv, 1).swapaxes(2, 3)
    i, j = np.arange(7)[:, None] + 12, np.arange(19)
    if "softcap" in body:
        scores, visible = 3 * np.tanh(scores / 3), (i - 2 <= j) & (j <= i + 1)
    else:
        visible = j <= i
    weights = np.where(visible, np.exp(scores), 0.0)
    expected = weights @ np.repeat(v, 4 // heads_kv, 1) / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(result["out"], expected, rtol=1e-12)
    np.testing.assert_allclose(result["lse"], np.log(weights.sum(-1)), rtol=1e-12)
