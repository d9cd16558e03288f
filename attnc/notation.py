"""Write a formula back in the spec language, for headers, comments and explanations.

What `plain` writes, `spec/formulas.py` reads back to an equal formula.  Inside, parts are `Any`:
sympy's own annotations are too loose to say more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations
from typing import Any

import sympy
from sympy import Add, And, Expr, Float, Integer, Mul, Not, Or, Pow, Rational, Symbol
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from attnc import symbols
from attnc.symbols import Formula

# How tightly a part binds, as in Python; a part that binds looser than its place takes parentheses.
_OR, _AND, _NOT, _COMPARE, _SUM, _SIGN, _PRODUCT, _POWER, _ATOM = 1, 2, 3, 4, 5, 6, 7, 8, 9
_LOOSE = 0
_COMPARED = _SUM  # a side of a comparison

_SIGNS = {
    sympy.Lt: "<",
    sympy.Le: "<=",
    sympy.Gt: ">",
    sympy.Ge: ">=",
    sympy.Eq: "==",
    sympy.Ne: "!=",
}
_CALLS: dict[type[Expr], str] = {
    sympy.Abs: "abs",
    sympy.Min: "min",
    sympy.Max: "max",
    sympy.exp: "exp",
    sympy.log: "log",
    sympy.tanh: "tanh",
    symbols.sigmoid: "sigmoid",
    symbols.Anchor: "finite",
    symbols.Random: "random",
    symbols.Where: "where",
}


def plain(formula: Formula) -> str:
    """Write a formula in the spec language: compact, and read back to an equal formula."""
    return _write(formula)[0]


def _write(formula: Any) -> tuple[str, int]:
    """The text of a part and how tightly it binds."""
    match formula:
        case Symbol():
            return str(formula), _ATOM
        case Rational():
            return _rational(formula)
        case Float():
            return repr(float(formula)), _ATOM if formula >= 0 else _SIGN
        case Add():
            return _sum(formula)
        case Mul():
            return _product(formula)
        case Pow():
            return _power(formula)
        case Boolean():
            return _condition(formula)
        case _:
            return _call(formula)


def _condition(formula: Any) -> tuple[str, int]:
    match formula:
        case Relational():
            return _comparison(formula)
        case And():
            return _conjunction(formula)
        case Or():
            return " | ".join(_at(arg, _AND) for arg in _ordered(formula.args)), _OR
        case Not():
            return f"~{_at(formula.args[0], _ATOM)}", _ATOM
        case _:
            return str(formula).lower(), _ATOM  # true or false


def _at(formula: Any, place: int) -> str:
    """The text of a part, in parentheses where it binds looser than its place."""
    text, binds = _write(formula)
    return text if binds >= place and not (binds == _COMPARE and place > _LOOSE) else f"({text})"


def _rational(value: Rational) -> tuple[str, int]:
    if value.q == 1:
        return _whole(value.p), _ATOM if value >= 0 else _SIGN
    exact = _decimal(value)
    if exact is not None:
        return exact, _ATOM if value > 0 else _SIGN
    return f"{_whole(value.p)}/{_whole(value.q)}", _PRODUCT if value > 0 else _SIGN


def _whole(value: int) -> str:
    """A whole number; past 2**53 as a decimal, since formulas count only up to there."""
    return str(value) if abs(value) <= 2**53 else f"{value}.0"


def _decimal(value: Rational) -> str | None:
    """A short decimal that is exactly the value, or None."""
    text = repr(float(value)) if value.q < 10**12 else ""
    return text if text and "e" not in text and len(text) < 7 and Rational(text) == value else None


def _sum(formula: Any) -> tuple[str, int]:
    """Positive terms first, so that a sum seldom opens with a minus."""
    terms = sorted(
        formula.as_ordered_terms(), key=lambda term: (_is_negative(term), bool(term.is_number))
    )
    text = _at(terms[0], _SIGN)
    for term in terms[1:]:
        text += f" - {_at(-term, _PRODUCT)}" if _is_negative(term) else f" + {_at(term, _PRODUCT)}"
    return text, _SUM


def _is_negative(term: Any) -> bool:
    return bool(term.could_extract_minus_sign()) and not isinstance(term, Add)


def _product(formula: Any) -> tuple[str, int]:
    """Numerator, then each divisor: `x*y/2/sqrt(d)` is read from the left."""
    coefficient, rest = formula.as_coeff_Mul()
    if coefficient < 0:
        positive = rest if coefficient == -1 else Mul(-coefficient, rest, evaluate=False)
        return _negated(positive), _SIGN
    factors = list(Mul.make_args(rest))
    log2 = _take_log2(factors)
    above = [f for f in factors if not _is_divisor(f)]
    below = [1 / f for f in factors if _is_divisor(f)]
    tops = [_at(f, _POWER) for f in _ordered(above)] + log2
    if coefficient.p != 1 or (not tops and coefficient.q == 1):
        tops.insert(0, _at(Integer(coefficient.p), _POWER))
    text = "*".join(tops) or "1"
    if coefficient.q != 1:
        text += f"/{_whole(coefficient.q)}"
    text += "".join(f"/{_at(f, _POWER)}" for f in _ordered(below))
    return text, _PRODUCT if len(tops) + len(below) > 1 or coefficient.q != 1 else _ATOM


def _negated(rest: Any) -> str:
    """A product with a minus before it; -a // b would be read as (-a) // b."""
    floors = isinstance(rest, (Add, symbols.FloorDiv, symbols.FloorMod))
    text = plain(rest)
    return f"-({text})" if floors or text.startswith("-") else f"-{text}"


