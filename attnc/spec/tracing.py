"""Turn a Python callable in FlexAttention's signature into a formula's text.

The callable is run once with stand-ins that write down what is done to them.  Torch's functions
reach a stand-in through `__torch_function__`, so `torch.where` and `torch.tanh` work although torch
is not imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any, ClassVar, NoReturn

from attnc.errors import UserError
from attnc.spec.yaml_reader import MAX_BYTES

LOOSE, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _POWER, ATOM = range(10)

MASK_ARGUMENTS = ("b", "h", "q_idx", "kv_idx")
SCORE_ARGUMENTS = ("score", *MASK_ARGUMENTS)


class TraceError(UserError):
    """Report that a mask or score callable does something that no formula can say."""

    code: ClassVar[str] = "spec/cannot-trace"
    message: ClassVar[str] = "{problem}"
    help: ClassVar[str] = "{advice}"


def fail(problem: str, advice: str) -> NoReturn:
    """Raise TraceError."""
    raise TraceError(problem=problem, advice=advice)


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A part of a formula: its text, and how tightly it binds."""

    text: str
    binds: int = ATOM

    def at(self, place: int) -> str:
        """The text, in parentheses where it binds looser than its place."""
        return self.text if self.binds >= place else f"({self.text})"

    def __add__(self, other: object) -> Traced:
        return _binary("+", self, other, _SUM, _PRODUCT)

    def __radd__(self, other: object) -> Traced:
        return _binary("+", other, self, _SUM, _PRODUCT)

    def __sub__(self, other: object) -> Traced:
        return _binary("-", self, other, _SUM, _PRODUCT)

    def __rsub__(self, other: object) -> Traced:
        return _binary("-", other, self, _SUM, _PRODUCT)

    def __mul__(self, other: object) -> Traced:
        return _binary("*", self, other, _PRODUCT, _SIGN)

    def __rmul__(self, other: object) -> Traced:
        return _binary("*", other, self, _PRODUCT, _SIGN)

    def __truediv__(self, other: object) -> Traced:
        return _binary("/", self, other, _PRODUCT, _SIGN)

    def __rtruediv__(self, other: object) -> Traced:
        return _binary("/", other, self, _PRODUCT, _SIGN)

    def __floordiv__(self, other: object) -> Traced:
        return _binary("//", self, other, _PRODUCT, _SIGN)

    def __rfloordiv__(self, other: object) -> Traced:
        return _binary("//", other, self, _PRODUCT, _SIGN)

    def __mod__(self, other: object) -> Traced:
        return _binary("%", self, other, _PRODUCT, _SIGN)

    def __rmod__(self, other: object) -> Traced:
        return _binary("%", other, self, _PRODUCT, _SIGN)

    def __pow__(self, other: object) -> Traced:
        return written(f"{self.at(ATOM)}**{traced(other).at(ATOM)}", _POWER)

    def __rpow__(self, other: object) -> Traced:
        return written(f"{traced(other).at(ATOM)}**{self.at(ATOM)}", _POWER)

    def __neg__(self) -> Traced:
        return written(f"-{self.at(_SIGN)}", _SIGN)

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Traced:
        return call("abs", self)

    def __invert__(self) -> Traced:
        return written(f"~{self.at(ATOM)}", _SIGN)

    def __and__(self, other: object) -> Traced:
        return _condition("&", self, other, _AND)

    def __rand__(self, other: object) -> Traced:
        return _condition("&", other, self, _AND)

    def __or__(self, other: object) -> Traced:
        return _condition("|", self, other, _OR)

    def __ror__(self, other: object) -> Traced:
        return _condition("|", other, self, _OR)

    def __xor__(self, other: object) -> Traced:
        return (self & ~traced(other)) | (~self & other)

    def __rxor__(self, other: object) -> Traced:
        return traced(other) ^ self

    def __lshift__(self, other: object) -> Traced:
        return self * _power_of_two(other)

    def __rshift__(self, other: object) -> Traced:
        return self // _power_of_two(other)

    def __rlshift__(self, other: object) -> Traced:
        return traced(other) << self

    def __rrshift__(self, other: object) -> Traced:
        return traced(other) >> self

    def __lt__(self, other: object) -> Traced:
        return _binary("<", self, other, _COMPARE, _SUM)

    def __le__(self, other: object) -> Traced:
        return _binary("<=", self, other, _COMPARE, _SUM)

    def __gt__(self, other: object) -> Traced:
        return _binary(">", self, other, _COMPARE, _SUM)

    def __ge__(self, other: object) -> Traced:
        return _binary(">=", self, other, _COMPARE, _SUM)

    def __eq__(self, other: object) -> Traced:  # type: ignore[override]  # pyright: ignore
        return _binary("==", self, other, _COMPARE, _SUM)

    def __ne__(self, other: object) -> Traced:  # type: ignore[override]  # pyright: ignore
        return _binary("!=", self, other, _COMPARE, _SUM)

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore

    def __bool__(self) -> NoReturn:
        fail(
            f"`{_short(self.text)}` is not known when the spec is built, "
            "so Python cannot branch on it",
            "use attnc.where(condition, a, b) for if, & | ~ for and, or, not, "
            "and (a < b) & (b < c) for a < b < c",
        )

    def __iter__(self) -> NoReturn:
        fail(
            f"`{_short(self.text)}` is one number and cannot be looped over",
            "write a formula without loops over it",
        )

    def __index__(self) -> NoReturn:
        fail(
            f"`{_short(self.text)}` cannot index a Python object",
            'declare the data under tensors and index attnc.tensor("name")[...]',
        )

    def __float__(self) -> NoReturn:
        fail(
            f"`{_short(self.text)}` has no value when the spec is built",
            "use torch's functions instead of math's, for example torch.exp",
        )

    __int__ = __float__

    def to(self, *_: object, **__: object) -> Traced:
        """Stay the same: formulas are exact, so a cast to a float type says nothing."""
        return self

    float = double = to

    def __getattr__(self, name: str) -> Callable[..., Traced]:
        """Write down a tensor's method as the torch function of that name: `score.tanh()`."""
        if name.startswith("__"):
            raise AttributeError(name)
        from attnc.spec.torch_functions import torch_call  # it speaks of Traced

        return lambda *args, **kwargs: torch_call(name, (self, *args), kwargs)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Any = None,
    ) -> Traced:
        """Write down a torch function by its name."""
        from attnc.spec.torch_functions import torch_call  # it speaks of Traced

        return torch_call(getattr(function, "__name__", str(function)), args, kwargs or {})


