"""Find the marked parts of a generated file: its spec, and the schedule table that tuning changes.

A mark is a line of its own outside of every statement, so that neither a docstring that happens to
hold such a line nor a comment inside of code is one.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """The lines of a file, counted from 0, of which `first` and `last` are the marks of a part."""

    lines: tuple[str, ...]
    first: int
    last: int

    @property
    def inside(self) -> tuple[str, ...]:
        """The lines between the marks."""
        return self.lines[self.first + 1 : self.last]

    def holds(self, node: ast.stmt) -> bool:
        """Whether a statement stands between the marks."""
        return self.first < node.lineno - 1 < self.last

    def left_out(self) -> str:
        """The file without this part; its first mark stays."""
        return "\n".join((*self.lines[: self.first + 1], *self.lines[self.last + 1 :]))


def part_of(source: str, name: str) -> Part | None:
    """Find the part between `# --- NAME` and `# --- end of NAME`; source must be Python."""
    lines = tuple(source.split("\n"))  # as Python counts them: splitlines knows more kinds of ends
    of_statements = {
        number
        for node in ast.parse(source).body
        for number in range(_first_line(node) - 1, node.end_lineno or node.lineno)
    }
    free = [number for number in range(len(lines)) if number not in of_statements]
    first = next((n for n in free if lines[n] == f"# --- {name}"), None)
    end = f"# --- end of {name}"
    last = next((n for n in free if first is not None and n > first and lines[n] == end), None)
    return None if first is None or last is None else Part(lines, first, last)


def without_schedules(source: str) -> str:
    """The text without its schedule table."""
    part = part_of(source, "schedules")
    return part.left_out() if part else source


def kernels_hash(source: str) -> str:
    """The hash of a text without its schedule table, which tuning changes."""
    return sha256(without_schedules(source))


def sha256(text: str) -> str:
    """The hash of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(part.lineno for part in (node, *decorators))
