"""What a mask or score callable may call by attnc's name, and the run that writes it down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnc.spec.tracing import ATOM, LOOSE, Traced, call, fail, traced, written


def where(condition: object, a: object, b: object) -> Traced:
    """Choose a where the condition holds, b elsewhere."""
    return call("where", condition, a, b)


@dataclass(frozen=True, slots=True)
class TensorName:
    """A declared tensor inside a mask or score callable; index it to read an element."""

    name: str

    def __getitem__(self, index: object) -> Traced:
        parts = index if isinstance(index, tuple) else (index,)
        return written(f"{self.name}[{', '.join(traced(part).text for part in parts)}]", ATOM)


def tensor(name: str) -> TensorName:
    """Name a declared tensor inside a mask or score callable."""
    return TensorName(name)


def param(name: str) -> Traced:
    """Name a declared param inside a mask or score callable."""
    return Traced(name)


def formula(text: str) -> Traced:
    """Use a piece of the spec language inside a callable, for example a building block."""
    return Traced(text, LOOSE)


def trace(function: Callable[..., object], names: Sequence[str]) -> str:
    """Run a callable on stand-ins and return the formula's text.

    Raises: TraceError when it does what no formula can say.
    """
    try:
        result = function(*(Traced(name) for name in names))
    except TypeError as error:
        fail(f"the callable failed: {error}", f"its arguments are ({', '.join(names)})")
    if result is None:
        fail("the callable returns nothing", "end it with return and the formula")
    return traced(result).text
