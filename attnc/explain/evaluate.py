"""Turn formulas into Python functions, so that masks can be drawn and ranges counted.

Why not numpy: `attnc explain` starts fast and runs where only the compiler is installed.  A formula
becomes the text of one Python expression over integers and floats; every name in it is one that the
spec reader has checked, or is replaced by a name of ours.  Numbers that leave the reals are IEEE's,
as in the kernel; what has no value at all (// and % by zero) raises ArithmeticError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from sympy import Basic

Number = int | float | bool
Reader = Callable[..., Number]  # tensor name, then indices


def compile_formula(formula: Basic, names: Iterable[str], read: Reader | None = None) -> Callable:
    """Make a function of `names`, in that order, that evaluates the formula.

    Raises: KeyError when the formula speaks of a name that is not listed.
    """
    places = {name: f"x{i}" for i, name in enumerate(names)}
    text = f"lambda {', '.join(places.values())}: {_text(formula, places)}"
    return eval(text, dict(_BUILTINS, read=read))


def compile_row(
    formula: Basic, along: str, names: Iterable[str], read: Reader | None = None
) -> Callable:
    """Make a function of (count, *names) that evaluates the formula at along = 0 ... count - 1."""
    places = {along: "x", **{name: f"x{i}" for i, name in enumerate(names)}}
    given = ", ".join(["count", *list(places.values())[1:]])
    text = f"lambda {given}: [{_text(formula, places)} for x in range(count)]"
    return eval(text, dict(_BUILTINS, read=read))


def names_in(formula: Basic) -> frozenset[str]:
    """The names that a formula speaks of, those of tensors it reads left out."""
    reads = [part.args[0] for part in _walk(formula) if type(part).__name__ == "Read"]
    return frozenset(str(symbol) for symbol in formula.free_symbols if symbol not in reads)


def _walk(formula: Basic) -> Iterable[Basic]:
    yield formula
    for arg in formula.args:
        yield from _walk(arg)


def _text(formula: Basic, places: Mapping[str, str]) -> str:
    kind = type(formula).__name__
    if formula.is_Symbol:
        return places[str(formula)]
    if kind == "Read":
        indices = ", ".join(_text(arg, places) for arg in formula.args[1:])
        return f"read({str(formula.args[0])!r}, {indices})"
    if kind in _CONSTANTS:
        return _CONSTANTS[kind]
    if not formula.args:
        return _number(formula)
    parts = [_text(arg, places) for arg in formula.args]
    if kind in _JOINED:
        return f"({_JOINED[kind].join(parts)})"
    if kind not in _FORMS:
        raise ValueError(f"explain cannot evaluate {kind}")
    return _FORMS[kind].format(*parts, all=", ".join(parts))


def _number(formula: Any) -> str:
    if formula.is_Integer:
        return f"({int(formula)})"
    if formula.is_Rational:
        return f"fraction({int(formula.p)}, {int(formula.q)})"
    return f"({float(formula)!r})"


_CONSTANTS = {
    "BooleanTrue": "True",
    "BooleanFalse": "False",
    "Infinity": "inf",
    "NegativeInfinity": "(-inf)",
}
_JOINED = {"Add": " + ", "Mul": "*", "And": " and ", "Or": " or "}
_FORMS = {
    "Not": "(not {0})",
    "Xor": "(({0}) != ({1}))",
    "LessThan": "({0} <= {1})",
    "StrictLessThan": "({0} < {1})",
    "GreaterThan": "({0} >= {1})",
    "StrictGreaterThan": "({0} > {1})",
    "Equality": "({0} == {1})",
    "Unequality": "({0} != {1})",
    "FloorDiv": "({0} // {1})",
    "FloorMod": "({0} % {1})",
    "Where": "({1} if {0} else {2})",
    "Wide": "{0}",
    "Clamp": "min(max({0}, {1}), {2})",
    "Max": "max({all})",
    "Min": "min({all})",
    "Abs": "abs({0})",
    "Pow": "power({0}, {1})",
    "exp": "exp({0})",
    "Exp2": "power(2, {0})",
    "log": "log({0})",
    "tanh": "tanh({0})",
    "sigmoid": "sigmoid({0})",
    "floor": "floor({0})",
}


def _power(base: Number, exponent: Number) -> Number:
    try:
        power = base**exponent
    except (OverflowError, ZeroDivisionError):
        return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
    return math.nan if isinstance(power, complex) else power


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _floor(x: float) -> Number:
    return math.floor(x) if math.isfinite(x) else x


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


_BUILTINS: dict[str, Any] = {
    "__builtins__": {},
    "abs": abs,
    "exp": _exp,
    "floor": _floor,
    "fraction": Fraction,
    "inf": math.inf,
    "log": _log,
    "max": max,
    "min": min,
    "power": _power,
    "range": range,
    "sigmoid": _sigmoid,
    "tanh": math.tanh,
}
