"""Ask a module for gradients as a user would: by autograd, of leaves that require them.

The cotangents are as cruel as the operands: stored strangely, and NaN in the rows that give
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from attnc.runtime.accesses import refuse_stray_accesses
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case
from attnc.verify.gradient_truth import silent_rows
from attnc.verify.guards import watch
from attnc.verify.inputs import DTYPES, build_call, on_device, store
from attnc.verify.reference import Call, dense, scale_of
from attnc.verify.ways import Way, ask, contained, quiet, strides_of

Gradients = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Pull:
    """One backward: what gradients are asked of, and the cotangents by the outputs' names."""

    call: Call
    names: tuple[str, ...]
    cotangents: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Pulled:
    """What came.

    results: of the forward, by name, as it is run where gradients are wanted.  overrun: something
    beside a result was overwritten.
    """

    gradients: Gradients
    results: Mapping[str, Tensor]
    overrun: bool = False


def build_pull(
    spec: AttentionSpec,
    case: Case,
    names: tuple[str, ...],
    *,
    poisoned: bool = True,
    device: str = "cpu",
) -> Pull:
    """The call of a case with a cotangent for every output; equal arguments give equal bits."""
    call = build_call(spec, case, poisoned=poisoned, closed_too=False)
    numbers = {n: _in_float32(x) if isinstance(x, float) else x for n, x in call.params.items()}
    call = replace(call, params=numbers)
    call = replace(call, scale=_in_float32(float(scale_of(call))))
    draw = torch.Generator().manual_seed(case.seed + 1)
    silent = silent_rows(call, dense(call).lse)
    rows = silent["lse"].shape
    shape = (*rows, spec.head_dim_v)
    if case.storage == "expanded":
        shape = (1, 1, *shape[2:])
    drawn = {"out": torch.randn(shape, generator=draw).expand(*rows, -1)}
    shapes = {"lse": rows, "entropy": rows, "key_mass": silent["key_mass"].shape}
    drawn |= {n: torch.randn(shapes[n], generator=draw) for n in spec.outputs if n in shapes}
    shared = case.storage == "expanded"
    cotangents = {}
    for name, values in drawn.items():
        hushed = silent[name]
        hushed = hushed.all(0).all(0).expand(hushed.shape) if shared else hushed
        hushed = hushed[(..., *[None] * (values.dim() - hushed.dim()))]
        values = values / max(1.0, case.magnitude)
        values = values.to(DTYPES[case.dtype] if name == "out" else torch.float32)
        values = values.masked_fill(hushed, torch.nan if poisoned else 0.5)
        view = store(values, case.storage, "q" if name == "out" else name)
        turned = spec.layout == "bshd" and name == "out"
        cotangents[name] = on_device(view.transpose(1, 2) if turned else view, device)
    tensors = {name: on_device(tensor, device) for name, tensor in call.tensors.items()}
    return Pull(replace(call, tensors=tensors), names, cotangents)


def _in_float32(number: float) -> float:
    return float(torch.tensor(number, dtype=torch.float32))


def pull(way: Way, asked: Pull, case: Case) -> Pulled:
    """Run forward and backward.

    Raises: Misbehaved.
    """

    def lay(shape: Sequence[int]) -> Sequence[int] | None:
        return strides_of(shape, case.storage, asked.call.spec.layout)

    with contained(), watch(lay) as watched, refuse_stray_accesses(), quiet():
        found, results = _differentiated(way, asked, case)
    return Pulled(found, results, watched.overrun)


def pull_fake(way: Way, asked: Pull, case: Case) -> Gradients:
    """Run both with tensors that have no content: the operators' fakes answer.

    Raises: Misbehaved.
    """
    with contained(), FakeTensorMode() as mode:
        tensors = {n: mode.from_tensor(tensor) for n, tensor in asked.call.tensors.items()}
        given = {n: mode.from_tensor(tensor) for n, tensor in asked.cotangents.items()}
        known = tuple(name for name in asked.names if name in tensors)
        call = replace(asked.call, tensors=tensors)
        return _differentiated(way, Pull(call, known, given), case)[0]


def _differentiated(way: Way, asked: Pull, case: Case) -> tuple[Gradients, Gradients]:
    """The gradients that came, and the results: autograd gives none of what nothing depends on."""
    call, leaves = _with_leaves(asked)
    answer = ask(way, call.tensors, call, case)
    given = {name: answer.results[name] for name in asked.cotangents}
    reached = [name for name, result in given.items() if result.requires_grad]
    found = torch.autograd.grad(
        [given[name] for name in reached],
        [*leaves.values()],
        [asked.cotangents[name] for name in reached],
        allow_unused=True,
    )
    pairs = zip(leaves, found, strict=True)
    results = {name: result.detach() for name, result in answer.results.items()}
    return {name: gradient for name, gradient in pairs if gradient is not None}, results


def _with_leaves(asked: Pull) -> tuple[Call, Gradients]:
    call, leaves = asked.call, {}
    for name in asked.names:
        value = call.scale if name == "scale" else call.params.get(name, call.tensors.get(name))
        made = value.detach() if isinstance(value, Tensor) else torch.tensor(value)
        leaves[name] = made.requires_grad_()
    tensors = {name: leaves.get(name, tensor) for name, tensor in call.tensors.items()}
    params = {name: leaves.get(name, number) for name, number in call.params.items()}
    scale = leaves.get("scale", call.scale)
    return replace(call, tensors=tensors, params=params, scale=scale), leaves
