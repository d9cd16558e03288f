"""Read a generated file that its owner may have edited; show where it is no Python."""

from __future__ import annotations

import ast
from pathlib import Path

from attnc.errors import SpecError
from attnc.source import Span


class NotUtf8(SpecError):
    """Report a generated file that is no text any more."""

    code = "user/not-utf8"
    message = "byte {byte} is not UTF-8 text"
    help = "save the file as UTF-8"


class NotPython(SpecError):
    """Report a generated file that Python cannot parse any more."""

    code = "user/not-python"
    message = "this is not Python: {problem}"


def read_source(path: Path) -> str:
    """Read a Python file and see that it parses.

    Raises: OSError, NotUtf8, NotPython.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        line = error.object.split(b"\n")[before.count("\n")].decode(errors="replace")
        place = _place(path, before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1, line)
        raise NotUtf8(place, byte=f"0x{error.object[error.start]:02x}") from None
    try:
        ast.parse(source)
    except SyntaxError as error:
        number = error.lineno or 1
        line = [*source.splitlines(), ""][number - 1]
        raise NotPython(_place(path, number, error.offset or 1, line), problem=error.msg) from None
    except (RecursionError, MemoryError):
        raise NotPython(_place(path, 1, 1, ""), problem="too deeply nested") from None
    return source


def _place(path: Path, line: int, column: int, text: str) -> Span:
    column = max(column, 1)
    return Span(str(path), line, column, column + 1, text)
