"""Read the text of a file that a user wrote."""

from __future__ import annotations

from pathlib import Path

from attnc.errors import SpecErrors
from attnc.source import Span
from attnc.spec import mistakes
from attnc.spec.yaml_reader import MAX_BYTES


def read_text(path: Path) -> str:
    """Read a spec's text.

    Raises: UserError when the file cannot be read, SpecErrors when it is too large or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise mistakes.UnreadableSpec(
            path=path, problem=error.strerror or "it cannot be opened"
        ) from None
    except ValueError:  # a null byte in the path
        raise mistakes.UnreadableSpec(path=repr(str(path)), problem="this is no path") from None
    if len(data) > MAX_BYTES:
        raise SpecErrors(
            [mistakes.FileTooLarge(Span(str(path), 1, 1, 2, ""), limit=MAX_BYTES // 1024)]
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        text = data.split(b"\n")[line - 1].decode("utf-8", "replace")
        column = len(data[: error.start].rsplit(b"\n", 1)[-1].decode("utf-8", "replace")) + 1
        place = Span(str(path), line, column, column + 1, text)
        raise SpecErrors([mistakes.NotUtf8(place, byte=f"0x{data[error.start]:02x}")]) from None
