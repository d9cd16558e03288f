"""The first room: the text of a spec becomes an AttentionSpec."""

from __future__ import annotations

import hashlib
from pathlib import Path

from attnc.errors import SpecErrors
from attnc.source import Span
from attnc.spec import mistakes
from attnc.spec.blocks import describe_blocks
from attnc.spec.builder import Spec
from attnc.spec.callables import formula, param, tensor, where
from attnc.spec.checker import check_spec
from attnc.spec.fields import json_schema
from attnc.spec.schema import AttentionSpec
from attnc.spec.settings import apply_settings
from attnc.spec.yaml_reader import MAX_BYTES, read_yaml

__all__ = [
    "AttentionSpec",
    "Spec",
    "apply_settings",
    "describe_blocks",
    "digest",
    "formula",
    "json_schema",
    "param",
    "parse_spec",
    "read_spec",
    "read_text",
    "tensor",
    "where",
]


def read_spec(path: Path) -> AttentionSpec:
    """Read and check the spec in a file.

    Raises: UserError when the file cannot be read, SpecErrors with every mistake in it.
    """
    return parse_spec(read_text(path), path)


def parse_spec(text: str, path: Path | str = "spec.yaml") -> AttentionSpec:
    """Check the text of a spec.  `path` is what errors show, and its stem the default name.

    Raises: SpecErrors with every mistake.
    """
    return check_spec(read_yaml(text, str(path)))


def digest(spec: AttentionSpec) -> str:
    """Hash a spec's text: the same on every machine and in every process (SHA-256, hex)."""
    return hashlib.sha256(spec.text.encode()).hexdigest()


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
