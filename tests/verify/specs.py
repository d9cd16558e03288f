"""Specs that verify's tests judge, and tensors for them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from attnc.spec import parse_spec
from attnc.spec.schema import AttentionSpec
from attnc.verify.certificate import embedded_spec
from attnc.verify.reference import Call

HANDMADE = Path(__file__).parent / "handmade.py"


def spec_of(body: str, **changes: object) -> AttentionSpec:
    """The spec of a YAML body; 4 query heads on 2 kv heads of 8 dims unless it says otherwise."""
    defaults = {"heads": "{q: 4, kv: 2}", "head_dim": "8", "outputs": "[lse]", "backward": "false"}
    missing = [f"{key}: {value}" for key, value in defaults.items() if f"{key}:" not in body]
    spec = parse_spec("\n".join(["name: sample", *missing, body]) + "\n")
    return dataclasses.replace(spec, **changes)  # type: ignore[arg-type]


def call_of(
    spec: AttentionSpec, q_len: int, kv_len: int, batch: int = 2, seed: int = 0, **rest: object
) -> Call:
    """A call with random float32 q, k, v and the declared tensors and params given."""
    draw = torch.Generator().manual_seed(seed)
    shapes = {
        "q": (batch, spec.heads_q, q_len, spec.head_dim_qk),
        "k": (batch, spec.heads_kv, kv_len, spec.head_dim_qk),
        "v": (batch, spec.heads_kv, kv_len, spec.head_dim_v),
    }
    tensors = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    tensors |= {name: value for name, value in rest.items() if isinstance(value, torch.Tensor)}
    params = {name: value for name, value in rest.items() if isinstance(value, int | float)}
    return Call(spec, tensors, params)  # type: ignore[arg-type]


def handmade_spec() -> AttentionSpec:
    """The spec in the header of handmade.py."""
    text = embedded_spec(HANDMADE.read_text())
    assert text is not None
    return parse_spec(text)
