"""Write mistakes as JSON, for a program that asked with --json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from attnc.commands.inputs import SeveralMistakes
from attnc.errors import AttncError, SpecError, SpecErrors, UserError


def mistakes_json(error: AttncError) -> str:
    """Every mistake with its code, message and help, and its place where it stands in a spec."""
    return json.dumps({"errors": list(_mistakes(error))}, indent=2)


def _mistakes(error: AttncError) -> Iterator[dict[str, Any]]:
    match error:
        case SeveralMistakes() | SpecErrors():
            for one in error.errors:
                yield from _mistakes(one)
        case SpecError():
            place = {"line": error.span.line, "column": error.span.column}
            yield {**_said(error), "file": error.span.path, **place}
        case UserError():
            yield _said(error)
        case _:
            yield {"message": str(error)}


def _said(error: SpecError | UserError) -> dict[str, Any]:
    facts = error.facts
    said = {"code": error.code, "message": error.message.format(**facts)}
    return said | ({"help": error.help.format(**facts)} if error.help else {})
