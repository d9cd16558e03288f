"""Extra outputs, forward and backward, against the dense reference of the same file in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.faults.judge import Build, Built, inputs

TRAINED = "backward: true\n"
EVERY = TRAINED + "outputs: [entropy, max_score, lse, key_mass]\n"
BODIES = {
    "causal": EVERY + "mask: causal",
    "ungrouped": EVERY + "heads: 2\nmask: sliding_window(7)",
    "no_mask": EVERY,
    "sink": EVERY + "sink: per_head\nmask: sliding_window(5)",
    "empty_rows": EVERY + "mask: causal & (q_idx % 3 != 1)",
    "nothing_seen": EVERY + "sink: per_head\nmask: kv_idx > q_pos + 64",
    "bshd_gated": EVERY + "layout: bshd\nhead_gate: true\nmask: causal",
    "score": EVERY + "mask: causal\nscore: softcap(score, 2) + bias[h, q_idx, kv_idx]\n"
    "tensors: {bias: {shape: [heads, q_len, kv_len], grad: true}}",
    "entropy_alone": TRAINED + "outputs: [entropy]\nmask: causal",
    "key_mass_alone": TRAINED + "outputs: [key_mass]\nmask: causal",
    "max_score_alone": TRAINED + "outputs: [max_score]\nhead_dim: {qk: 16, v: 24}",
}  # fmt: skip
SIZES = [(33, 45), (20, 5), (5, 0)]
SPECS = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
Results = dict[str, Tensor]


def operands(
    built: Built, q_len: int, kv_len: int, dtype: torch.dtype = torch.float32, factor: float = 1
) -> Results:
    draw = torch.Generator().manual_seed(5)
    sizes = {"heads": built.spec.heads_q, "q_len": q_len, "kv_len": kv_len}
    tensors = (*built.spec.tensors, *built.spec.by_head)
    rest = {t.name: torch.randn([sizes[str(n)] for n in t.shape], generator=draw) for t in tensors}
    made = dict(inputs(built.spec, q_len, kv_len, batch=2, dtype=dtype, **rest).tensors)
    return {**made, "q": made["q"] * factor}


def run(attention: Callable[..., Any], given: Results, wide: bool = False, **rest: Any) -> Results:
    """Results, and gradients of a fixed random sum of those that are finite and have one."""
    leaves = {
        name: x.detach().to(torch.float64 if wide and name in "qkv" else x.dtype).requires_grad_()
        for name, x in given.items()
    }
    with np.errstate(all="ignore"):
        out, aux = attention(**leaves, return_aux=True, **rest)
        results = {"out": out, **aux._asdict()}
        draw = torch.Generator().manual_seed(7)
        weights = {name: torch.randn(x.shape, generator=draw) for name, x in results.items()}
        loss = sum(
            (torch.where(x.isfinite(), x, 0.0) * weights[name]).sum()
            for name, x in results.items()
            if x.requires_grad
        )
        found = torch.autograd.grad(loss, [*leaves.values()], materialize_grads=True)
    return results | {f"grad_{name}": x for name, x in zip(leaves, found, strict=True)}


def assert_near(mine: Mapping[str, Tensor], truth: Mapping[str, Tensor], plain: Results) -> None:
    """As near as twice the error of the dense form in the same dtype, and an ulp or some."""
    for name, right in truth.items():
        infinite = right.isinf()
        assert mine[name].shape == right.shape
        assert torch.equal(mine[name].isinf(), infinite), name

        def error(found: Mapping[str, Tensor], right: Tensor = right, name: str = name) -> float:
            off = (found[name].detach().double() - right.detach().double()).abs()
            return float(off.masked_fill(right.isinf(), 0).max()) if off.numel() else 0.0

        largest = float(right.detach().masked_fill(infinite, 0).abs().max()) if right.numel() else 0
        # gradients are made of `out` in its own dtype
        dtype = plain["out" if name.startswith("grad_") else name].dtype
        floor = 8 * torch.finfo(dtype).eps * max(1.0, largest)
        found = (error(mine), error(plain))
        assert found[0] <= 2 * found[1] + floor, (name, *found, floor)


def agree(built: Built, given: Results, **rest: Any) -> Results:
    mine = run(built.module.attention, given, schedule={"block_q": 16, "block_kv": 16}, **rest)
    truth, plain = (run(built.module.reference, given, wide, **rest) for wide in (True, False))
    assert_near(mine, truth, plain)
    return mine


@SPECS
@pytest.mark.parametrize(("q_len", "kv_len"), SIZES)
def test_results_and_gradients_are_those_of_the_reference(
    build: Build, body: str, q_len: int, kv_len: int
) -> None:
    built = build(body)
    agree(built, operands(built, q_len, kv_len))


@pytest.mark.parametrize("body", [BODIES["causal"], BODIES["sink"]], ids=["causal", "sink"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_give_outputs_in_float32(build: Build, body: str, dtype: torch.dtype) -> None:
    built = build(body)
    mine = agree(built, operands(built, 20, 33, dtype))
    assert {mine[name].dtype for name in built.spec.outputs} == {torch.float32}


def test_outputs_are_those_of_the_weights_before_dropout(build: Build) -> None:
    built = build(EVERY + "dropout: true\nmask: causal")
    given, dropped = operands(built, 20, 33), {"dropout_p": 0.4, "dropout_seed": 11}
    mine = agree(built, given, **dropped)
    whole = run(built.module.attention, given)
    assert not torch.allclose(mine["out"], whole["out"])
    for name in built.spec.outputs:
        torch.testing.assert_close(mine[name], whole[name])


def test_what_they_mean(build: Build) -> None:
    """By torch alone: the softmax of a matrix of scores."""
    built = build(BODIES["no_mask"])
    given = operands(built, 7, 11)
    mine = run(built.module.attention, given)
    scores = given["q"].double() @ given["k"].double().mT / 4
    weights = scores.softmax(-1)
    wanted = {
        "max_score": scores.amax(-1),
        "entropy": torch.distributions.Categorical(logits=scores).entropy(),
        "key_mass": weights.sum(2),
        "lse": scores.logsumexp(-1),
    }
    for name, right in wanted.items():
        torch.testing.assert_close(mine[name].double(), right, rtol=1e-5, atol=1e-5)


def test_a_sink_is_one_more_term_of_the_entropy_and_no_key(build: Build) -> None:
    built = build(EVERY + "sink: per_head")
    given = operands(built, 7, 11)
    mine = run(built.module.attention, given)
    scores = given["q"].double() @ given["k"].double().mT / 4
    joined = torch.cat([scores, given["sink"].double()[None, :, None, None].expand(2, 2, 7, 1)], -1)
    entropy = torch.distributions.Categorical(logits=joined).entropy()
    torch.testing.assert_close(mine["entropy"].double(), entropy, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine["max_score"].double(), scores.amax(-1), rtol=1e-5, atol=1e-5)
    mass = joined.softmax(-1)[..., :-1].sum(2)
    torch.testing.assert_close(mine["key_mass"].double(), mass, rtol=1e-5, atol=1e-5)


def test_an_empty_row_has_no_entropy_no_largest_score_and_adds_no_mass(build: Build) -> None:
    built = build(BODIES["empty_rows"])
    given = operands(built, 24, 24)
    mine = agree(built, given)
    empty, seen = slice(1, None, 3), [i for i in range(24) if i % 3 != 1]
    assert (mine["entropy"][:, :, empty] == 0).all()
    assert (mine["max_score"][:, :, empty] == -torch.inf).all()
    assert (mine["grad_q"][:, :, empty] == 0).all()
    torch.testing.assert_close(mine["key_mass"].sum(-1), torch.full((2, 2), float(len(seen))))
    poisoned = given["q"].clone()
    poisoned[:, :, empty] = torch.nan
    again = run(built.module.attention, {**given, "q": poisoned})
    for name in ("key_mass", "grad_k", "grad_v"):
        assert again[name].isfinite().all(), name


def test_one_key_has_all_the_weight_and_no_entropy(build: Build) -> None:
    built = build(BODIES["causal"])
    mine = run(built.module.attention, operands(built, 1, 1, factor=50))
    assert (mine["entropy"] == 0).all()
    assert (mine["key_mass"] == 1).all()


def test_sharp_rows_have_no_entropy_but_no_nan_either(build: Build) -> None:
    """Weights that are 0 in float32 count 0: 0 log 0 is 0."""
    built = build(BODIES["causal"])
    given = operands(built, 20, 33, factor=300)
    mine, truth = run(built.module.attention, given), run(built.module.reference, given, wide=True)
    for name in ("out", *built.spec.outputs):  # scores near 1000, so that lse is rounded to 1e-4
        near = {"rtol": 1e-3, "atol": 1e-3}
        torch.testing.assert_close(mine[name].double(), truth[name].double(), **near)
    assert all(x.isfinite().all() for x in mine.values())
    assert (mine["entropy"] >= -1e-5).all()


def test_max_score_has_no_gradient(build: Build) -> None:
    built = build(BODIES["causal"])
    given = {name: x.requires_grad_() for name, x in operands(built, 5, 9).items()}
    _, aux = built.module.attention(**given, return_aux=True)
    assert [name for name, x in aux._asdict().items() if not x.requires_grad] == ["max_score"]
    with pytest.raises(RuntimeError, match="does not require grad"):
        aux.max_score.sum().backward()


@pytest.mark.parametrize("name", ["entropy", "key_mass", "lse"])
def test_the_gradient_of_one_output_alone(build: Build, name: str) -> None:
    built = build(BODIES["causal"])
    found = []
    for attention, wide in ((built.module.attention, False), (built.module.reference, True)):
        given = operands(built, 9, 13)
        q = given.pop("q").to(torch.float64 if wide else torch.float32).requires_grad_()
        rest = {n: x.double() if wide else x for n, x in given.items()}
        _, aux = attention(q, **rest, return_aux=True)
        (gradient,) = torch.autograd.grad((getattr(aux, name) ** 2).sum(), q)
        found.append(gradient)
    torch.testing.assert_close(found[0].double(), found[1], rtol=1e-4, atol=1e-5)


def test_they_stand_in_the_order_of_the_spec(build: Build) -> None:
    built = build(TRAINED + "outputs: [key_mass, lse, max_score, entropy]\nmask: causal")
    given = operands(built, 5, 9)
    mine, dense = (
        f(**given, return_aux=True)[1] for f in (built.module.attention, built.module.reference)
    )
    assert mine._fields == dense._fields == ("key_mass", "lse", "max_score", "entropy")
    for one, other in zip(mine, dense, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_kernel_of_the_keys_takes_a_schedule_of_its_own(build: Build) -> None:
    built = build(BODIES["key_mass_alone"])
    assert built.module.KERNELS[:2] == ("forward", "forward_keys")
    given = operands(built, 40, 50)
    _, aux = built.module.attention(
        **given, return_aux=True, schedule={"forward_keys": {"block_q": 32, "block_kv": 16}}
    )
    _, usual = built.module.attention(**given, return_aux=True)
    torch.testing.assert_close(aux.key_mass, usual.key_mass)


def test_a_second_run_gives_the_same_bits(build: Build) -> None:
    built = build(BODIES["sink"])
    given = operands(built, 20, 33)
    first, second = (run(built.module.attention, given) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_without_a_gradient_nothing_is_kept_for_one(build: Build) -> None:
    """lse passes from one kernel of the forward to the other; the call does not return it."""
    built = build(BODIES["key_mass_alone"])
    numbers = [None, 0.25, [-1] * len(built.module.FIELDS) * len(built.module.KERNELS)]
    given = operands(built, 9, 12)
    results = built.module.operator(*(given[name] for name in "qkv"), *numbers, False)
    assert [tuple(x.shape) for x in results] == [(2, 2, 9, 16), (2, 2, 12), (0,)]


@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])
def test_opcheck(build: Build, interpret: bool) -> None:
    built = build(BODIES["causal"], interpret)
    given = {name: x.requires_grad_() for name, x in operands(built, 9, 12).items()}
    schedule = [16, 16, *[-1] * (len(built.module.FIELDS) - 2)]
    numbers = [None, 0.25, schedule * len(built.module.KERNELS)]
    arguments = (*(given[name] for name in "qkv"), *numbers)
    with np.errstate(all="ignore"):
        torch.library.opcheck(built.module.operator, arguments)


def test_compiles_with_gradients_without_a_graph_break(build: Build) -> None:
    built = build(BODIES["causal"], False)
    torch._dynamo.reset()

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, aux = built.module.attention(q, k, v, return_aux=True)
        return out.sum() + (aux.entropy**2).sum() + (aux.key_mass**2).sum() + aux.max_score.sum()

    given = [operands(built, 9, 12)[name].requires_grad_() for name in "qkv"]
    eager = torch.autograd.grad(loss(*given), given)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for mine, right in zip(torch.autograd.grad(compiled(*given), given), eager, strict=True):
        torch.testing.assert_close(mine, right)
