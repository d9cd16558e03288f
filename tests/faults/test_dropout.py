"""Dropout: the weights that the seed names are dropped, in both passes, whatever the tiles.

Masks are read off `out` with q = 0 and v the identity, and held against numpy's Philox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attnc.verify.philox import random_number
from tests.faults.judge import Build, Built

BODY = "dropout: true\nbackward: true"
WIDE = f"{BODY}\nhead_dim: {{qk: 16, v: 64}}"
SEED = 2**63 + 2**40 + 5  # both halves count
BODIES = {
    "plain": BODY,
    "causal": f"{BODY}\nmask: causal",
    "window": f"{BODY}\nmask: causal & sliding_window(5)\nscore: softcap(score, 3)",
    "empty rows": f"{BODY}\nmask: (kv_idx > q_pos + 2) & (q_idx > 3)",
    "gates": f"{BODY}\nmask: causal\nhead_gate: true\noutputs: []",
    "sink": f"{BODY}\nmask: causal & sliding_window(9)\nsink: per_head",
    "bshd": f"{BODY}\nmask: causal\nlayout: bshd\nhead_dim: {{qk: 16, v: 24}}",
    "bias": f"{BODY}\ntensors: {{bias: {{shape: [heads, q_len, kv_len]}}}}\n"
            "score: score + bias[h, q_idx, kv_idx]\nmask: causal | prefix(3)",
}  # fmt: skip


def numbers(seed: int, batch: int, heads: int, q_len: int, kv_len: int) -> np.ndarray:
    b, h, q = np.ogrid[:batch, :heads, :q_len]
    signed = seed - 2**64 if seed >= 2**63 else seed
    return random_number(signed, b[..., None], h[..., None], q[..., None], np.arange(kv_len))


def kept(seed: int, p: float, *sizes: int) -> np.ndarray:
    return numbers(seed, *sizes) >= round(p * 2**32) - 2**31


def shares(built: Built, q_len: int = 40, kv_len: int = 64, batch: int = 1, **rest: Any) -> Tensor:
    """Each weight times the number of keys: 1 / (1 - p) or 0."""
    q = torch.zeros(batch, 2, q_len, 16)
    v = torch.eye(kv_len, 64).expand(batch, 1, -1, -1)
    out = built.module.attention(q, torch.zeros(batch, 1, kv_len, 16), v, **rest)
    return out[..., :kv_len] * kv_len


@pytest.mark.parametrize("tiles", [(16, 16), (64, 32), (16, 64), (128, 128)])
def test_c17_the_seed_says_what_is_dropped_whatever_the_tiles(
    build: Build, tiles: tuple[int, int]
) -> None:
    schedule = {"block_q": tiles[0], "block_kv": tiles[1]}
    made = shares(
        build(WIDE), batch=2, dropout_p=0.3, dropout_seed=SEED, schedule=schedule, kv_len=61
    )
    wanted = kept(SEED, 0.3, 2, 2, 40, 61) / 0.7
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])
def test_c17_strides_and_the_dense_path_drop_the_same(build: Build, interpret: bool) -> None:
    built = build(f"{BODY}\nmask: causal", interpret)
    q, k, v = (torch.randn(2, heads, 33, 16) for heads in (2, 1, 1))
    turned = [x.mT.contiguous().mT for x in (q, k, v)]
    rest = {"dropout_p": 0.5, "dropout_seed": -7}
    one, other = built.module.attention(q, k, v, **rest), built.module.attention(*turned, **rest)
    assert torch.equal(one, other)
    torch.testing.assert_close(one, built.module.reference(q, k, v, **rest))


def run(
    function: Callable[..., Any], operands: list[Tensor], given: Tensor, **rest: Any
) -> list[Tensor]:
    """The output and the gradients of q, k, v."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in operands]
    out = function(*leaves, **rest)
    return [out.detach(), *torch.autograd.grad((out * given.to(out.dtype)).sum(), leaves)]


