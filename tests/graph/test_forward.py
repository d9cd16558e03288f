"""The dataflow of a spec: named axes, no softmax, equal operations once, kernels by axes."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import pytest
from sympy import Abs, Integer, Ne, Or, exp, true

from attnc import symbols
from attnc.graph import operations
from attnc.graph.forward import build_dataflow
from attnc.graph.kernels import group_results
from attnc.graph.operations import (
    Contract,
    Dataflow,
    Gather,
    Input,
    LogSumExp,
    Map,
    Operation,
    operands_of,
)
from attnc.spec import parse_spec
from attnc.symbols import value_symbol

ROWS = ("b", "g", "r", "q")
SCORES = (*ROWS, "k")
TENSORS = (
    "tensors: {bias: {shape: [heads, q_len, kv_len]}, ids: {shape: [batch, kv_len], dtype: int32},"
    " table: {shape: [heads, 9]}, gain: {shape: [kv_heads]}}\n"
)


def flow_of(body: str) -> Dataflow:
    head = {"name": "sample", "heads": "{q: 4, kv: 2}", "head_dim": "16", "outputs": "[lse]"}
    lines = [f"{key}: {value}" for key, value in head.items() if f"{key}:" not in body]
    return build_dataflow(parse_spec("\n".join([*lines, body]) + "\n"))


def text_of(flow: Dataflow) -> str:
    lines = [f"{name} = {operation}" for name, operation in flow.values.items()]
    kernels = [f"kernel over {' '.join(k.grid)}: {k.phases}" for k in flow.kernels]
    return "\n".join([*lines, f"outputs {dict(flow.outputs)}", *kernels])


def reads(flow: Dataflow, tensor: str) -> list[Operation]:
    return [op for op in flow.values.values() if getattr(op, "tensor", None) == tensor]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("causal", "mask: causal"),
        ("alibi", "score: alibi\nmask: causal"),
        ("gates", "outputs: []\nhead_gate: true"),
    ],
)  # fmt: skip
def test_dataflow(name: str, body: str, golden: Callable[[str], None]) -> None:
    golden(text_of(flow_of(body)))


def test_keys_and_values_lack_the_axis_of_a_group() -> None:
    values = flow_of("mask: causal").values
    assert values["q"].axes == ("b", "g", "r", "q", "d")
    assert values["k"].axes == ("b", "g", "k", "d") and values["v"].axes == ("b", "g", "k", "e")
    assert values["qk"] == Contract(("q", "k"), SCORES)


def test_there_is_no_softmax() -> None:
    assert not [name for name in vars(operations) if "softmax" in name.lower()]
    flow = flow_of("mask: causal")
    visible = symbols.kv_idx <= symbols.q_pos
    assert flow.values["lse"] == LogSumExp(("logits",), "k", ROWS, visible)
    weights = exp(value_symbol("logits") - value_symbol("lse"))
    assert flow.values["p"] == Map(weights, SCORES, visible)
    assert flow.values["out"] == Contract(("p", "v"), (*ROWS, "e"))


def test_equal_operations_are_one_value() -> None:
    flow = flow_of(f"{TENSORS}score: score * gain[h_kv] + bias[h, q_idx, kv_idx] * 2"
                   " + bias[h, q_idx, kv_idx] ** 2"
                   " + table[h, 3] * ids[b, kv_idx]\nmask: ids[b, kv_idx] > 0")  # fmt: skip
    operations_ = list(flow.values.values())
    assert len(operations_) == len(set(operations_))
    assert len(reads(flow, "bias")) == 1 and len(reads(flow, "ids")) == 1


def test_reads_in_step_are_inputs_and_others_gathers() -> None:
    flow = flow_of(
        f"{TENSORS}score: score * gain[h_kv] + bias[h, q_idx, kv_idx]"
        " + bias[h, q_idx, kv_idx - 1] + table[h, 3]\n"
        "mask: documents(ids)"
    )
    in_step, shifted = reads(flow, "bias")
    assert in_step == Input("bias", ("g", "r", "q", "k"), "f32")
    assert isinstance(shifted, Gather) and shifted.axes == ("g", "r", "q", "k")
    assert reads(flow, "gain") == [Input("gain", ("g",), "f32")]
    assert reads(flow, "table") == [Gather("table", (symbols.h, Integer(3)), ("g", "r"), "f32")]
    by_axes = {op.axes: op for op in reads(flow, "ids")}
    assert by_axes[("b", "k")] == Input("ids", ("b", "k"), "i32")
    assert isinstance(by_axes[("b", "q")], Gather)


def test_what_varies_along_fewer_axes_is_a_value_of_its_own() -> None:
    """The slope of ALiBi is one number a head, the logarithm one a row, the factor one a call."""
    flow = flow_of("score: alibi(score)\nmask: causal")
    (slope,) = [op for op in flow.values.values() if isinstance(op, Map) and op.axes == ("g", "r")]
    assert not slope.formula.has(symbols.q_pos, symbols.kv_idx)
    logits = flow.values["logits"]
    assert isinstance(logits, Map) and logits.formula.has(Abs) and not logits.formula.has(symbols.h)
    rows = flow_of("score: score * log(2 + max(q_pos, 0))")
    assert next(op.axes for op in rows.values.values() if isinstance(op, Map)) == ("q",)


def test_whole_positions_are_subtracted_before_they_are_scaled() -> None:
    flow = flow_of("score: score - 0.01 * (q_pos - kv_idx)")
    logits = flow.values["logits"]
    assert isinstance(logits, Map)
    assert flow.values["distance"].axes == ("q", "k")
    assert not logits.formula.has(symbols.q_pos, symbols.kv_idx)


def test_every_index_that_is_no_position_has_a_name() -> None:
    """Only so can a later pass compute it in 64 bits."""
    flow = flow_of(
        f"{TENSORS}score: score + table[h, kv_idx * 3] + bias[h, q_idx, kv_idx] + ids[b, kv_idx]"
        " + gain[h_kv]"
    )
    (gather,) = reads(flow, "table")
    assert isinstance(gather, Gather)
    assert all(index.is_Atom for index in gather.indices)


def test_a_closed_gate_hides_every_key_only_where_nobody_could_tell() -> None:
    gated = "outputs: []\nhead_gate: true"
    alone, with_lse = flow_of(f"{gated}\nbackward: false"), flow_of("head_gate: true")
    opened = Ne(value_symbol("head_gate"), 0)
    assert alone.values["lse"].where == opened  # type: ignore[union-attr]
    trained = flow_of(gated)
    assert trained.values["lse"].where == Or(symbols.keep, opened)  # type: ignore[union-attr]
    assert with_lse.values["lse"].where == true  # type: ignore[union-attr]
    assert alone.outputs == {"out": "out"}
    assert with_lse.outputs == {"out": "out", "lse": "lse"}


def test_operands_come_first_and_nothing_is_unused() -> None:
    flow = flow_of(
        f"{TENSORS}score: alibi(score) * gain[h_kv] + bias[h, q_idx, kv_idx] + table[h, 1]\n"
        "mask: documents(ids)"
    )
    order = {name: at for at, name in enumerate(flow.values)}
    for name in flow.values:
        assert all(order[operand] < order[name] for operand in flow.operands(name))
    graph = flow.graph()
    needed = set(flow.outputs.values())
    needed |= {one for output in flow.outputs.values() for one in nx.ancestors(graph, output)}
    assert set(flow.values) == needed


def test_results_of_one_grid_share_a_kernel_and_wait_in_phases() -> None:
    flow = flow_of("mask: causal")
    (kernel,) = flow.kernels
    assert kernel.grid == ROWS and kernel.phases == (("lse",), ("out",))
    assert group_results(flow) == flow.kernels
    gated = flow_of("outputs: []\nhead_gate: true")
    assert gated.kernels[0].phases == (("lse",), ("ungated",), ("out",))


def test_operands_of_each_kind() -> None:
    values = flow_of("mask: causal").values
    assert operands_of(values["q"], values) == ()
    assert operands_of(Contract(("q", "q"), ()), values) == ("q",)
    assert operands_of(values["p"], values) == ("logits", "lse")
