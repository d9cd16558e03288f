"""Gradients fall out of five rules, and are what autograd finds through the same forward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from sympy import Max, Min, Mul, Rational, Symbol, symbols
from torch import Tensor

from attnc.graph.derivative import differentiate
from attnc.graph.forward import build_dataflow
from attnc.graph.operations import Contract, Dataflow, Map, Scatter
from attnc.graph.partials import partial
from attnc.spec import parse_spec
from attnc.symbols import value_symbol
from tests.graph.dense import Dense
from tests.graph.test_forward import text_of

LENGTHS = {"b": 2, "g": 2, "r": 2, "q": 5, "k": 7, "d": 16, "e": 16}
SIZES = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 5, "kv_len": 7}


def flow_of(body: str) -> Dataflow:
    head = {"name": "sample", "heads": "{q: 4, kv: 2}", "head_dim": "16"}
    lines = [f"{key}: {value}" for key, value in head.items() if f"{key}:" not in body]
    return build_dataflow(parse_spec("\n".join([*lines, body]) + "\n"))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("causal", "mask: causal\noutputs: [lse]"),
        ("softcap", "score: softcap(score, 50)"),
        ("gates", "head_gate: true"),
    ],
)  # fmt: skip
def test_gradients(name: str, body: str, golden: Callable[[str], None]) -> None:
    flow = differentiate(flow_of(body))
    golden(f"{text_of(flow)}\ngradients {dict(flow.gradients)}")


def test_delta_is_minus_the_gradient_of_lse_and_reads_the_output() -> None:
    flow = differentiate(flow_of("mask: causal"))
    assert flow.values["d_lse_sum"] == Contract(("out", "grad_out"), ("b", "g", "r", "q"))
    assert flow.values["d_lse"] == Map(-value_symbol("d_lse_sum"), ("b", "g", "r", "q"))


def test_with_dropout_too_the_gradient_of_lse_reads_the_output() -> None:
    flow = differentiate(flow_of("mask: causal\ndropout: true"))
    assert flow.values["d_lse_sum"] == Contract(("out", "grad_out"), ("b", "g", "r", "q"))
    factors = [value_symbol(name) for name in ("d_weights", "kept", "kept_factor")]
    assert flow.values["d_p"] == Map(Mul(*factors), ("b", "g", "r", "q", "k"), flow.spec.mask)


def test_the_derivative_of_a_softcap_is_written_in_the_score() -> None:
    flow = differentiate(flow_of("score: softcap(score, 50)"))
    logits, d_logits = value_symbol("logits"), value_symbol("d_logits")
    slope = flow.values["d_qk"]
    assert isinstance(slope, Map)
    term = value_symbol("call_term")
    assert slope.formula == 50 * term * d_logits * (1 - logits**2 / 2500)


def test_a_tensor_read_in_step_contracts_and_a_table_scatters() -> None:
    flow = differentiate(
        flow_of(
            "tensors: {bias: {shape: [heads, q_len, kv_len], grad: true},"
            " table: {shape: [heads, 9], grad: true}, fixed: {shape: [heads]}}\n"
            "score: score + bias[h, q_idx, kv_idx] + table[h, q_pos - kv_idx] + fixed[h]"
        )
    )
    assert set(flow.gradients) == {"q", "k", "v", "bias", "table", "scale"}
    bias = flow.values[flow.gradients["bias"]]
    assert bias == Contract(("d_logits",), ("g", "r", "q", "k"))
    assert isinstance(flow.values[flow.gradients["table"]], Scatter)


BODIES = {
    "plain": "",
    "lse": "mask: causal\noutputs: [lse]",
    "softcap": "score: softcap(score, 3)\nmask: sliding_window(3)",
    "alibi": "score: alibi\nmask: causal",
    "temperature": "params: {t: {type: float, default: 1.5}}\n"
                   "score: score * t + t * t\nmask: causal",
    "scale": "params: {t: {type: float, default: 1.5}}\nscale: 1 / t\nscore: tanh(score) * exp(t)",
    "bias": "tensors: {bias: {shape: [heads, q_len, kv_len], grad: true}}\n"
            "score: 3 * tanh((score + 2 * bias[h, q_idx, kv_idx]) / 3)\nmask: causal",
    "shapes": "tensors: {a: {shape: [heads], grad: true}, c: {shape: [batch, q_len], grad: true},"
              " e: {shape: [kv_len], grad: true}, f: {shape: [kv_heads, 3], grad: true}}\n"
              "score: score * a[h] + c[b, q_idx] * e[kv_idx] * f[h_kv, 1] - a[h] ** 2",
    "table": "tensors: {table: {shape: [heads, 9], grad: true}}\n"
             "score: score + table[h, q_pos - kv_idx] * score\nmask: causal",
    "twice": "tensors: {e: {shape: [kv_len], grad: true}}\n"
             "score: score * e[kv_idx] + e[kv_idx - 1]",
    "kinks": "score: max(score, 0.1) + abs(score) - min(score, 0.2, 2 * score) + relu(score)",
    "select": "score: where(kv_idx > 2, score * log(kv_idx + 1),"
              " where(score > 0.1, score ** 2, 0))",
    "sigmoid": "score: sigmoid(score) * (q_pos - kv_idx) + log(abs(score) + 1)",
    "gates": "head_gate: true\nmask: causal\noutputs: [lse]",
    "dropout": "dropout: true\nmask: causal\noutputs: [lse]",
    "dropped gates": "dropout: true\nhead_gate: true\nscore: softcap(score, 3)",
    "empty": "mask: kv_idx > q_pos + 2\noutputs: [lse]",
    "nothing": "mask: kv_idx > 100",
    "sink": "sink: per_head\nmask: sliding_window(3)",
    "sink_lse": "sink: per_head\nmask: causal & (kv_idx < 4)\nscore: softcap(score, 3)\n"
                "outputs: [lse]",
    "sink_empty": "sink: per_head\nmask: kv_idx > q_pos + 2\noutputs: [lse]",
    "entropy": "mask: causal\noutputs: [entropy]",
    "entropy_lse": "score: softcap(score, 3)\nmask: sliding_window(3)\noutputs: [entropy, lse]",
    "entropy_empty": "mask: kv_idx > q_pos + 2\noutputs: [entropy, max_score]",
    "entropy_sink": "sink: per_head\nmask: kv_idx > q_pos + 2\noutputs: [entropy]",
    "key_mass": "mask: causal\noutputs: [key_mass]",
    "every_output": "sink: per_head\nmask: sliding_window(3)\nscore: alibi\n"
                    "outputs: [max_score, key_mass, entropy, lse]",
    "sink_gates": "sink: per_head\nhead_gate: true\noutputs: [lse]",
}  # fmt: skip


def inputs_of(flow: Dataflow) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_()

    size = LENGTHS
    tensors = {
        "q": random(*(size[a] for a in "bgrqd")),
        "k": random(*(size[a] for a in "bgkd")),
        "v": random(*(size[a] for a in "bgke")),
    }
    for tensor in flow.spec.tensors:
        extent = [dim if isinstance(dim, int) else SIZES[dim] for dim in tensor.shape]
        whole = tensor.dtype == "int32"
        tensors[tensor.name] = torch.randint(0, 5, extent) if whole else random(*extent)
    tensors |= {tensor.name: random(4) for tensor in flow.spec.by_head}
    numbers = {param.name: random() for param in flow.spec.params} | {"keep": torch.tensor(True)}
    if flow.spec.dropout:  # a quarter of the weights
        tensors["dropout_seed"] = torch.tensor(2**40 + 7)
        numbers |= {"has_dropout_seed": torch.tensor(True), "dropout_factor": torch.tensor(4 / 3)}
        numbers["dropout_cutoff"] = torch.tensor(-(2**30))
    return tensors, {"scale": random()} | numbers


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_gradients_are_those_of_autograd(body: str) -> None:
    flow = flow_of(body)
    tensors, numbers = inputs_of(flow)
    forward = Dense(flow, LENGTHS, tensors, numbers)
    results = {
        output: forward.along(forward.values[value], flow.values[value].axes)
        for output, value in flow.outputs.items()
        if output != "max_score"
    }
    draw = torch.Generator().manual_seed(1)
    given = {
        output: torch.randn(value.shape, generator=draw, dtype=torch.float64)
        * value.detach().isfinite()
        for output, value in results.items()
    }
    loss = sum(
        (torch.nan_to_num(value, neginf=0.0) * given[output]).sum()
        for output, value in results.items()
    )
    assert isinstance(loss, Tensor)
    operands = tensors | numbers
    flow = differentiate(flow)
    wanted = list(flow.gradients)
    expected = torch.autograd.grad(
        loss, [operands[name] for name in wanted], materialize_grads=True
    )
    detached = {name: tensor.detach() for name, tensor in tensors.items()}
    detached |= {f"grad_{output}": value for output, value in given.items()}
    backward = Dense(
        flow, LENGTHS, detached, {name: value.detach() for name, value in numbers.items()}
    )
    for name, gradient in zip(wanted, expected, strict=True):
        found = backward.gradient(name).reshape(gradient.shape)
        torch.testing.assert_close(
            found, gradient.nan_to_num(0.0), msg=lambda m, n=name: f"{n}: {m}"
        )


def test_the_shares_of_a_tie_are_one() -> None:
    a, b, c = symbols("a b c", real=True)
    shares = [
        partial(formula(a, b, c), x, Symbol("m")) for formula in (Max, Min) for x in (a, b, c)
    ]
    here = [share.subs({a: 2, b: 2, c: 2}).doit() for share in shares]
    assert sorted(here[:3]) == sorted(here[3:]) == [Rational(1, 4), Rational(1, 4), Rational(1, 2)]