def operands_of(built: Built, dtype: torch.dtype, q_len: int = 37, kv_len: int = 50) -> Any:
    torch.manual_seed(1)
    spec = built.spec
    q, k = torch.randn(2, 2, q_len, 16), torch.randn(2, 1, kv_len, 16)
    v, given = (torch.randn(2, h, n, spec.head_dim_v) for h, n in ((1, kv_len), (2, q_len)))
    extra = {t.name: torch.randn(2, q_len, kv_len) for t in spec.tensors}
    extra |= {"head_gate": torch.tensor([0.7, -1.3])} if spec.head_gate else {}
    extra |= {"sink": torch.tensor([0.5, -2.0])} if spec.sink else {}
    if spec.layout == "bshd":
        q, k, v, given = (x.transpose(1, 2).contiguous() for x in (q, k, v, given))
    return [x.to(dtype) for x in (q, k, v)], given.to(dtype), extra


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_c17_gradients_drop_what_the_output_drops(
    build: Build, body: str, dtype: torch.dtype
) -> None:
    built = build(body)
    operands, given, extra = operands_of(built, dtype)
    rest = extra | {"dropout_p": 0.4, "dropout_seed": SEED}
    found = run(built.module.attention, operands, given, **rest)
    wide = [x.double() for x in operands]
    truth = run(built.module.reference, wide, given, **rest)
    plain = run(built.module.reference, operands, given, **rest)
    for got, true, rough in zip(found, truth, plain, strict=True):
        assert got.dtype == dtype
        error, allowed = (got.double() - true).abs(), (rough.double() - true).abs().max()
        rounding = torch.finfo(dtype).eps * true.abs().max()
        assert error.max() <= 2 * allowed + 2 * rounding


def test_c17_dv_is_the_dropped_weights_times_the_gradient(build: Build) -> None:
    built = build(WIDE)
    q, k, v = torch.zeros(1, 2, 40, 16), torch.zeros(1, 1, 64, 16), torch.randn(1, 1, 64, 64)
    given = torch.randn(1, 2, 40, 64)
    grad_v = run(built.module.attention, [q, k, v], given, dropout_p=0.3, dropout_seed=9)[3]
    weights = torch.from_numpy(kept(9, 0.3, 1, 2, 40, 64) / 0.7 / 64).float()
    torch.testing.assert_close(grad_v, (weights.mT @ given).sum(1, keepdim=True))


def test_c17_lse_is_that_of_all_weights(build: Build) -> None:
    built = build(f"{BODY}\nmask: causal")
    operands, _, _ = operands_of(built, torch.float32)
    _, dropped = built.module.attention(*operands, dropout_p=0.5, dropout_seed=1, return_aux=True)
    _, whole = built.module.attention(*operands, return_aux=True)
    assert torch.equal(dropped.lse, whole.lse)


def test_c17_no_dropout_gives_the_bits_of_a_spec_without(build: Build) -> None:
    built, without = build(f"{BODY}\nmask: causal"), build("backward: true\nmask: causal")
    operands, given, _ = operands_of(built, torch.float32)
    expected = run(without.module.attention, operands, given)
    for rest in ({}, {"dropout_p": 0.0, "dropout_seed": 3}, {"dropout_p": 0}):
        found = run(built.module.attention, operands, given, **rest)
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("p", [1e-3, 0.1, 0.5, 0.9, 1 - 2.0**-40])
def test_c17_the_share_that_is_kept(build: Build, p: float) -> None:
    made = kept(3, p, 2, 4, 128, 256)
    spread = (p * (1 - p) / made.size) ** 0.5
    assert abs(made.mean() - (1 - p)) <= 4 * spread + 2.0**-32


def test_c17_rows_keys_heads_batches_and_seeds_are_independent(build: Build) -> None:
    made = 2.0 * kept(3, 0.5, 4, 8, 64, 128) - 1
    for axis in range(4):
        for step in (1, 2, 3):
            agreement = (made * np.roll(made, step, axis)).mean()
            assert abs(agreement) < 5 / made.size**0.5, (axis, step)
    for other in (4, 2**32 + 3, 2**63 + 3):
        agreement = (made * (2.0 * kept(other, 0.5, 4, 8, 64, 128) - 1)).mean()
        assert abs(agreement) < 5 / made.size**0.5, other


