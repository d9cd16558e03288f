"""Compile a spec, call its kernel in Triton's interpreter, and hold the answer against a reference.

The reference is dense and float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from attnc.runtime.accesses import refuse_stray_accesses
from attnc.spec.schema import AttentionSpec
from attnc.verify.gradient_truth import true_gradients
from attnc.verify.guards import watch
from attnc.verify.reference import Call, dense, scale_of
from attnc.verify.tolerance import compare_gradient, compare_lse, compare_out

Tiles = tuple[int, int]
SMALL: Tiles = (16, 16)


@dataclass(frozen=True, slots=True)
class Built:
    """A spec and its generated module, interpreted."""

    spec: AttentionSpec
    module: ModuleType


@dataclass(frozen=True, slots=True)
class Answer:
    out: Tensor
    lse: Tensor


Build = Callable[..., Built]


def inputs(
    spec: AttentionSpec,
    q_len: int,
    kv_len: int,
    *,
    batch: int = 1,
    heads_kv: int | None = None,
    dtype: torch.dtype = torch.float32,
    scale: float | None = None,
    seed: int = 0,
    **rest: Tensor | int | float,
) -> Call:
    """A call with random q, k, v, and the tensors and params given; `q=...` replaces one."""
    draw = torch.Generator().manual_seed(seed)
    heads_kv = heads_kv or spec.heads_kv
    shapes = {
        "q": (batch, heads_kv * spec.group, q_len, spec.head_dim_qk),
        "k": (batch, heads_kv, kv_len, spec.head_dim_qk),
        "v": (batch, heads_kv, kv_len, spec.head_dim_v),
    }
    made = {name: torch.randn(shape, generator=draw).to(dtype) for name, shape in shapes.items()}
    if spec.layout == "bshd":
        made = {name: tensor.transpose(1, 2).contiguous() for name, tensor in made.items()}
    params = {param.name: param.default for param in spec.params if param.default is not None}
    given = {name: value for name, value in rest.items() if not isinstance(value, Tensor)}
    made |= {name: value for name, value in rest.items() if isinstance(value, Tensor)}
    return Call(spec, made, params | given, scale)  # type: ignore[arg-type]


def answer(built: Built, call: Call, tiles: Tiles | None = SMALL) -> Answer:
    """Run the kernel, with every allocation between canaries and no access outside a tensor."""
    rest = {name: tensor for name, tensor in call.tensors.items() if name not in ("q", "k", "v")}
    schedule = {"block_q": tiles[0], "block_kv": tiles[1]} if tiles else None
    has_lse = "lse" in built.spec.outputs
    with watch() as watched, refuse_stray_accesses(), np.errstate(all="ignore"):
        result = built.module.attention(
            *(call.tensors[name] for name in "qkv"),
            **rest,
            **call.params,
            scale=call.scale,
            return_aux=has_lse,
            schedule=schedule,
        )
    assert not watched.overrun, "the kernel wrote outside its outputs"
    return Answer(result[0], result[1].lse) if has_lse else Answer(result, torch.empty(0))


def agree(
    built: Built, call: Call, tiles: Tiles | None = SMALL, clean: Call | None = None
) -> Answer:
    """Assert that the kernel gives what the reference gives.

    `clean`: what the reference reads instead.
    """
    got = answer(built, call, tiles)
    judged = clean or call
    truth, plain = dense(judged), dense(judged, judged.tensors["q"].dtype)
    results = [compare_out(got.out, truth, plain)]
    if got.lse.numel():
        results.append(compare_lse(got.lse, truth, plain))
    wrong = [result for result in results if not result.ok]
    assert not wrong, wrong
    return got


def gradients(
    built: Built,
    call: Call,
    cotangents: Mapping[str, Tensor],
    names: tuple[str, ...],
    tiles: Tiles = SMALL,
) -> dict[str, Tensor]:
    """Run forward and backward, both between canaries; the same tile for every kernel."""
    tile = {"block_q": tiles[0], "block_kv": tiles[1]}
    leaves = {name: call.tensors[name].detach().requires_grad_() for name in names}
    given = {**call.tensors, **leaves}
    rest = {name: tensor for name, tensor in given.items() if name not in ("q", "k", "v")}
    with watch() as watched, refuse_stray_accesses(), np.errstate(all="ignore"):
        out, aux = built.module.attention(
            *(given[name] for name in "qkv"),
            **rest,
            **call.params,
            scale=call.scale,
            return_aux=True,
            schedule=tile | dict.fromkeys(built.module.KERNELS[1:], tile),
        )
        results = {"out": out, **aux._asdict()}
        outputs = [results[name] for name in cotangents]
        found = torch.autograd.grad(outputs, [*leaves.values()], [*cotangents.values()])
    assert not watched.overrun, "the backward wrote outside its results"
    return dict(zip(names, found, strict=True))


def cotangents_for(call: Call, seed: int = 7) -> dict[str, Tensor]:
    """A random cotangent for out, and for lse where it is an output and finite."""
    draw = torch.Generator().manual_seed(seed)
    truth = dense(call)
    made = {"out": torch.randn(truth.out.shape, generator=draw).to(call.tensors["q"].dtype)}
    if "lse" in call.spec.outputs:
        made["lse"] = torch.randn(truth.lse.shape, generator=draw) * truth.lse.isfinite()
    return made


def agree_gradients(
    built: Built,
    call: Call,
    names: tuple[str, ...] = ("q", "k", "v"),
    tiles: Tiles = SMALL,
    cotangents: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Assert that the kernels' gradients are those of autograd through the float64 reference."""
    given = cotangents_for(call) if cotangents is None else cotangents
    got = gradients(built, call, given, names, tiles)
    truth = true_gradients(replace(call, scale=float(scale_of(call))), given, names)
    wrong = [found for name in names if not (found := compare_gradient(name, got[name], truth)).ok]
    assert not wrong, wrong
    return got


def one_hot(kv_len: int, like: Call) -> Tensor:
    """Values that make `out` the row of weights: v is the identity."""
    v = like.tensors["v"]
    assert v.shape[3] >= kv_len
    return torch.eye(kv_len, v.shape[3], dtype=v.dtype).expand(*v.shape[:2], -1, -1)


def visible_counts(built: Built, q_len: int, kv_len: int, **rest: Tensor | int) -> list[int]:
    """How many keys each row of head 0 sees: q = 0 spreads the weight evenly."""
    call = inputs(built.spec, q_len, kv_len, **rest)
    tensors = dict(call.tensors) | {"q": torch.zeros_like(call.tensors["q"])}
    tensors["v"] = one_hot(kv_len, call)
    got = agree(built, Call(built.spec, tensors, call.params))
    return [int(n) for n in (got.out[0, 0] > 0).sum(-1)]


def buried(tensor: Tensor, filling: float, pad: int = 5) -> Tensor:
    """The same values as a view into a larger buffer that is full of `filling` on every side."""
    shape = [size + 2 * pad for size in tensor.shape]
    buffer = torch.full(shape, filling, dtype=tensor.dtype)
    view = buffer[tuple(slice(pad, pad + size) for size in tensor.shape)]
    view.copy_(tensor)
    return view


def same_bits(first: Tensor, second: Tensor) -> bool:
    return torch.equal(first, second)


def refused(text: str) -> pytest.RaisesExc:
    """Expect a spec error with exactly this first line after its place and code."""
    from attnc.errors import SpecErrors

    return pytest.raises(SpecErrors, match=text)