def written(text: str, binds: int) -> Traced:
    """The part with this text, unless the text outgrows any formula."""
    if len(text) > MAX_BYTES:
        fail(
            "the callable makes a formula that is too long", "look up numbers that vary in a tensor"
        )
    return Traced(text, binds)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def traced(value: object) -> Traced:
    """The part that a Python value stands for.

    Raises: TraceError for anything but numbers and stand-ins.
    """
    match value:
        case Traced():
            return value
        case bool():
            return Traced(str(value).lower())
        case Integral():
            return Traced(str(int(value)), ATOM if int(value) >= 0 else _SIGN)
        case Rational():
            return Traced(
                f"{value.numerator}/{value.denominator}",
                _PRODUCT if int(value.numerator) >= 0 else _SIGN,
            )
        case Real() if math.isfinite(value):
            return Traced(_decimal(float(value)), ATOM if float(value) >= 0 else _SIGN)
        case Real():
            fail(f"{value} cannot stand in a formula", "to hide a pair, put it into the mask")
        case _:
            kind = type(value)
            fail(
                f"a callable cannot use a {kind.__module__}.{kind.__qualname__} of its own",
                'declare it under tensors and index it: attnc.tensor("bias")[h, q_idx, kv_idx]; '
                'a number that varies: declare it under params and use attnc.param("name")',
            )


def _decimal(value: float) -> str:
    """The shortest decimal, without an exponent's plus sign."""
    text = repr(value)
    return text.replace("e+", "e") if Fraction(text).denominator != 1 or "e" in text else text


def _binary(sign: str, a: object, b: object, binds: int, right: int) -> Traced:
    left = binds + 1 if binds == _COMPARE else binds
    return written(f"{traced(a).at(left)} {sign} {traced(b).at(right)}", binds)


def _power_of_two(places: object) -> int:
    """What a shift by so many places multiplies with or divides by."""
    if isinstance(places, int) and not isinstance(places, bool) and 0 <= places < 53:
        return 1 << places
    fail(
        "a shift needs a whole number of places that is known when the spec is built",
        "write x // n for x >> log2(n) and x * n for x << log2(n)",
    )


def _condition(sign: str, a: object, b: object, binds: int) -> Traced:
    """Join two conditions; a comparison beside & or | takes parentheses."""
    sides = [traced(side) for side in (a, b)]
    neutral = {"&": "true", "|": "false"}[sign]
    for side, other in (sides, reversed(sides)):
        if side.text == neutral:
            return other
    texts = [f"({s.text})" if s.binds == _COMPARE else s.at(binds) for s in sides]
    return written(f"{texts[0]} {sign} {texts[1]}", binds)


def call(name: str, *args: object) -> Traced:
    """Write a call of a function of the language."""
    return written(f"{name}({', '.join(traced(arg).text for arg in args)})", ATOM)