def test_c17_torch_draws_the_seed(build: Build) -> None:
    built = build(WIDE)
    made: list[Tensor] = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made += [shares(built, dropout_p=0.5), shares(built, dropout_p=0.5)]
    first, second, again, _, other, _ = made
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert not torch.equal(first, other)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 20, width) for heads, width in ((2, 16), (1, 16), (1, 64)))
    torch.manual_seed(5)
    expected = built.module.reference(q, k, v, dropout_p=0.5)
    torch.manual_seed(5)
    torch.testing.assert_close(built.module.attention(q, k, v, dropout_p=0.5), expected)


def test_c17_a_checkpoint_drops_the_same_again(build: Build) -> None:
    built = build(f"{BODY}\nmask: causal")
    operands, given, _ = operands_of(built, torch.float32)

    def remade(*leaves: Tensor, **rest: Any) -> Tensor:
        return checkpoint(built.module.attention, *leaves, use_reentrant=False, **rest)

    results = []
    for function in (built.module.attention, remade):
        torch.manual_seed(8)
        results.append(run(function, operands, given, dropout_p=0.5))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_c17_compiled_it_drops_the_same_in_both_passes(build: Build, backend: str) -> None:
    built = build(f"{BODY}\nmask: causal", False)
    operands, given, _ = operands_of(built, torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(built.module.attention, fullgraph=True, backend=backend)
    for rest in ({"dropout_p": 0.5, "dropout_seed": SEED}, {"dropout_p": 0.25}, {}):
        torch.manual_seed(2)
        expected = run(built.module.attention, operands, given, **rest)
        torch.manual_seed(2)
        found = run(compiled, operands, given, **rest)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_c17_opcheck(build: Build, interpret: bool, p: float) -> None:
    built = build(f"{BODY}\nmask: causal", interpret)
    operands, _, _ = operands_of(built, torch.float32, 9, 12)
    leaves = [x.requires_grad_() for x in operands]
    seed = torch.tensor(11) if p else None
    torch.library.opcheck(
        built.module.operator, (*leaves, seed, None, p, 0.25, built.module._tiles(None))
    )


P_RANGE = "dropout_p must be at least 0 and less than 1, not "
REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "p is a tensor": ({"dropout_p": torch.tensor(0.1)}, TypeError,
        "dropout_p must be float, not Tensor"),
    "p is true": ({"dropout_p": True}, TypeError, "dropout_p must be float, not bool"),
    "p is none": ({"dropout_p": None}, TypeError, "dropout_p must be float, not NoneType"),
    "p is 1": ({"dropout_p": 1}, ValueError, f"{P_RANGE}1"),
    "p is negative": ({"dropout_p": -0.1}, ValueError, f"{P_RANGE}-0.1"),
    "p is nan": ({"dropout_p": float("nan")}, ValueError, f"{P_RANGE}nan"),
    "seed is a float": ({"dropout_seed": 1.0}, TypeError, "dropout_seed must be int, not float"),
    "seed is true": ({"dropout_seed": True}, TypeError, "dropout_seed must be int, not bool"),
    "seed is long": ({"dropout_p": 0.5, "dropout_seed": 2**64}, ValueError,
        f"dropout_seed is {2**64}; it must fit into 64 bits"),
}  # fmt: skip


@pytest.mark.parametrize(("rest", "kind", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("name", ["attention", "reference"])
def test_c17_what_is_no_probability_or_seed_is_refused_by_name(
    build: Build, name: str, rest: dict[str, Any], kind: type[Exception], message: str
) -> None:
    built = build(BODY)
    operands, _, _ = operands_of(built, torch.float32, 3, 3)
    with pytest.raises(kind) as caught:
        getattr(built.module, name)(*operands, **rest)
    assert str(caught.value) == f"sample: {message}"
