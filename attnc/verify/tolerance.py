"""How far a kernel may be from the truth: twice as far as plain PyTorch in its dtype.

A fixed tolerance fails good kernels and passes bad ones (FAULTS G04).  Here the float64 reference
is the truth, and a plain PyTorch computation in the kernel's own dtype says what its rounding
costs on these very inputs.  The floor is a few roundings (half units in the last place): of the
output's dtype at the output's scale, and of float32 at the largest score (an error of one there
moves every weight by as much; rule 9 grants each function of a formula 4 units).  With half
inputs a formula may use cheaper forms, whose error does not shrink with the score: lse is then
free by an eighth of a rounding of that dtype.

For gradients the plain computation is the recomputing backward in PyTorch, which rounds elements
once to the inputs' dtype for each product that they enter (gradient_truth).  The floor is the same
two roundings of the result; and of float32, times the largest score as before, because it moves
each weight, times the size of what is added up before anything cancels: where one key has all the
weight, dP - delta is 0 and its rounding is not.  A gradient of few elements (of a param, a gate, a
sink) may see the plain computation err by luck too little; roundings of the inputs' dtype that add
up to it are a random walk over rows and features, and two such walks are free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.verify.gradient_truth import GradientTruth
from attnc.verify.reference import Dense

FACTOR = 2.0  # times the error of plain PyTorch
OUT_ROUNDINGS = 2.0  # of the output's dtype that are free
SCORE_ROUNDINGS = 4.0  # of float32 at the largest score
HALF_LSE_ROUNDINGS = 1 / 8  # of the inputs' dtype, where that is fp16 or bf16


@dataclass(frozen=True, slots=True)
class Comparison:
    """One result held against the reference.

    `error` and `limit` are largest absolute differences; `compared` counts the elements;
    `problem` says what is wrong when no numbers need comparing to know it.
    """

    what: str  # of the results
    error: float = 0.0
    limit: float = 0.0
    compared: int = 0
    problem: str = ""
    note: str = ""  # why nothing was compared, where that is no fault
    undecided: bool = (
        False  # nothing could be run, for a reason that lies outside; the note says it
    )

    @property
    def ok(self) -> bool:
        """All is well.  An error that is NaN is not within any limit."""
        return self.status == "within"

    @property
    def status(self) -> str:
        """within | failed | undecided."""
        if self.undecided:
            return "undecided"
        return "within" if not self.problem and self.error <= self.limit else "failed"

    @property
    def ratio(self) -> float:
        """The error as a part of the limit; 0 where both are 0."""
        return self.error / self.limit if self.limit else (0.0 if self.error == 0 else torch.inf)


def compare_out(got: Tensor, truth: Dense, plain: Dense) -> Comparison:
    """Judge an output: `plain.out` has the dtype that `got` must have.

    A row without a visible key must be 0 exactly.
    """
    if problem := _misfit(got, truth.out.shape, plain.out.dtype, truth.out, plain.out):
        return Comparison("out", problem=problem)
    rows = truth.lse == -torch.inf
    if rows.shape != truth.out.shape[:-1]:
        rows = rows.transpose(1, 2)  # bshd
    if got[rows].count_nonzero():
        return Comparison("out", problem="a row without a visible key is not 0")
    floor = OUT_ROUNDINGS * _rounding(plain.out.dtype) + _score_floor(truth.largest)
    return _within("out", got, truth.out, plain.out, floor * _scale(truth.out))


def compare_lse(got: Tensor, truth: Dense, plain: Dense) -> Comparison:
    """Judge a log-sum-exp: float32, -inf exactly where no key is visible."""
    return compare_aux("lse", got, truth, plain)


def compare_aux(name: str, got: Tensor, truth: Dense, plain: Dense) -> Comparison:
    """Judge an extra output: float32, -inf exactly where the reference is.

    An error of the largest score moves every weight by as much, relative to it, and so a sum of
    weights by its size times as much, and an entropy by its size and one more.
    """
    exact, usual = truth.results[name], plain.results[name]
    if problem := _misfit(got, exact.shape, torch.float32, exact, usual):
        return Comparison(name, problem=problem)
    finite = exact.isfinite()
    if not torch.equal(got[~finite].double(), exact[~finite]):
        return Comparison(name, problem="not -inf where no key is visible")
    size = _scale(exact[finite])
    moved = {"entropy": 1 + size, "key_mass": max(1.0, size)}.get(name)
    scale = max(truth.largest, size) if moved is None else max(1.0, truth.largest) * moved
    floor = _score_floor(scale)
    if plain.out.dtype in (torch.float16, torch.bfloat16):
        floor += HALF_LSE_ROUNDINGS * _rounding(plain.out.dtype) * max(1.0, scale)
    return _within(name, got[finite], exact[finite], usual[finite], floor)


def compare_gradient(name: str, got: Tensor, truth: GradientTruth) -> Comparison:
    """Judge the gradient of one operand, in the operand's dtype."""
    what = f"grad {name}"
    exact, plain = truth.exact[name], truth.plain[name]
    if problem := _misfit(got, exact.shape, plain.dtype, exact, plain):
        return Comparison(what, problem=problem)
    if name in truth.unreached and got[truth.unreached[name]].count_nonzero():
        return Comparison(what, problem="not 0 where no query and key see each other")
    floor = OUT_ROUNDINGS * _rounding(plain.dtype) * _scale(exact)
    floor += (_score_floor(truth.largest) + _walk(name, truth)) * _scale(truth.sizes[name])
    return _within(what, got, exact, plain, floor)


def _walk(name: str, truth: GradientTruth) -> float:
    """Roundings of the inputs' dtype, as a part of the sizes that are added up."""
    if name in ("q", "k", "v"):
        return 0.0
    terms = max(1.0, truth.rows / max(1, truth.exact[name].numel())) * truth.features
    return OUT_ROUNDINGS * _rounding(truth.dtype) / math.sqrt(terms)


def _misfit(
    got: Tensor, shape: torch.Size, dtype: torch.dtype, truth: Tensor, plain: Tensor
) -> str:
    if got.shape != shape:
        return f"shape {list(got.shape)} instead of {list(shape)}"
    if got.dtype is not dtype:
        return f"dtype {got.dtype} instead of {dtype}"
    if truth.isnan().any() or plain.isnan().any():
        return "the reference itself has a NaN: these inputs judge nothing"
    if count := int(got.isnan().sum()):
        return f"{count} of {got.numel()} elements are NaN"
    return ""


def _within(what: str, got: Tensor, truth: Tensor, plain: Tensor, floor: float) -> Comparison:
    if not got.numel():
        return Comparison(what)
    limit = FACTOR * _distance(plain, truth) + floor
    return Comparison(what, _distance(got, truth), limit, got.numel())


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


def _scale(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _score_floor(scale: float) -> float:
    return SCORE_ROUNDINGS * _rounding(torch.float32) * max(1.0, scale)


def _rounding(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2
