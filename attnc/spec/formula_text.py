"""The text of a formula: what may stand in it at all, and Python's `ast` of it.

A scan comes before the parser: it admits only the characters, numbers and sizes of the language, so
strings, comments, statements and texts large or deep enough to trouble a parser never reach it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import pairwise

from attnc.source import Span
from attnc.spec import formula_mistakes as mistakes
from attnc.spec.yaml_reader import Scalar, Source

MAX_TERMS = 200  # names and numbers in one formula
MAX_TOKENS = 2000
MAX_NESTING = 40
MAX_DIGITS = 48

_TOKEN = re.compile(
    r"\s+|(?P<word>[A-Za-z_]\w*)|(?P<number>(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)"
    r"|\*\*|//|[<>=!]=|[-+*/%<>=&|~()\[\],]",
    re.ASCII,
)
_ADVICE = {
    "&&": "write & for and",
    "||": "write | for or",
    "^": "write ** for a power, and (a) != (b) for an exclusive or of conditions",
    "!": "write ~ or not for negation",
    "?": "write where(condition, a, b)",
    ":": "index one element; there are no slices, and no lambdas",
    "#": "put remarks into doc or a YAML comment",
    ".": "there are no attributes; call functions by their plain names, for example tanh(x)",
    "'": "there are no strings",
    '"': "there are no strings",
}


@dataclass(frozen=True, slots=True)
class FormulaText:
    """A formula as it stands in the spec; `text` is on one line, with the scalar's own offsets."""

    scalar: Scalar
    text: str

    @staticmethod
    def of(scalar: Scalar) -> FormulaText:
        """The formula that a scalar of the tree holds."""
        return FormulaText(scalar, "".join(" " if c.isspace() else c for c in scalar.value))

    @staticmethod
    def of_text(text: str, path: str = "<formula>") -> FormulaText:
        """A formula that stands in no file."""
        return FormulaText.of(Scalar(Source(path, text), 0, len(text), text))

    def span(self, start: int, end: int) -> Span:
        """Where characters [start, end) stand in the file."""
        return self.scalar.locate(start, end)

    def node_span(self, node: ast.expr) -> Span:
        """Where a parsed part stands in the file."""
        return self.span(*extent(node))

    def bounds(self) -> tuple[int, int]:
        """The characters [start, end) of the text without the blanks around it."""
        return len(self.text) - len(self.text.lstrip()), len(self.text.rstrip())

    def tidy(self) -> str:
        """The text with single blanks: fit for one line of a comment."""
        return " ".join(self.text.split())

    def parse(self) -> ast.expr:
        """Parse to Python's tree.  Raises: SpecError."""
        self._scan()
        try:
            # The scan has matched the brackets, so these two only make a leading blank harmless.
            tree = ast.parse(f"({self.text}\n)", mode="eval")
        except SyntaxError as error:
            raise self._no_formula(error) from None
        except (RecursionError, MemoryError):
            place = self.span(0, len(self.text))
            raise mistakes.FormulaTooDeep(place, limit=MAX_NESTING) from None
        return _shift(tree.body)

    def _no_formula(self, error: SyntaxError) -> mistakes.FormulaSyntax:
        """Say where Python's parser stopped, without its guesses about Python."""
        first, last = self.bounds()
        at = (error.offset or 2) - 2
        if error.lineno != 1 or at >= last:
            problem, at = "the formula stops before it is complete", last - 1
        else:
            problem = "the formula makes no sense from here on"
        return mistakes.FormulaSyntax(
            self.span(max(at, first), max(at, first) + 1), problem=problem
        )

    def _scan(self) -> None:
        """Check characters, counts and brackets from left to right."""
        if not self.text.strip():
            raise mistakes.FormulaSyntax(self.scalar.span, problem="the formula is empty")
        at = tokens = terms = 0
        opened: list[int] = []
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise self._bad_character(at, 1)
            if self.text[at : at + 2] in _ADVICE:
                raise self._bad_character(at, 2)
            word, number = match["word"], match["number"]
            if number:
                self._check_number(at, match.end())
            tokens += 1
            terms += bool(word or number)
            if terms > MAX_TERMS:
                raise self._too_long(at, MAX_TERMS, "names and numbers")
            if tokens > MAX_TOKENS:
                raise self._too_long(at, MAX_TOKENS, "words and signs")
            self._bracket(at, opened)
            at = match.end()
        if opened:
            place = self.span(opened[-1], opened[-1] + 1)
            raise mistakes.FormulaSyntax(place, problem="this bracket is never closed")

    def _bracket(self, at: int, opened: list[int]) -> None:
        char = self.text[at]
        if char in "([":
            opened.append(at)
            if len(opened) > MAX_NESTING:
                raise mistakes.FormulaTooDeep(self.span(at, at + 1), limit=MAX_NESTING)
        elif char in ")]" and (not opened or self.text[opened.pop()] + char not in ("()", "[]")):
            place = self.span(at, at + 1)
            raise mistakes.FormulaSyntax(place, problem="this bracket closes nothing")

    def _check_number(self, start: int, end: int) -> None:
        after = self.text[end : end + 1]
        if after == "." or after.isalnum() or after == "_":
            place = self.span(start, end + 1)
            raise mistakes.FormulaSyntax(place, problem="a number cannot be written so")
        if end - start > MAX_DIGITS:
            place = self.span(start, end)
            raise mistakes.NumberTooLarge(place, limit=f"write at most {MAX_DIGITS} characters")

    def _bad_character(self, at: int, length: int) -> mistakes.FormulaCharacter:
        char = self.text[at : at + length]
        advice = _ADVICE.get(
            char, "a formula is made of names, numbers, brackets and + - * / // % ** < > = & | ~"
        )
        shown = repr(char) if char.isprintable() else f"character U+{ord(char):04X}"
        return mistakes.FormulaCharacter(self.span(at, at + length), char=shown, advice=advice)

    def _too_long(self, at: int, limit: int, what: str) -> mistakes.FormulaTooLong:
        return mistakes.FormulaTooLong(self.span(at, at + 1), limit=limit, what=what)


