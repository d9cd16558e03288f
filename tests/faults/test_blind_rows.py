"""Rows that see nothing: whatever their cotangent holds, no gradient notices, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnc.verify.reference import Call
from tests.faults.judge import SMALL, Build, Built, cotangents_for, gradients, inputs

# the first rows see nothing, in a range (causal) or in no range that is known (shown)
CAUSAL = "mask: causal & (q_idx > 2)"
SHOWN = "mask: shown[q_idx, kv_idx]"
Q_LEN, KV_LEN = 20, 18
BODIES = {
    "outputs": "outputs: [lse, entropy]",
    "sink": "sink: per_head",
    "gates": "head_gate: true\noutputs: []",
    "gates and lse": "head_gate: true",
    "sink and gates": "head_gate: true\nsink: per_head\noutputs: []",
    "dropout": "dropout: true\nsink: per_head",
    "bshd": "layout: bshd\nsink: per_head\nhead_gate: true",
    "bias": "tensors: {x: {shape: [heads, q_len, kv_len], grad: true}}\n"
            "score: score + x[h, q_idx, kv_idx]",
    "bias of all heads": "tensors: {x: {shape: [q_len, kv_len], grad: true}}\n"
            "score: score + x[q_idx, kv_idx]\nsink: per_head",
    "bias of keys": "tensors: {x: {shape: [heads, kv_len], grad: true}}\n"
            "score: score * x[h, kv_idx]",
    "bias of rows": "tensors: {x: {shape: [batch, q_len], grad: true}}\nscore: score * x[b, q_idx]",
    "table": "tensors: {x: {shape: [heads, 9], grad: true}}\nscore: relative_bias(score, x)",
    "buckets": "tensors: {x: {shape: [heads, 8], grad: true}}\n"
            "score: t5_bias(score, x, max_distance=20)",
    "params": "params: {w: {type: float, default: 0.5}}\nscore: softcap(score, 3) * w + w * q_idx",
}  # fmt: skip


def call_of(built: Built) -> dict[str, Any]:
    sizes = {"batch": 2, "heads": 2, "kv_heads": 1, "q_len": Q_LEN, "kv_len": KV_LEN}
    draw = torch.Generator().manual_seed(2)
    made: dict[str, Any] = {}
    for one in (*built.spec.tensors, *built.spec.by_head):
        shape: Any = [sizes.get(str(dim), dim) for dim in one.shape]
        made[one.name] = torch.randn(shape, generator=draw)
        if one.name == "shown":
            made[one.name] = torch.rand(shape, generator=draw) < 0.4
            made[one.name][torch.tensor([0, 7, 8, 19])] = False
    return made


def assert_unheard(built: Built, call: Call, rows: torch.Tensor, filling: float) -> None:
    """What the cotangents of these rows hold changes no bit of any gradient."""
    names = tuple(n for n, t in call.tensors.items() if t.is_floating_point())
    outputs = ("out",) if built.spec.sink else ("out", *built.spec.outputs)  # lse: the sink
    given = cotangents_for(call)
    given["entropy"] = torch.randn(2, 2, Q_LEN)
    if built.spec.params:
        call = Call(built.spec, {**call.tensors, "w": torch.tensor(0.7)}, {})
    wrong, clean = ({n: given[n].clone() for n in outputs if n in given} for _ in range(2))
    for name in wrong:
        turned = name != "out" or built.spec.layout == "bhsd"
        for one, value in ((wrong, filling), (clean, 0)):
            (one[name].transpose(1, 2) if turned else one[name])[:, rows] = value
    found = gradients(built, call, wrong, names, SMALL)
    wanted = gradients(built, call, clean, names, SMALL)
    for name, gradient in found.items():
        assert torch.equal(gradient, wanted[name]), name
        assert gradient.isfinite().all(), name


RUNS = [(body, CAUSAL, torch.nan) for body in BODIES] + [
    (body, SHOWN, torch.inf) for body in ("outputs", "sink and gates", "table", "bias of rows")
]


DEAF = {
    "bias": "",
    "outputs": "outputs: [lse, entropy]",
    "sink": "sink: per_head",
    "gates": "head_gate: true\noutputs: []",
    "sink and gates": "head_gate: true\nsink: per_head\nlayout: bshd",
    "dropout": "dropout: true",
}


@pytest.mark.parametrize("filling", [torch.nan, torch.inf])
@pytest.mark.parametrize("rest", DEAF.values(), ids=DEAF)
def test_a01_a_cotangent_of_a_row_whose_scores_are_all_minus_infinity(
    build: Build, rest: str, filling: float
) -> None:
    """By a bias: no mask selects its weights away."""
    tensor = "tensors: {x: {shape: [heads, q_len, kv_len], grad: true}}"
    built = build(f"{tensor}\nscore: score + x[h, q_idx, kv_idx]\n{rest}\nbackward: true")
    extra = call_of(built)
    deaf = torch.tensor([0, 7, 8, 19])
    extra["x"][:, deaf] = -torch.inf
    assert_unheard(built, inputs(built.spec, Q_LEN, KV_LEN, batch=2, **extra), deaf, filling)


@pytest.mark.parametrize(("body", "mask", "filling"), RUNS)
def test_a01_a_cotangent_of_a_row_that_sees_nothing(
    build: Build, body: str, mask: str, filling: float
) -> None:
    body = BODIES[body]
    shown = "shown: {shape: [q_len, kv_len], dtype: bool}"
    if mask == SHOWN:
        has = "tensors: {" in body
        body = body.replace("tensors: {", f"tensors: {{{shown}, ") if has else (
            f"{body}\ntensors: {{{shown}}}"
        )  # fmt: skip
    built = build(f"{body}\n{mask}\nbackward: true")
    extra = call_of(built)
    blind = ~extra["shown"].any(-1) if mask == SHOWN else torch.arange(Q_LEN) < 3
    call = inputs(built.spec, Q_LEN, KV_LEN, batch=2, **extra)
    assert_unheard(built, call, blind, filling)
