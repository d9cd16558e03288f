"""What a building block is: its arguments, its formula, its meaning, its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from attnc.symbols import Formula


class Kind(Enum):
    """What an argument may be; the value is how errors and listings say it."""

    NUMBER = "a number"
    WHOLE = "a whole number"
    POSITIVE = "a number above zero"
    TENSOR = "the name of a tensor"
    FLAG = "true or false"
    WORD = "top_left"


REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a block.  `least` is the smallest whole number; `unbounded` admits inf."""

    name: str
    kind: Kind
    least: int = 0
    unbounded: bool = False
    default: object = REQUIRED
    example: str = ""  # declares a tensor that fits

    def expected(self) -> str:
        """How errors say what the argument must be."""
        if self.kind is not Kind.WHOLE:
            return self.kind.value
        return f"a whole number of at least {self.least}" + (", or inf" if self.unbounded else "")


class BadBlock(Exception):
    """Say which argument's value does not fit the block, what it must be and what it is."""

    def __init__(self, argument: str, expected: str, given: str) -> None:
        super().__init__(argument, expected, given)
        self.argument, self.expected, self.given = argument, expected, given


@dataclass(frozen=True, slots=True)
class Block:
    """A named formula: `build(heads_q, *values)` gives it; the values follow `arguments`."""

    name: str
    arguments: tuple[Argument, ...]
    build: Callable[..., Formula]
    formula: str
    meaning: str
    source: str
    fixes_heads: bool = field(default=False)

    @property
    def signature(self) -> str:
        """How it is called, for messages and listings."""
        parts = [
            a.name if a.default is REQUIRED else f"{a.name}={_shown(a.default)}"
            for a in self.arguments
        ]
        return f"{self.name}({', '.join(parts)})" if parts else self.name


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