def extent(node: ast.expr) -> tuple[int, int]:
    """The characters [start, end) of a parsed part."""
    return node.col_offset, node.end_col_offset or node.col_offset + 1


def _shift(tree: ast.expr) -> ast.expr:
    """Take back the column of the bracket that `parse` put before the text."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.keyword)):
            node.col_offset -= 1
            node.end_col_offset = (node.end_col_offset or 0) - 1
    return tree


def with_parentheses(text: FormulaText, node: ast.Compare) -> str | None:
    """Write a formula anew with the parentheses that a bare comparison beside & or | lacks.

    Returns: the whole text, or None when no & or | stands bare beside this comparison.
    """
    groups = [_segments(text.text, part) for part in (node.left, *node.comparators)]
    if all(len(group) == 1 for group in groups):
        return None
    runs: list[tuple[int, int]] = [groups[0][0]]
    joined = [False]
    for before, group in pairwise(groups):
        for segment in before[1:]:
            runs.append(segment)
            joined.append(False)
        runs[-1] = (runs[-1][0], group[0][1])
        joined[-1] = True
    written = text.text
    for start, end in reversed(
        [run for run, is_joined in zip(runs, joined, strict=True) if is_joined]
    ):
        written = f"{written[:start]}({written[start:end]}){written[end:]}"
    return " ".join(written.split())


def _segments(text: str, node: ast.expr) -> list[tuple[int, int]]:
    """The parts between the bare & and | of an operand, each with its own parentheses."""
    start, end = extent(node)
    before, after = text[:start].rstrip(), text[end:].lstrip()
    if before.endswith("(") and after.startswith(")"):
        return [(len(before) - 1, len(text) - len(after) + 1)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        return [*_segments(text, node.left), *_segments(text, node.right)]
    return [(start, end)]
