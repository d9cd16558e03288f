"""A fault as a pattern on the text of a generated file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attnc.verify.scan import kernels_of


@dataclass(frozen=True, slots=True)
class TextMutant:
    """A fault: every match of `pattern` inside a kernel becomes `replacement`.

    `needs_empty_rows`: without a row that sees nothing, beside rows that see something, the faulty
    text means the same.  `ways`: those that the fault is on.  `beside`: the pattern is for the text
    outside the kernels.  `gradients`: it is for the backward kernels, the others for the forward.
    """

    name: str
    pattern: str
    replacement: str
    needs_empty_rows: bool = False
    ways: tuple[str, ...] = ("interpreter",)
    beside: bool = False
    gradients: bool = False

    def apply(self, source: str) -> str | None:
        """The faulty text, or None where there is nothing to make faulty."""
        lines = source.splitlines(keepends=True)
        kernels = _kernels(source)
        mine = [lines for name, lines in kernels if name.startswith("backward") == self.gradients]
        everywhere = [lines for _, lines in kernels]
        places = _between(everywhere, len(lines)) if self.beside else mine
        for first, last in reversed(places):
            text = "".join(lines[first:last])
            faulty = re.sub(self.pattern, self.replacement, text, flags=re.MULTILINE)
            lines[first:last] = [faulty]
        changed = "".join(lines)
        return changed if changed != source else None


def assignment(name: str) -> str:
    """A pattern of an assignment: group 1 is what stands before the value, group 2 the value."""
    return rf"^( +{name}\w* = )([^#\n]+?)(?=  #|$)"


def unguarded(name: str) -> str:
    """A pattern of a masked load into `name`: group 1 is what stands before its mask."""
    return rf"^( +{name}\w* = (?:.+ if TMA else )?tl\.load\(.+), mask=.+, other=0(?:\.0)?\)"


def _kernels(source: str) -> list[tuple[str, tuple[int, int]]]:
    """The name and the lines of every kernel, in order."""
    nodes = kernels_of(source)
    return [(node.name, (node.lineno - 1, node.end_lineno or node.lineno)) for node in nodes]


def _between(ranges: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """The lines that no range holds."""
    firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
    return list(zip([0, *lasts], [*firsts, end], strict=True))
