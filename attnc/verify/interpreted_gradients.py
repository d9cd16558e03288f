"""Run the backward of a program on numpy in float64 and compare it with autograd.

Both are exact but for rounding, so that a wrong factor, term or derivative shows at once: this says
of the formulas of the backward what algebra says of those of the forward, as numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from attnc.ir.interface import GradientArgument
from attnc.ir.nodes import Program
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case
from attnc.verify.evaluation import Environment, evaluate
from attnc.verify.gradient_calls import build_pull
from attnc.verify.gradient_truth import differentiable, true_gradients
from attnc.verify.inputs import build_call
from attnc.verify.interpreted import as_numpy, difference, inputs_of, scalars_of, small_cases
from attnc.verify.interpreter import OutOfBounds, run
from attnc.verify.obligations import Obligation
from attnc.verify.reference import Call, heads_first

DETAIL = "in float64 on {} small calls, to nine digits of what autograd gives"
CASES = 2


def check_gradients(spec: AttentionSpec, program: Program) -> Iterator[Obligation]:
    """One obligation for each operand whose gradient the program gives."""
    given = [one.operand for one in program.interface.gradients]
    problems = dict.fromkeys(given, "")
    cases = list(islice(small_cases(spec), CASES)) if given else []
    for case in cases:
        for name, problem in mismatches(program, spec, case):
            if problem and not problems[name]:
                problems[name] = f"{case.name}: {problem}"
    for name, problem in problems.items():
        status = "failed" if problem else "checked numerically"
        detail = problem or DETAIL.format(len(cases))
        yield Obligation(f"the gradient of {name} is the spec's", status, detail)


def mismatches(program: Program, spec: AttentionSpec, case: Case) -> Iterator[tuple[str, str]]:
    """For each operand that has a gradient, what is wrong with it; empty when nothing is."""
    given = program.interface.gradients
    wanted = differentiable(build_call(spec, case))
    asked = build_pull(spec, case, wanted)
    truth = true_gradients(asked.call, asked.cotangents, wanted)
    turned = spec.layout == "bshd"
    inputs = inputs_of(asked.call)
    for name, tensor in asked.cotangents.items():
        inputs[f"grad_{name}"] = as_numpy(
            tensor.transpose(1, 2) if turned and name == "out" else tensor
        )
    try:
        found = run(program, inputs, scalars_of(program, asked.call), case.tiles or (16, 16))
    except OutOfBounds as error:
        yield from ((one.operand, f"reads or writes out of bounds: {error}") for one in given)
        return
    for one in given:
        exact = truth.exact[one.operand]
        if turned and one.operand in ("q", "k", "v"):
            exact = exact.transpose(1, 2)
        summed = _added_up(found[one.buffer], one, spec.group)
        size = max(1.0, float(truth.sizes[one.operand].max()))
        if one.places:
            summed = _landed(summed, one, exact.shape, asked.call)
        problem = difference(summed / size, as_numpy(exact) / size)
        yield one.operand, problem or ""


def _added_up(found: np.ndarray, given: GradientArgument, group: int) -> np.ndarray:
    """Shares of programs, summed over what the operand lacks, in the order of its dimensions."""
    found = np.nan_to_num(found, nan=0.0) if given.blank else found
    if not given.shares:
        return found
    names = list(given.shares)
    if "g" in given.dims:
        at = names.index("h")
        found = found.reshape(*found.shape[:at], -1, group, *found.shape[at + 1 :])
        names[at : at + 1] = ["g", "member"]
    lacking = tuple(n for n, name in enumerate(names) if name not in given.dims)
    kept = [name for name in names if name in given.dims]
    return found.sum(lacking).transpose([kept.index(name) for name in given.dims])


def _landed(
    parts: np.ndarray, given: GradientArgument, shape: tuple[int, ...], call: Call
) -> np.ndarray:
    """Add what varies along `dims` to the elements at `places`; none outside of the tensor."""
    q, k, _ = heads_first(call)
    lengths = {"q_len": q.shape[2], "kv_len": k.shape[2]}
    grids = dict(zip(given.dims, np.indices(parts.shape), strict=True))
    names = {"b": "b", "h": "h", "g": "h_kv", "q": "q_idx", "k": "kv_idx"}
    values = {names[dim]: grid for dim, grid in grids.items() if dim in names}
    if "n" in grids:
        values["distance"] = grids["n"] + 1 - lengths["kv_len"]
    known = Environment({**lengths, **values, **call.params}, inputs_of(call))
    at = [np.broadcast_to(evaluate(place, known), parts.shape) for place in given.places]
    sizes = zip(at, shape, strict=True)
    inside = np.logical_and.reduce([(i >= 0) & (i < size) for i, size in sizes])
    landed = np.zeros(shape)
    np.add.at(landed, tuple(index[inside] for index in at), parts[inside])
    return landed
