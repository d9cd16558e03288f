"""The kinds of value a key can hold.  Each reads a node of the tree, and gives its own JSON Schema.

`fields.py` says which key is of which kind; the checker and `json_schema()` both follow it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn, Protocol

from attnc.errors import SpecError
from attnc.spec import mistakes
from attnc.spec.formula_text import FormulaText
from attnc.spec.yaml_reader import Node, Scalar, Sequence

Json = dict[str, Any]
Report = list[SpecError]

_INTEGER = re.compile(r"[+-]?\d{1,25}", re.ASCII)
_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Kind(Protocol):
    """What a key may hold."""

    def read(self, node: Node, name: str, report: Report) -> Any:
        """Return the value; raise SpecError for one mistake, or add several to the report."""
        ...

    def json_schema(self) -> Json: ...

    def expected(self) -> str:
        """How messages say what the value must be."""
        ...


def given(node: Node) -> str:
    """How messages say what the value is."""
    match node:
        case Scalar(value="", style=None):
            return "nothing"
        case Scalar():
            shown = " ".join(node.value.split())
            shown = "".join(c if c.isprintable() else "?" for c in shown)
            shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
            return f"the text {shown!r}" if node.style else repr(shown)
        case Sequence():
            return f"a list of {len(node.items)}" if node.items else "an empty list"
        case _:
            return "a mapping"


def refuse(kind: Kind, node: Node, name: str, close: str = "") -> NoReturn:
    """Raise BadValue in the words of the kind; `close` is what may have been meant."""
    facts = {"field": name, "expected": kind.expected(), "given": given(node)}
    if close:
        raise mistakes.BadWord(node.span, **facts, close=close)
    raise mistakes.BadValue(node.span, **facts)


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `least` to `most`, of the listed `values` if there are any."""

    least: int
    most: int
    values: tuple[int, ...] = ()

    def read(self, node: Node, name: str, report: Report) -> int:
        if isinstance(node, Scalar) and node.style is None and _INTEGER.fullmatch(node.value):
            value = int(node.value)
            if self.least <= value <= self.most and (not self.values or value in self.values):
                return value
        refuse(self, node, name)

    def expected(self) -> str:
        if self.values:
            return "one of " + ", ".join(map(str, self.values))
        return f"a whole number from {self.least} to {self.most}"

    def json_schema(self) -> Json:
        if self.values:
            return {"type": "integer", "enum": list(self.values)}
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number."""

    def read(self, node: Node, name: str, report: Report) -> float:
        if isinstance(node, Scalar) and node.style is None and _REAL.fullmatch(node.value):
            value = float(node.value)
            if math.isfinite(value):
                return value
        refuse(self, node, name)

    def expected(self) -> str:
        return "a finite number"

    def json_schema(self) -> Json:
        return {"type": "number"}


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false, and nothing else: YAML's yes and no are refused."""

    def read(self, node: Node, name: str, report: Report) -> bool:
        if isinstance(node, Scalar) and node.style is None and node.value in ("true", "false"):
            return node.value == "true"
        refuse(self, node, name)

    def expected(self) -> str:
        return "true or false"

    def json_schema(self) -> Json:
        return {"type": "boolean"}


_ELSEWHERE = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "integer": "int"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, node: Node, name: str, report: Report) -> str:
        if isinstance(node, Scalar) and node.value in self.words:
            return node.value
        word = node.value if isinstance(node, Scalar) else ""
        close = [_ELSEWHERE.get(word, ""), *get_close_matches(word, self.words, 1, 0.8)]
        refuse(self, node, name, next((each for each in close if each in self.words), ""))

    def expected(self) -> str:
        return " or ".join(self.words) if len(self.words) < 3 else f"one of {', '.join(self.words)}"

    def json_schema(self) -> Json:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Dim:
    """An axis of a tensor's shape: one of a few words, or a whole number."""

    words: Choice
    size: Integer

    def read(self, node: Node, name: str, report: Report) -> str | int:
        if isinstance(node, Scalar) and node.value in self.words.words:
            return node.value
        if isinstance(node, Scalar) and _INTEGER.fullmatch(node.value):
            return self.size.read(node, name, report)
        refuse(self, node, name)

    def expected(self) -> str:
        return f"{self.words.expected()}, or {self.size.expected()}"

    def json_schema(self) -> Json:
        return {"oneOf": [self.words.json_schema(), self.size.json_schema()]}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text; line breaks in it become blanks."""

    most: int = 400

    def read(self, node: Node, name: str, report: Report) -> str:
        if not isinstance(node, Scalar):
            refuse(self, node, name)
        text = " ".join(node.value.split())
        if len(text) > self.most or not text.isprintable():
            refuse(self, node, name)
        return text

    def expected(self) -> str:
        return f"printable text of at most {self.most} characters"

    def json_schema(self) -> Json:
        return {"type": "string", "maxLength": self.most}


@dataclass(frozen=True, slots=True)
class Expression:
    """A formula; `formulas.py` reads it once everything it may name is known."""

    def read(self, node: Node, name: str, report: Report) -> FormulaText:
        if not isinstance(node, Scalar):
            refuse(self, node, name)
        return FormulaText.of(node)

    def expected(self) -> str:
        return "a formula"

    def json_schema(self) -> Json:
        return {"type": ["string", "number", "boolean"]}
