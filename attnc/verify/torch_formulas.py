"""Evaluate a spec's formula on torch tensors.

The judge's own reading of sympy: it shares nothing with the printers that write kernels.
Integers stay int64, so that positions and comparisons are exact; reals are computed in the dtype
the caller asks for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from sympy import Basic
from sympy.logic import boolalg
from torch import Tensor

from attnc import symbols
from attnc.verify.philox import random_number

FURTHEST = 2**62  # a floor further out stands there: a cast of what 64 bits lack has no meaning

Fold = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Meanings:
    """What the names of a formula stand for.

    `values` holds tensors that broadcast against each other, by the symbol's name; `tensors` what
    Read reads.
    """

    values: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]
    real: torch.dtype = torch.float64
    taken: tuple[Tensor, ...] = ()  # conditions without which a part does not count
    _memo: dict[Basic, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def within(self, condition: Tensor) -> Meanings:
        """The same, but no gradient passes where the condition fails.

        Why: a derivative may be infinite there, and 0 times that is NaN.
        """
        if not any(t.requires_grad for t in (*self.values.values(), *self.tensors.values())):
            return self
        return replace(self, taken=(*self.taken, condition), _memo={})

    def leaf(self, value: Tensor) -> Tensor:
        """A value with a gradient only where it counts."""
        for condition in self.taken if value.requires_grad else ():
            value = torch.where(condition, value, value.detach())
        return value


def evaluate(formula: Basic, meanings: Meanings) -> Tensor:
    """Evaluate a formula: int64, bool or `meanings.real`, of the broadcast shape of what it names.

    Raises: KeyError for a name without a meaning; NotImplementedError for an unknown function.
    """
    memo = meanings._memo
    if formula not in memo:
        memo[formula] = _evaluate(formula, meanings)
    return memo[formula]


def _evaluate(formula: Basic, meanings: Meanings) -> Tensor:
    if isinstance(formula, sympy.Symbol):
        return meanings.leaf(meanings.values[formula.name])
    if (constant := _constant(formula, meanings.real)) is not None:
        return constant
    if (rule := _RULES.get(formula.func)) is not None:
        return rule(formula, meanings)
    args = [evaluate(arg, meanings) for arg in formula.args]
    for kind, fold in _FOLDS.items():
        if isinstance(formula, kind):
            return functools.reduce(fold, args)
    if (function := _FUNCTIONS.get(formula.func)) is None:
        raise NotImplementedError(f"the reference knows no {formula.func.__name__}")
    if formula.func in _ON_REALS:
        args = [arg.to(meanings.real) for arg in args]
    return function(*args)


def _constant(formula: Basic, real: torch.dtype) -> Tensor | None:
    if isinstance(formula, boolalg.BooleanAtom):
        return torch.tensor(bool(formula))
    if isinstance(formula, sympy.Integer) and abs(int(formula)) < 2**63:
        return torch.tensor(int(formula), dtype=torch.int64)
    if isinstance(formula, sympy.Number | sympy.NumberSymbol):
        return torch.tensor(float(formula), dtype=real)
    return None


def _read(read: symbols.Read, meanings: Meanings) -> Tensor:
    """An element of a user tensor, 0 for an index outside: rule 5."""
    tensor = meanings.tensors[read.tensor]
    tensor = tensor.to(meanings.real if tensor.is_floating_point() else torch.int64)
    indices = torch.broadcast_tensors(*(evaluate(index, meanings) for index in read.indices))
    if not tensor.numel():
        return torch.zeros(indices[0].shape, dtype=tensor.dtype)
    sizes = zip(indices, tensor.shape, strict=True)
    inside = functools.reduce(torch.logical_and, [(i >= 0) & (i < size) for i, size in sizes])
    safe = tuple(torch.where(inside, index, 0) for index in indices)
    return meanings.leaf(torch.where(inside, tensor[safe], torch.zeros((), dtype=tensor.dtype)))


def _power(power: sympy.Pow, meanings: Meanings) -> Tensor:
    base, exponent = (evaluate(arg, meanings) for arg in power.args)
    if isinstance(power.exp, sympy.Integer) and power.exp >= 0:
        return base ** int(power.exp)
    base = base.to(meanings.real)
    if power.exp == sympy.Rational(1, 2):
        return base.sqrt()
    if power.exp == -1:
        return 1 / base
    return torch.pow(base, exponent.to(meanings.real))


def _where(formula: symbols.Where, meanings: Meanings) -> Tensor:
    condition, then, otherwise = formula.args
    holds = evaluate(condition, meanings)
    branches = ((then, holds), (otherwise, ~holds))
    return torch.where(holds, *_promote(*(evaluate(a, meanings.within(c)) for a, c in branches)))


def _piecewise(formula: sympy.Piecewise, meanings: Meanings) -> Tensor:
    result = torch.tensor(torch.nan, dtype=meanings.real)
    for branch in reversed(formula.args):
        value, condition = branch.args
        result = torch.where(evaluate(condition, meanings), evaluate(value, meanings), result)
    return result


def _floor_divide(a: Tensor, b: Tensor) -> Tensor:
    a, b = _promote(a, b)
    if a.is_floating_point():
        return torch.floor(a / b).clamp(-FURTHEST, FURTHEST).to(torch.int64)
    b = torch.where(b == 0, 1, b)  # a hidden pair may divide by zero, but must not raise
    return torch.div(a, b, rounding_mode="floor")


def _floor_mod(a: Tensor, b: Tensor) -> Tensor:
    a, b = _promote(a, b)
    return a - b * _floor_divide(a, b)


def _random(*words: Tensor) -> Tensor:
    return torch.from_numpy(random_number(*(word.numpy(force=True) for word in words)))


def _promote(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.promote_types(a.dtype, b.dtype)
    return a.to(dtype), b.to(dtype)


def _promoted(function: Fold) -> Fold:
    return lambda a, b: function(*_promote(a, b))


_RULES: dict[type[Basic], Callable[[Any, Meanings], Tensor]] = {
    symbols.Read: _read,
    symbols.Where: _where,
    sympy.Pow: _power,
    sympy.Piecewise: _piecewise,
}
_FOLDS: dict[type[Basic], Fold] = {
    sympy.Add: _promoted(torch.add),
    sympy.Mul: _promoted(torch.mul),
    sympy.Max: _promoted(torch.maximum),
    sympy.Min: _promoted(torch.minimum),
    boolalg.And: torch.logical_and,
    boolalg.Or: torch.logical_or,
    boolalg.Xor: torch.logical_xor,
}
_FUNCTIONS: dict[type[Basic], Callable[..., Tensor]] = {
    sympy.Abs: torch.abs,
    sympy.sign: torch.sign,
    sympy.floor: lambda x: torch.floor(x).to(torch.int64),
    sympy.ceiling: lambda x: torch.ceil(x).to(torch.int64),
    sympy.exp: torch.exp,
    sympy.log: torch.log,
    sympy.tanh: torch.tanh,
    symbols.sigmoid: torch.sigmoid,
    symbols.Anchor: lambda x: torch.where(torch.isneginf(x), 0.0, x),
    symbols.Random: _random,
    symbols.FloorDiv: _floor_divide,
    symbols.FloorMod: _floor_mod,
    boolalg.ITE: torch.where,
    boolalg.Not: torch.logical_not,
    sympy.Eq: torch.eq,
    sympy.Ne: torch.ne,
    sympy.Lt: torch.lt,
    sympy.Le: torch.le,
    sympy.Gt: torch.gt,
    sympy.Ge: torch.ge,
}
_ON_REALS = {sympy.exp, sympy.log, sympy.tanh, symbols.sigmoid, symbols.Anchor}
