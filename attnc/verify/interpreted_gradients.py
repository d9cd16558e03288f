"""Run the backward of a program on numpy in float64 and compare it with autograd.

Both are exact but for rounding, so that a wrong factor, term or derivative shows at once: this says
of the formulas of the backward what algebra says of those of the forward, as numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np

from attnc.ir.interface import GradientArgument
from attnc.ir.nodes import Kernel, Program
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case
from attnc.verify.evaluation import Environment, evaluate
from attnc.verify.gradient_calls import Pull, build_pull
from attnc.verify.gradient_truth import GradientTruth, differentiable, true_gradients
from attnc.verify.inputs import build_call
from attnc.verify.interpreted import as_numpy, difference, inputs_of, scalars_of, small_cases
from attnc.verify.interpreter import OutOfBounds, run, zeros_where_unwritten
from attnc.verify.obligations import Obligation
from attnc.verify.reference import Call, heads_first

DETAIL = "in float64 on {} small calls, to nine digits of what autograd gives"
CASES = 2

Arrays = dict[str, np.ndarray]


@dataclass
class Trial:
    """A small call with its right gradients; kernels that stay the same run once."""

    spec: AttentionSpec
    case: Case
    _made: dict[str, tuple[Kernel, Arrays, Arrays]] = field(default_factory=dict)

    @cached_property
    def asked(self) -> Pull:
        """The call, with cotangents."""
        wanted = differentiable(build_call(self.spec, self.case))
        return build_pull(self.spec, self.case, wanted)

    @cached_property
    def truth(self) -> GradientTruth:
        """What autograd gives."""
        return true_gradients(self.asked.call, self.asked.cotangents, self.asked.names)

    @cached_property
    def inputs(self) -> Arrays:
        """The tensors of the call and the cotangents, heads first."""
        found = inputs_of(self.asked.call)
        for name, tensor in self.asked.cotangents.items():
            turned = self.spec.layout == "bshd" and name == "out"
            found[f"grad_{name}"] = as_numpy(tensor.transpose(1, 2) if turned else tensor)
        return found

    def results(self, program: Program) -> Arrays:
        """Everything that the kernels store.

        Raises: OutOfBounds.
        """
        scalars = scalars_of(program, self.asked.call)
        found = dict(self.inputs)
        for kernel in program.kernels:
            read = {b.name: found[b.name] for b in kernel.buffers if b.name in found}
            before = self._made.get(kernel.name)
            if before is None or before[0] != kernel or not _same(before[1], read):
                alone = replace(program, kernels=(kernel,))
                made = run(alone, found, scalars, self.case.tiles or (16, 16))
                before = self._made[kernel.name] = (kernel, read, made)
            found |= before[2]
        return found


def trials_of(spec: AttentionSpec) -> tuple[Trial, ...]:
    """The small calls on which gradients are compared."""
    return tuple(Trial(spec, case) for case in islice(small_cases(spec), CASES))


def check_gradients(
    spec: AttentionSpec, program: Program, trials: Sequence[Trial] = ()
) -> Iterator[Obligation]:
    """One obligation for each operand whose gradient the program gives, in calls that want one."""
    if not spec.backward:
        return
    given = [one.operand for one in program.interface.gradients]
    problems = dict.fromkeys(given, "")
    trials = trials or trials_of(spec)
    for trial in trials if given else ():
        for name, problem in mismatches(program, trial):
            if problem and not problems[name]:
                problems[name] = f"{trial.case.name}: {problem}"
    for name, problem in problems.items():
        status = "failed" if problem else "checked numerically"
        detail = problem or DETAIL.format(len(trials))
        yield Obligation(f"the gradient of {name} is the spec's", status, detail)


def mismatches(program: Program, trial: Trial) -> Iterator[tuple[str, str]]:
    """For each operand that has a gradient, what is wrong with it; empty when nothing is."""
    given = program.interface.gradients
    spec, truth = trial.spec, trial.truth
    try:
        found = trial.results(program)
    except OutOfBounds as error:
        yield from ((one.operand, f"reads or writes out of bounds: {error}") for one in given)
        return
    for name in dict.fromkeys(one.operand for one in given):
        exact = truth.exact[name]
        if spec.layout == "bshd" and name in ("q", "k", "v"):
            exact = exact.transpose(1, 2)
        size = max(1.0, float(truth.sizes[name].max()))
        summed = np.zeros(exact.shape)
        for one in (one for one in given if one.operand == name):
            part = _added_up(found[one.buffer], one, spec.group)
            summed = summed + (
                _landed(part, one, exact.shape, trial.asked.call) if one.places else part
            )
        yield name, difference(summed / size, as_numpy(exact) / size) or ""


def _same(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def _added_up(found: np.ndarray, given: GradientArgument, group: int) -> np.ndarray:
    """Shares of programs, summed over what the operand lacks, in the order of its dimensions."""
    found = zeros_where_unwritten(found) if given.blank else found
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