def _is_divisor(factor: Any) -> bool:
    return isinstance(factor, Pow) and factor.exp.is_Rational and factor.exp < 0


def _take_log2(factors: list[Any]) -> list[str]:
    """Take log(x)/log(2) out of the factors, as log2(x)."""
    divisor = 1 / sympy.log(2)
    logs = [factor for factor in factors if isinstance(factor, sympy.log)]
    if divisor not in factors or not logs:
        return []
    factors.remove(divisor)
    factors.remove(logs[0])
    return [f"log2({plain(logs[0].args[0])})"]


def _power(formula: Any) -> tuple[str, int]:
    base, exponent = formula.base, formula.exp
    base = Rational(base) if base.is_Float else base  # reads back as a float where it must
    if exponent == Rational(1, 2):
        return f"sqrt({plain(base)})", _ATOM
    if exponent.is_Rational and exponent < 0:
        return f"1/{_at(1 / formula, _POWER)}", _PRODUCT
    if base == 2 and not exponent.is_Rational:
        return f"exp2({plain(exponent)})", _ATOM
    return f"{_at(base, _ATOM)}**{_at(exponent, _ATOM)}", _POWER


def _comparison(formula: Any) -> tuple[str, int]:
    left, right = formula.args
    return f"{_at(left, _COMPARED)} {_SIGNS[type(formula)]} {_at(right, _COMPARED)}", _COMPARE


def _conjunction(formula: Any) -> tuple[str, int]:
    """Conditions joined by &; two bounds of one value as a chain, `low <= x < high`."""
    args = _ordered(formula.args)
    chain = _chain(args)
    if chain is None:
        return " & ".join(_at(arg, _NOT) for arg in args), _AND
    text, used = chain
    rest = [arg for arg in args if arg not in used]
    if not rest:
        return text, _COMPARE
    return " & ".join([f"({text})", *(_at(arg, _NOT) for arg in rest)]), _AND


def _chain(args: list[Any]) -> tuple[str, tuple[Any, ...]] | None:
    """Two bounds of one value, lower first."""
    for first, second in permutations(args, 2):
        low, high = _bound(first), _bound(second)
        if low and high and low[2] == high[0] and low[0] != high[2]:
            middle = _at(low[2], _COMPARED)
            text = f"{_at(low[0], _COMPARED)} {low[1]} {middle} {high[1]} {_at(high[2], _COMPARED)}"
            return text, (first, second)
    return None


def _bound(formula: Any) -> tuple[Any, str, Any] | None:
    """(a, sign, b) of a relation that says a lies below b, in the order the chain rebuilds."""
    if isinstance(formula, (sympy.Lt, sympy.Le)):
        return formula.args[0], _SIGNS[type(formula)], formula.args[1]
    return None


def _call(formula: Any) -> tuple[str, int]:
    """Functions, tensor reads, floors."""
    if isinstance(formula, symbols.Read):
        return f"{formula.tensor}[{_list(formula.indices)}]", _ATOM
    if isinstance(formula, (symbols.FloorDiv, symbols.FloorMod)):
        a, b = formula.args
        sign = "//" if isinstance(formula, symbols.FloorDiv) else "%"
        return f"{_at(a, _PRODUCT)} {sign} {_at(b, _POWER)}", _PRODUCT
    if formula is sympy.E:
        return "exp(1)", _ATOM
    if name := _CALLS.get(type(formula)):
        ordered = isinstance(formula, symbols.Where | symbols.Random)
        args = formula.args if ordered else _ordered(formula.args)
        return f"{name}({_list(args)})", _ATOM
    raise TypeError(f"the spec language has no word for {formula}")


def _list(args: Iterable[Any]) -> str:
    return ", ".join(plain(arg) for arg in args)


def _ordered(args: Iterable[Any]) -> list[Any]:
    """Arguments in an order that no hash seed changes."""
    key: Callable[[Any], Any] = sympy.default_sort_key
    return sorted(args, key=key)
