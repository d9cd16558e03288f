"""What attnc says when the user's input is wrong: a place, the mistake, a remedy.

Every error here ends a command with exit status 2 and no traceback.  Anything else that is raised
is a bug of attnc's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from attnc.source import Span

SHOWN = 120  # characters of a source line that an error shows


class AttncError(Exception):
    """Base of all mistakes that are the user's to mend; `cli` turns them into exit status 2."""


class UserError(AttncError):
    """Report a mistake that stands in no spec: a missing file, a wrong option.

    Subclasses set `code`, `message` and `help`, whose braces `facts` fills.
    """

    code: ClassVar[str] = "user/error"
    message: ClassVar[str] = "{problem}"
    help: ClassVar[str] = ""

    def __init__(self, **facts: object) -> None:
        super().__init__(facts)
        self.facts = facts

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), (), self.facts)

    def __str__(self) -> str:
        return f"{self.code} {self.message.format(**self.facts)}" + _help(self.help, self.facts)


class SpecError(AttncError):
    """Report one mistake in a spec and show where it stands.

    Subclasses set `code`, `message` and `help`, whose braces `facts` fills.
    """

    code: ClassVar[str]
    message: ClassVar[str]
    help: ClassVar[str] = ""

    def __init__(self, span: Span, **facts: object) -> None:
        super().__init__(span, facts)
        self.span = span
        self.facts = facts

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), (self.span,), self.facts)

    def __str__(self) -> str:
        head = f"{self.span}: {self.code} {self.message.format(**self.facts)}"
        return f"{head}\n{_shown(self.span).caret()}" + _help(self.help, self.facts)


class SpecErrors(AttncError):
    """Gather the mistakes of one spec, in the order in which they stand in it."""

    def __init__(self, errors: Iterable[SpecError]) -> None:
        self.errors = tuple(sorted(errors, key=lambda error: (error.span.line, error.span.column)))
        super().__init__(self.errors)

    def __str__(self) -> str:
        return "\n\n".join(str(error) for error in self.errors)


def _help(text: str, facts: dict[str, object]) -> str:
    return f"\n  help: {text.format(**facts)}" if text else ""


def _rebuild(
    kind: type[AttncError], places: tuple[object, ...], facts: dict[str, object]
) -> AttncError:
    """Make the error again when it is unpickled, which knows nothing of keywords."""
    return kind(*places, **facts)


def _shown(span: Span) -> Span:
    """Cut a long line to the part around the mistake, and make every character one column wide."""
    text = "".join(c if c.isprintable() else " " for c in span.text)
    first = max(0, min(span.column - 1 - SHOWN // 3, len(text) - SHOWN))
    last = first + SHOWN
    cut = ("..." if first else "") + text[first:last] + ("..." if last < len(text) else "")
    shift = first - (3 if first else 0)
    end = min(span.end, last + 1)
    return replace(
        span, text=cut, column=span.column - shift, end=max(end, span.column + 1) - shift
    )
