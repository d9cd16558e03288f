"""The front door in training: what a step keeps, runs and gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.codegen.test_gradients import call_of, launches
from tests.faults.judge import Build, Built

GATED = "backward: true\noutputs: []\nmask: causal\nhead_gate: true\nheads: {q: 4, kv: 2}"


def both(built: Built, call: dict[str, Tensor], names: tuple[str, ...]) -> list[list[Tensor]]:
    """The gradients of a loss in the interpreter and through the dense reference."""
    found: list[list[Tensor]] = []
    for function in (built.module.attention, built.module.reference):
        leaves = {name: call[name].detach().requires_grad_() for name in names}
        out = function(**{**call, **leaves})
        draw = torch.Generator().manual_seed(3)
        loss = (out * torch.randn(out.shape, generator=draw)).sum()
        with np.errstate(all="ignore"):  # what the mask hides may overflow
            found.append(list(torch.autograd.grad(loss, list(leaves.values()))))
    return found


@pytest.mark.parametrize("rest", ["", "sink: per_head\nlayout: bshd", "dropout: true"])
def test_a_closed_gate_has_its_gradient_and_opens_again(build: Build, rest: str) -> None:
    built = build(f"{GATED}\n{rest}")
    call = call_of(built, 20, 37)
    call["head_gate"] = torch.tensor([0.0, 1.5, 0.0, 0.0])  # the second key/value head: all closed
    names = ("q", "k", "v", "head_gate", *(("sink",) if built.spec.sink else ()))
    ours, truth = both(built, call, names)
    for name, mine, right in zip(names, ours, truth, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5, msg=name)
    assert ours[3].all()  # of the gates


def test_a_closed_head_is_computed_only_where_a_gradient_is_wanted(build: Build) -> None:
    built = build(GATED)
    call = call_of(built)
    kept: list[bool] = []
    for wanted in ((), ("head_gate",), ("q",)):
        leaves = {name: call[name].detach().requires_grad_() for name in wanted}
        with launches(built.module) as noted:
            built.module.attention(**{**call, **leaves})
        kept.append(noted["forward"]["KEEP"])
    assert kept == [False, True, True]


EVERYTHING = (
    "backward: true\noutputs: [lse]\nmask: causal & (q_idx > 1)\nheads: {q: 4, kv: 2}\n"
    "head_dim: {qk: 16, v: 24}\nlayout: bshd\nsink: per_head\nhead_gate: true\n"
    "params: {w: {type: float, default: 0.5}}\n"
    "tensors: {x: {shape: [heads, q_len, kv_len], grad: true}, u: {shape: [kv_len], grad: true}}\n"
    "score: softcap(score, 5) * w + x[h, q_idx, kv_idx] + u[kv_idx]"
)
PLAIN = "backward: true\noutputs: []\nmask: causal"
LEARNED = ("q", "k", "v", "x", "u", "head_gate", "sink", "w", "scale")


def learned(built: Built, q_len: int = 6, kv_len: int = 7) -> dict[str, Tensor]:
    """Every operand, each as a leaf."""
    torch.manual_seed(5)
    call = call_of(built, q_len, kv_len)
    call |= {param.name: torch.tensor(0.7) for param in built.spec.params}
    call["scale"] = torch.tensor(0.3)
    return {name: tensor.requires_grad_() for name, tensor in call.items()}


def loss_of(results: tuple[Tensor, tuple[Tensor, ...]]) -> Tensor:
    out, aux = results
    return out.square().sum() + sum(one.where(one.isfinite(), 0.0).sum() for one in aux)


@pytest.mark.parametrize(
    ("body", "kept"),
    [(PLAIN, {"out", "lse"}), (GATED, {"ungated", "lse"}), (EVERYTHING, {"ungated", "lse"})],
    ids=["plain", "gates", "everything"],
)
def test_what_is_saved_is_the_inputs_out_and_lse(build: Build, body: str, kept: set[str]) -> None:
    built = build(body)
    sizes: dict[int, int] = {}
    for length in (16, 32):
        call = learned(built, length, length)
        saved: dict[int, Tensor] = {}

        def note(tensor: Tensor, saved: dict[int, Tensor] = saved) -> Tensor:
            saved[tensor.data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            built.module.attention(**call)
        mine = {tensor.data_ptr() for tensor in call.values()}
        made = [tensor for address, tensor in saved.items() if address not in mine]
        assert len(made) == len(kept)
        assert set(saved) - {tensor.data_ptr() for tensor in made} == mine
        sizes[length] = sum(tensor.numel() * tensor.element_size() for tensor in made)
        rows = 2 * built.spec.heads_q * length
        assert sizes[length] == 4 * rows * (built.spec.head_dim_v + 1)
    assert sizes[32] == 2 * sizes[16]


def test_gradients_are_those_of_differences(build: Build) -> None:
    """As `gradcheck` measures them in float32."""
    built = build(EVERYTHING)
    call = learned(built, 4, 5)

    def run(*operands: Tensor) -> tuple[Tensor, Tensor]:
        out, aux = built.module.attention(**dict(zip(call, operands, strict=True)), return_aux=True)
        return out, aux.lse.where(aux.lse.isfinite(), 0.0)

    torch.autograd.gradcheck(
        run, tuple(call.values()), eps=2e-2, atol=2e-2, rtol=2e-2, fast_mode=True
    )  # fmt: skip


@pytest.mark.parametrize("body", [PLAIN, EVERYTHING], ids=["plain", "everything"])
def test_a_step_of_training_compiles_without_a_graph_break(build: Build, body: str) -> None:
    built = build(body, False)
    torch._dynamo.reset()

    def step(call: dict[str, Tensor]) -> Tensor:
        return loss_of(built.module.attention(**call, return_aux=True))

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    for sizes in ((6, 7), (9, 5)):
        call = learned(built, *sizes)
        ours, eager = (torch.autograd.grad(f(call), list(call.values())) for f in (compiled, step))
        for name, mine, right in zip(call, ours, eager, strict=True):
            torch.testing.assert_close(mine, right, msg=name)


@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])
def test_opcheck_of_all_that_has_a_gradient(build: Build, interpret: bool) -> None:
    built = build(EVERYTHING, interpret)
    call = learned(built)
    tensors = [call[name] for name in ("q", "k", "v", "x", "u", "head_gate", "sink", "w", "scale")]
    torch.library.opcheck(
        built.module.operator, (*tensors, None, None, built.module._tiles(None), True)
    )


def test_autocast_changes_no_gradient(build: Build) -> None:
    built = build(EVERYTHING)
    call = learned(built)
    found = []
    for on in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            loss = loss_of(built.module.attention(**call, return_aux=True))
        found.append(torch.autograd.grad(loss, list(call.values())))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("sizes", [(0, 2, 3), (2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_sizes_of_nothing_give_zeros(build: Build, sizes: tuple[int, int, int]) -> None:
    built = build(EVERYTHING)
    batch, q_len, kv_len = sizes
    call = learned(built, q_len, kv_len)
    if not batch:
        call |= {name: call[name].detach()[:0].requires_grad_() for name in ("q", "k", "v")}
    out, aux = built.module.attention(**call, return_aux=True)
    cotangents = (torch.ones_like(out), torch.zeros_like(aux.lse))
    found = torch.autograd.grad((out, aux.lse), list(call.values()), cotangents)
    for (name, operand), gradient in zip(call.items(), found, strict=True):
        assert gradient.shape == operand.shape and not gradient.any(), name


def test_i04_functional_gradients_are_those_of_the_dense_form_alone(build: Build) -> None:
    """PyTorch has no functional transforms for custom operators, and says so."""
    built = build(PLAIN)
    call = call_of(built)
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda q: built.module.attention(**{**call, "q": q}).sum())(call["q"])
    mine = torch.func.grad(lambda q: built.module.reference(**{**call, "q": q}).sum())(call["q"])
    leaf = call["q"].detach().requires_grad_()
    (right,) = torch.autograd.grad(built.module.attention(**{**call, "q": leaf}).sum(), leaf)
    torch.testing.assert_close(mine, right)


def test_i04_vmap_maps_what_a_loop_does_without_gradients(build: Build) -> None:
    built = build(PLAIN)
    q, k, v = (torch.randn(3, *shape) for shape in ((1, 2, 6, 16), (1, 1, 7, 16), (1, 1, 7, 16)))
    mapped = torch.vmap(built.module.attention)(q, k, v)
    each = [built.module.attention(*operands) for operands in zip(q, k, v, strict=True)]
    torch.testing.assert_close(mapped, torch.stack(each))
    with pytest.raises(RuntimeError) as caught:
        torch.vmap(built.module.attention)(q.requires_grad_(), k, v)
    assert str(caught.value) == (
        "sample: the operator was told to keep nothing for a gradient, and one is wanted; "
        "torch.vmap hides that it is: fold what it maps into the batch"
    )


def test_a_second_gradient_names_the_way_out(build: Build) -> None:
    built = build(PLAIN)
    call = {name: tensor.requires_grad_() for name, tensor in call_of(built).items()}
    loss = built.module.attention(**call).square().sum()
    (first,) = torch.autograd.grad(loss, call["q"], create_graph=True)
    with pytest.raises(NotImplementedError) as caught:
        first.sum().backward()
    assert str(caught.value) == (
        "sample: a gradient of a gradient is not built; take it of `reference`, which is dense, "
        "or detach the first"
    )


@pytest.mark.parametrize(
    "score",
    ["score - x[h] * kv_idx", "score + log(2 + kv_idx * exp(w)) - exp(w) * q_idx**2 / 9",
     "score - x[h] * kv_idx + exp(x[h]) * q_idx + x[h] * score - w * kv_idx + w * q_idx"],
    ids=["keys", "rows and keys", "all"],
)  # fmt: skip
def test_what_reaches_the_score_by_rows_and_by_keys_has_a_gradient(
    build: Build, score: str
) -> None:
    lines = ["backward: true\nmask: causal\nheads: {q: 4, kv: 2}", f"score: {score}"]
    lines += ["tensors: {x: {shape: [heads], grad: true}}"] if "x[" in score else []
    lines += ["params: {w: {type: float, default: 0.5}}"] if "w" in score else []
    built = build("\n".join(lines))
    call = {name: tensor.detach() for name, tensor in learned(built, 20, 37).items()}
    names = tuple(name for name in call if name not in ("q", "k", "v"))
    for name, mine, right in zip(names, *both(built, call, names), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-3, msg=name)
