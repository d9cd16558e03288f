"""Run a call through the numpy interpreter and compare it with the dense reference.

Both compute in float64, so that they differ by rounding only; anything more is a fault of the
program.  The tensors hold NaN wherever the program may not look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from attnc.ir.nodes import Program
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case, cases_for
from attnc.verify.inputs import build_call
from attnc.verify.interpreter import OutOfBounds, run
from attnc.verify.reference import Call, dense, dropout_cutoff, heads_first, scale_of

TOLERANCE = 1e-9  # relative; float64 rounding over a few hundred terms stays below 1e-12
SIZES = ((1, 37, 50), (2, 50, 21), (1, 5, 70))  # batch, q_len, kv_len


def small_cases(spec: AttentionSpec) -> Iterator[Case]:
    """Cases that meet tails, empty rows, one and several tiles, either sign of the scale."""
    heads = spec.heads_kv if spec.fixes_heads else 2
    params = dict(next(iter(cases_for(spec))).params)
    for seed, (batch, q_len, kv_len) in enumerate(SIZES):
        scale = -0.3 if seed == 1 else None
        yield Case(
            f"{q_len} queries, {kv_len} keys",
            batch,
            heads,
            q_len,
            kv_len,
            "fp32",
            (16, 16),
            scale=scale,
            params=tuple(params.items()),
            seed=seed,
            dropout_p=0.3 if spec.dropout else 0.0,
        )


def interpret(program: Program, call: Call, tiles: tuple[int, int]) -> dict[str, np.ndarray]:
    """Run a program on a call's tensors; outputs are [B, H, S, D] in float64.

    Raises: OutOfBounds.
    """
    return run(forward_of(program), inputs_of(call), scalars_of(program, call), tiles)


def forward_of(program: Program) -> Program:
    """The kernels up to the last one that makes an output of the call."""
    outputs = {"out", *program.interface.outputs}
    makes = [
        any(b.name in outputs and b.role == "output" for b in k.buffers) for k in program.kernels
    ]
    last = max(number for number, is_one in enumerate(makes) if is_one)
    return replace(program, kernels=program.kernels[: last + 1])


def inputs_of(call: Call) -> dict[str, np.ndarray]:
    """The tensors of a call, heads first."""
    q, k, v = (as_numpy(tensor) for tensor in heads_first(call))
    inputs = {name: as_numpy(tensor) for name, tensor in call.tensors.items()}
    if call.spec.dropout:
        inputs["dropout_seed"] = np.array(call.dropout_seed)
    return inputs | {"q": q, "k": k, "v": v}


def scalars_of(program: Program, call: Call) -> dict[str, int | float]:
    """The params of a call, its scale and the sign of that."""
    scale = float(scale_of(call))
    numbers = {n: x.item() if isinstance(x, torch.Tensor) else x for n, x in call.params.items()}
    scalars: dict[str, int | float] = {**numbers, "scale": scale, "keep": call.spec.backward}
    for scalar in program.kernels[0].scalars:
        if scalar.kind == "sign":
            scalars[scalar.name] = -1 if scale < 0 else 1
    if call.spec.dropout:
        scalars |= {
            "has_dropout_seed": call.dropout_p > 0,
            "dropout_cutoff": dropout_cutoff(call.dropout_p),
            "dropout_factor": 1 / (1 - call.dropout_p),
        }
    return scalars


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor for the numpy interpreter: reals in float64."""
    tensor = tensor.detach()
    real = tensor.dtype.is_floating_point
    return (tensor.to(torch.float64) if real else tensor).numpy(force=True)


def mismatch(program: Program, spec: AttentionSpec, case: Case) -> str | None:
    """What is wrong with a program's results in a case; None when nothing is."""
    call = build_call(spec, case)
    expected = dense(call)
    wanted = expected.results
    if spec.layout == "bshd":
        wanted["out"] = wanted["out"].transpose(1, 2)
    try:
        found = interpret(program, call, case.tiles or (16, 16))
    except OutOfBounds as error:
        return f"reads or writes out of bounds: {error}"
    for name, array in found.items():
        if name not in wanted:
            continue  # kept for the backward
        problem = difference(array, as_numpy(wanted[name]))
        if problem:
            return f"{name} {problem}"
    return None if found else "nothing is stored"


def difference(found: np.ndarray, wanted: np.ndarray) -> str | None:
    """The first element that is wrong; None when none is."""
    if found.shape != wanted.shape:
        return f"has shape {found.shape}, not {wanted.shape}"
    with np.errstate(all="ignore"):
        close = np.isclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    if close.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"is {found[at]:.6g} at {at}, not {wanted[at]:.6g}"
