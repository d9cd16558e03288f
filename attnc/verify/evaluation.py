"""Evaluate attnc's formulas on numpy arrays.

Why not sympy's lambdify: its And/Or reduce a list and fail on unbroadcast operands, and it does
not know our own functions.  Names are looked up by text; the arrays of an environment broadcast
against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import sympy
from sympy import Basic

from attnc.ir.functions import Anchor, Clamp, Exp2, InverseOrZero, Log2, Wide
from attnc.symbols import Q_POS, FloorDiv, FloorMod, Random, Read, Where, sigmoid
from attnc.verify.philox import random_number

Array = Any  # a numpy array or a numpy number; pyright does not follow their broadcasting


class UnboundName(LookupError):
    """A formula names something that nothing defines."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What names stand for: numbers, arrays that broadcast together, and user tensors."""

    values: Mapping[str, Array]
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    lookup: Callable[[str], Array | None] | None = None  # asked for a name that `values` lacks
    element: Callable[[str, list[Array]], Array] | None = None  # asked in place of `tensors`

    def get(self, name: str) -> Array:
        """Return the value of a name; `q_pos` follows from the lengths by itself."""
        if name in self.values:
            return self.values[name]
        found = self.lookup(name) if self.lookup else None
        if found is not None:
            return found
        if name == "q_pos":
            return evaluate(Q_POS, self)
        raise UnboundName(f"no value is called {name!r}")


def evaluate(expr: Basic, env: Environment) -> Array:
    """Evaluate a formula in float64, int64 and bool.

    The branch of a Where that is not taken never reaches the result.
    Raises: UnboundName for a name that `env` lacks, NotImplementedError for an unknown function.
    """
    with np.errstate(all="ignore"):
        return _evaluate(expr, env)


def _evaluate(expr: Basic, env: Environment) -> Array:
    if isinstance(expr, sympy.Symbol):
        return env.get(expr.name)
    if isinstance(expr, Read):
        return _read(expr, env)
    constant = _constant(expr)
    if constant is not None:
        return constant
    rule = _RULES.get(expr.func)
    if rule is None:
        raise NotImplementedError(f"no numpy meaning for {expr.func.__name__}")
    return rule(*(_evaluate(arg, env) for arg in expr.args))


def _constant(expr: Basic) -> Array | None:
    if expr is sympy.true:
        return np.True_
    if expr is sympy.false:
        return np.False_
    if isinstance(expr, sympy.Integer):
        return np.int64(int(expr))
    if isinstance(expr, sympy.Number | sympy.NumberSymbol):
        return np.float64(expr)
    return None


def _read(expr: Read, env: Environment) -> Array:
    """Read a user tensor; an index outside its shape reads 0."""
    found = [_evaluate(index, env) for index in expr.indices]
    if env.element is not None:
        return env.element(expr.tensor, found)
    tensor = env.tensors[expr.tensor]
    indices = np.broadcast_arrays(*found)
    inside = reduce(
        np.logical_and,
        [(0 <= i) & (i < size) for i, size in zip(indices, tensor.shape, strict=True)],
    )
    if tensor.size == 0:
        return np.zeros(np.shape(inside), tensor.dtype)
    safe = tuple(np.where(inside, i, 0).astype(np.int64) for i in indices)
    return np.where(inside, tensor[safe], np.zeros((), tensor.dtype))


def _power(base: Array, exponent: Array) -> Array:
    integers = np.issubdtype(np.result_type(base, exponent), np.integer)
    if integers and np.all(np.asarray(exponent) >= 0):
        return np.power(base, exponent)
    return np.power(np.asarray(base, np.float64), np.asarray(exponent, np.float64))


def _floor_divide(a: Array, b: Array) -> Array:
    if np.issubdtype(np.result_type(a, b), np.integer):
        return np.floor_divide(a, b)
    quotient = np.clip(np.floor(np.divide(a, b)), -(2.0**62), 2.0**62)
    return quotient if np.any(np.isnan(quotient)) else quotient.astype(np.int64)


def _add(*terms: Array) -> Array:
    return reduce(np.add, [_number(term) for term in terms])


def _multiply(*factors: Array) -> Array:
    return reduce(np.multiply, [_number(factor) for factor in factors])


def _number(value: Array) -> Array:
    return value.astype(np.int64) if np.asarray(value).dtype == np.bool_ else value


def _inverse_or_zero(x: Array) -> Array:
    return np.where(x == 0, 0.0, 1.0 / np.where(x == 0, 1.0, x))


def _chain(relation: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda left, right: relation(_number(left), _number(right))


_RULES: dict[Any, Callable[..., Array]] = {
    sympy.Add: _add,
    sympy.Mul: _multiply,
    sympy.Pow: _power,
    sympy.exp: np.exp,
    sympy.log: np.log,
    sympy.tanh: np.tanh,
    sympy.Abs: np.abs,
    sympy.sign: np.sign,
    sympy.Min: lambda *args: reduce(np.minimum, args),
    sympy.Max: lambda *args: reduce(np.maximum, args),
    sympy.floor: lambda x: np.floor(x),
    FloorDiv: _floor_divide,
    FloorMod: np.mod,
    Where: np.where,
    Random: random_number,
    sigmoid: lambda x: 1.0 / (1.0 + np.exp(-np.asarray(x, np.float64))),
    Exp2: lambda x: np.exp2(np.asarray(x, np.float64)),
    Log2: lambda x: np.log2(np.asarray(x, np.float64)),
    Anchor: lambda x: np.where(np.isneginf(x), 0.0, x),
    InverseOrZero: _inverse_or_zero,
    Wide: lambda x: x,
    Clamp: lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
    sympy.Eq: _chain(np.equal),
    sympy.Ne: _chain(np.not_equal),
    sympy.Lt: _chain(np.less),
    sympy.Le: _chain(np.less_equal),
    sympy.Gt: _chain(np.greater),
    sympy.Ge: _chain(np.greater_equal),
    sympy.And: lambda *args: reduce(np.logical_and, args),
    sympy.Or: lambda *args: reduce(np.logical_or, args),
    sympy.Xor: lambda *args: reduce(np.logical_xor, args),
    sympy.Not: np.logical_not,
}
