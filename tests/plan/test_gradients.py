"""The naive kernels of the backward give the gradients of the dataflow, on numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from attnc.graph.derivative import differentiate
from attnc.graph.gradient_kernels import group_gradients
from attnc.graph.operations import Dataflow
from attnc.graph.recompute import choose_kept
from attnc.ir.interface import GradientArgument
from attnc.ir.nodes import Level, Program
from attnc.ir.verifier import verify
from attnc.passes.order import PIPELINE
from attnc.plan.gradients import plan_gradients
from attnc.plan.interface import interface_of
from attnc.verify.interpreter import run
from attnc.verify.torch_formulas import Meanings, evaluate
from tests.graph.dense import Dense
from tests.graph.test_derivative import BODIES, LENGTHS, flow_of, inputs_of

SIZES = "sizes: {batch: 2, q_len: 512, kv_len: 512}\n"  # nominal: p is not kept
SHAPES = {"q": "bgrqd", "k": "bgkd", "v": "bgke"}


def backward_of(body: str) -> Dataflow:
    return group_gradients(choose_kept(differentiate(flow_of(SIZES + body))))


def program_of(flow: Dataflow) -> Program:
    return Program(interface_of(flow), plan_gradients(flow))


def buffers_of(flow: Dataflow, dense: Dense, tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """The inputs of the backward kernels: heads are groups times members."""

    def heads(value: Tensor) -> np.ndarray:
        return value.detach().flatten(1, 2).numpy()

    made = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    made["q"] = heads(tensors["q"])
    kept = {name: dense.along(dense.values[name], flow.values[name].axes) for name in flow.kept}
    made |= {name: heads(value) for name, value in kept.items()}
    return made


def gradients(
    flow: Dataflow, program: Program, blocks: tuple[int, int] = (16, 16)
) -> tuple[dict[str, np.ndarray], Dense]:
    tensors, numbers = inputs_of(flow)
    draw = torch.Generator().manual_seed(1)
    given = {
        f"grad_{output}": torch.randn(
            [LENGTHS[axis] for axis in flow.values[value].axes], generator=draw, dtype=torch.float64
        )
        for output, value in flow.outputs.items()
    }
    dense = Dense(flow, LENGTHS, {**tensors, **given}, numbers)
    buffers = buffers_of(flow, dense, tensors)
    buffers |= {name: value.flatten(1, 2).numpy() for name, value in given.items()}
    scalars = {name: value.item() for name, value in numbers.items()}
    return run(program, buffers, scalars, blocks), dense


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_naive_kernels_give_the_gradients(body: str) -> None:
    flow = backward_of(body)
    program = program_of(flow)
    verify(program, Level.NAIVE)
    check(*gradients(flow, program))


def check(found: dict[str, np.ndarray], dense: Dense) -> None:
    """Compare every gradient, programs' shares added up."""
    flow = dense.flow
    parts = interface_of(flow).gradients
    for leaf in flow.gradients:
        mine = [part for part in parts if part.operand == leaf]
        if not mine:
            assert leaf not in (tensor.name for tensor in flow.spec.tensors)
            continue  # a number: not built yet
        got = sum((_whole(part, found, dense) for part in mine), torch.zeros(()))
        wanted = dense.gradient(leaf).detach()
        np.testing.assert_allclose(
            got.reshape(wanted.shape).numpy(), wanted.numpy(), rtol=1e-9, atol=1e-9, err_msg=leaf
        )


def _whole(part: GradientArgument, found: dict[str, np.ndarray], dense: Dense) -> Tensor:
    """What a part adds to a gradient, in the operand's shape."""
    made = torch.from_numpy(found[part.buffer])
    if not part.shares:
        return torch.nan_to_num(made) if part.blank else made
    names = list(part.shares)
    if "g" in part.dims and "h" in names:
        made, names = made.unflatten(1, (LENGTHS["g"], -1)), [names[0], "g", "r", *names[2:]]
    summed = [i for i, name in enumerate(names) if name not in part.dims]
    made = made.sum(summed) if summed else made
    names = [name for name in names if name in part.dims]
    if not part.places:
        return made.permute([names.index(dim) for dim in part.dims])
    return _landed(part, made, names, dense)


def _landed(part: GradientArgument, shares: Tensor, names: list[str], dense: Dense) -> Tensor:
    """Add shares one by one to the elements where they land."""
    whole = torch.zeros(dense.tensors[part.operand].shape, dtype=torch.float64)
    q_len, kv_len = LENGTHS["q"], LENGTHS["k"]
    positions = {"b": "b", "h": "h", "g": "h_kv", "q": "q_idx", "k": "kv_idx", "n": "distance"}
    for at in np.ndindex(shares.shape):
        known = {
            positions[name]: torch.tensor(number) for name, number in zip(names, at, strict=True)
        }
        if "distance" in known:
            known["distance"] = known["distance"] + (1 - kv_len)
        if "h" in known:
            known["h_kv"] = known["h"] // LENGTHS["r"]
        if "q_idx" in known:
            known["q_pos"] = known["q_idx"] + kv_len - q_len
        known |= {"q_len": torch.tensor(q_len), "kv_len": torch.tensor(kv_len)}
        meanings = Meanings(dense.values | known, dense.tensors)
        place = tuple(int(evaluate(index, meanings)) for index in part.places)
        if all(0 <= p < size for p, size in zip(place, whole.shape, strict=True)):
            whole[place] += shares[at]
    return whole


MASKS = (
    "causal & sliding_window(3)",
    "window(2, 1) | (kv_idx < 2)",
    "causal & (q_pos - kv_idx < 2 * (h + 1))",
    "(q_pos - kv_idx) % 3 == 0",
    "causal & (q_pos // 4 == kv_idx // 4)",
    "causal | prefix(3)",
)


@pytest.mark.parametrize("blocks", [(16, 16), (2, 4), (4, 2)])
@pytest.mark.parametrize("body", [*BODIES.values(), *(f"mask: {mask}" for mask in MASKS)])
def test_ready_kernels_give_the_gradients(body: str, blocks: tuple[int, int]) -> None:
    flow = backward_of(body)
    program = PIPELINE.run(program_of(flow))
    found, dense = gradients(flow, program, blocks)
    check(found, dense)
