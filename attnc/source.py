"""Where a piece of the user's text stands, so that an error can show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one line of a source text.

    `line` and `column` count from 1; `end` is exclusive.
    """

    path: str
    line: int
    column: int
    end: int
    text: str  # the whole line

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"

    def caret(self) -> str:
        """Two lines: the text, and carets under the range."""
        gutter = f"{self.line:>5} | "
        width = max(1, min(self.end, len(self.text) + 1) - self.column)
        margin = f"{' ' * (len(gutter) - 2)}| "
        return f"{gutter}{self.text}\n{margin}{' ' * (self.column - 1)}{'^' * width}"
