"""Kinds A and C: sinks and what follows from them, forward and backward, in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from attnc.verify.reference import Call
from tests.faults.judge import SMALL, Build, Built, Tiles, agree, inputs

SINK = "sink: per_head"
TRAINED = f"{SINK}\nbackward: true"
VALUES = torch.tensor([2.0, -1.0])


def differentiated(
    built: Built, call: Call, weights: dict[str, Tensor], tiles: Tiles | None = SMALL
) -> dict[str, tuple[Tensor, Tensor]]:
    """Gradients of a weighted sum of the finite results: by the kernels, by autograd in float64."""

    def gradients(function, dtype: torch.dtype | None, **rest: object) -> dict[str, Tensor]:
        tensors = {
            name: x.detach().to(dtype if dtype and name in "qkv" else x.dtype).requires_grad_()
            for name, x in call.tensors.items()
        }
        q, k, v = (tensors.pop(name) for name in "qkv")
        out, aux = function(q, k, v, **tensors, **call.params, return_aux=True, **rest)
        results = {"out": out} | {name: getattr(aux, name) for name in aux._fields}
        loss = sum(
            torch.where(results[name].isfinite(), results[name] * weight, 0.0).sum()
            for name, weight in weights.items()
        )
        operands = {"q": q, "k": k, "v": v, **tensors}
        found = torch.autograd.grad(loss, list(operands.values()), materialize_grads=True)
        return dict(zip(operands, found, strict=True))

    schedule = {"block_q": tiles[0], "block_kv": tiles[1]} if tiles else None
    with np.errstate(all="ignore"):
        mine = gradients(built.module.attention, None, schedule=schedule)
    truth = gradients(built.module.reference, torch.float64)
    return {name: (mine[name], truth[name]) for name in mine}


def assert_near(found: dict[str, tuple[Tensor, Tensor]], tolerance: float = 1e-5) -> None:
    for name, (mine, truth) in found.items():
        assert mine.isfinite().all(), name
        scale = max(1.0, float(truth.abs().max()) if truth.numel() else 1.0)
        assert (mine.double() - truth.double()).abs().max() <= tolerance * scale, name


def weights_for(call: Call, **names: tuple[int, ...]) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    return {name: torch.randn(shape, generator=draw) for name, shape in names.items()}


def test_a10_rows_without_keys_give_the_sink(build: Build) -> None:
    built = build(TRAINED)
    call = inputs(built.spec, 5, 0, sink=VALUES)
    got = agree(built, call)
    assert (got.out == 0).all()
    assert torch.equal(got.lse, VALUES[None, :, None].expand(1, 2, 5))
    weights = weights_for(call, out=(1, 2, 5, 16), lse=(1, 2, 5))
    found = differentiated(built, call, weights)
    torch.testing.assert_close(found["sink"][0], weights["lse"].sum((0, 2)))
    assert (found["q"][0] == 0).all()


def test_a10_rows_that_a_mask_empties_give_the_sink(build: Build) -> None:
    built = build(f"{SINK}\nmask: causal")
    got = agree(built, inputs(built.spec, 40, 21, sink=VALUES))
    assert torch.equal(got.lse[0, :, :19], VALUES[:, None].expand(2, 19))
    assert (got.out[0, :, :19] == 0).all()


@pytest.mark.parametrize("value", [-torch.inf, torch.finfo(torch.float32).min])
def test_a10_a_sink_of_no_weight_changes_nothing(build: Build, value: float) -> None:
    """Nor does it give a NaN where a tile hides every key of a row."""
    mask = "\nmask: sliding_window(9) & (q_idx % 5 != 1)"
    with_sink, without = build(f"{SINK}{mask}"), build(mask.strip())
    call = inputs(with_sink.spec, 50, 50, sink=torch.full((2,), value))
    got = agree(with_sink, call)
    rest = {name: tensor for name, tensor in call.tensors.items() if name != "sink"}
    plain = agree(without, Call(without.spec, rest, {}))
    torch.testing.assert_close(got.out, plain.out, rtol=1e-6, atol=1e-6)
    assert (got.lse[:, :, 1::5] == value).all()


def test_a10_a_sink_that_is_not_there_has_no_gradient(build: Build) -> None:
    """Where a row sees nothing besides, its cotangents may be NaN."""
    built = build(f"{TRAINED}\nmask: causal")
    call = inputs(built.spec, 40, 21, sink=torch.tensor([-torch.inf, 0.5]))
    weights = weights_for(call, out=(1, 2, 40, 16), lse=(1, 2, 40))
    weights["out"][:, 0, :19] = weights["lse"][:, 0, :19] = torch.nan
    found = differentiated(built, call, weights)
    assert found["sink"][0][0] == 0 and found["sink"][0].isfinite().all()
    assert found["q"][0].isfinite().all() and (found["q"][0][:, 0, :19] == 0).all()


def test_a08_a_window_hides_whole_tiles_beside_a_sink(build: Build) -> None:
    built = build(f"{SINK}\nmask: sliding_window(9)")
    call = inputs(built.spec, 96, 96, sink=VALUES)
    for tiles in ((32, 16), (16, 32)):
        agree(built, call, tiles)


def test_c07_a_shift_of_the_row_is_seen_beside_a_sink(build: Build) -> None:
    text = "tensors: {{slopes: {{shape: [heads]}}}}\nscore: {}\n" + SINK
    distance = build(text.format("score - slopes[h] * (q_pos - kv_idx)"))
    position = build(text.format("score + slopes[h] * kv_idx"))
    slopes = torch.tensor([0.5, 0.06])
    results = [
        agree(built, inputs(built.spec, 9, 20, slopes=slopes, sink=torch.ones(2)))
        for built in (distance, position)
    ]
    assert (results[0].lse - results[1].lse).abs().max() > 0.1
    assert (results[0].out - results[1].out).abs().max() > 0.1


def test_c13_a_sink_takes_its_share_and_leaves_the_keys_among_themselves(build: Build) -> None:
    built, without = build(SINK), build()
    call = inputs(built.spec, 4, 16, sink=VALUES)
    tensors = dict(call.tensors) | {"v": torch.ones_like(call.tensors["v"])}
    got = agree(built, Call(built.spec, tensors, {}))
    share = torch.exp(VALUES[None, :, None] - got.lse)
    torch.testing.assert_close(got.out[..., 0], 1 - share)
    rest = {name: tensor for name, tensor in call.tensors.items() if name != "sink"}
    plain = agree(without, Call(without.spec, rest, {}))
    joined = torch.logaddexp(plain.lse, VALUES[None, :, None].expand(plain.lse.shape))
    torch.testing.assert_close(got.lse, joined)


@pytest.mark.parametrize("scale", [0.0, -0.7, 1e-30, None])
@pytest.mark.parametrize("score", ["score", "softcap(score, 5)"])
def test_c04_a_sink_has_no_scale(build: Build, score: str, scale: float | None) -> None:
    built = build(f"{SINK}\nscore: {score}\nmask: causal")
    agree(built, inputs(built.spec, 33, 40, sink=40 * VALUES, scale=scale))


def test_c15_the_gradient_of_a_sink(build: Build) -> None:
    built = build(f"heads: {{q: 4, kv: 2}}\n{TRAINED}\nmask: sliding_window(5) & (q_idx != 3)")
    sink = torch.tensor([0.5, -1.0, 2.0, -torch.inf])
    call = inputs(built.spec, 20, 20, batch=2, sink=sink)
    weights = weights_for(call, out=(2, 4, 20, 16), lse=(2, 4, 20))
    found = differentiated(built, call, weights)
    assert_near(found)
    assert found["sink"][0].dtype is torch.float32 and found["sink"][0][3] == 0
    alone = differentiated(built, call, {"out": weights["out"]})
    got = agree(built, call)
    share = torch.exp(sink[None, :, None] - got.lse)
    delta = (weights["out"] * got.out).sum(-1)
    torch.testing.assert_close(
        alone["sink"][0], -(torch.where(got.lse.isfinite(), share, 0.0) * delta).sum((0, 2))
    )
