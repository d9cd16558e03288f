"""The naive kernels of the backward give the gradients of the dataflow, on numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from attnc.graph.derivative import differentiate
from attnc.graph.gradient_kernels import group_gradients
from attnc.graph.operations import Dataflow, Scatter
from attnc.graph.recompute import choose_kept
from attnc.ir.nodes import Level, Program
from attnc.ir.verifier import verify
from attnc.passes.order import PIPELINE
from attnc.plan.gradients import plan_gradients
from attnc.plan.interface import interface_of
from attnc.verify.interpreter import run
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
    for leaf, value in flow.gradients.items():
        axes = flow.values[value].axes
        if not axes or {"q", "k"} <= set(axes) or isinstance(flow.values[value], Scatter):
            continue  # of a number, a tensor with both axes, or read at an expression: not built
        wanted = dense.gradient(leaf).detach()
        got = torch.from_numpy(found[f"grad_{leaf}"])
        if leaf in ("k", "v"):
            pass
        elif leaf == "q":
            wanted = wanted.flatten(1, 2)
        else:
            got = _added_up(got, axes)
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-9, atol=1e-9, err_msg=leaf)


def _added_up(parts: Tensor, axes: tuple[str, ...]) -> Tensor:
    """Sum shares [batch, heads, rows or blocks] over what a gradient lacks."""
    groups = parts.shape[1] // LENGTHS["g"]
    parts = parts.reshape(parts.shape[0], LENGTHS["g"], groups, parts.shape[2])
    names = ("b", "g", "r", "k" if "k" in axes else "q")
    summed = [i for i, name in enumerate(names) if name not in axes]
    return parts.sum(summed) if summed else parts


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
