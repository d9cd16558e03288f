"""Read a generated file that its owner may have edited; show where it cannot be judged.

The schedule table is no part of what a certificate vouches for, because tuning changes it.  So it
may hold nothing that needs vouching: literals, and only such as the launcher would accept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from attnc.errors import SpecError
from attnc.source import Span
from attnc.verify.source_parts import part_of

TILES = (16, 32, 64, 128, 256)
FIELDS: dict[str, tuple[int, ...]] = {
    "block_q": TILES,
    "block_kv": TILES,
    "warps": (1, 2, 4, 8, 16),
    "stages": tuple(range(1, 9)),
}
CHOICES = {
    name: (False, True) for name in ("skew", "tma", "last_first")
}  # a row may leave them out
DEVICE = re.compile(r"sm_[0-9]+|gfx[0-9a-f]+")
ELEMENT_BYTES = (2, 4)
KERNEL = re.compile(r"[a-z][a-z_]*")


class NotUtf8(SpecError):
    """Report a generated file that is no text any more."""

    code = "user/not-utf8"
    message = "byte {byte} is not UTF-8 text"
    help = "save the file as UTF-8"


class NotPython(SpecError):
    """Report a generated file that Python cannot parse any more."""

    code = "user/not-python"
    message = "this is not Python: {problem}"


class NotATable(SpecError):
    """Report code in the one part of a generated file that no certificate covers."""

    code = "user/not-a-table"
    message = "between the marks of the schedules may stand SCHEDULES = {{...}} and nothing else"
    help = "move other code out of that part: the certificate leaves it out"


class BadRow(SpecError):
    """Report a schedule that the launcher would not take from a caller."""

    code = "user/bad-schedule-row"
    message = "this is no {what} of a schedule"
    help = "{allowed}"


def read_source(path: Path) -> str:
    """Read a Python file; see that it parses and that its schedule table is one.

    Raises: OSError, NotUtf8, NotPython, NotATable, BadRow.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        line = error.object.split(b"\n")[before.count("\n")].decode(errors="replace")
        place = _place(path, before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1, line)
        raise NotUtf8(place, byte=f"0x{error.object[error.start]:02x}") from None
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        number = error.lineno or 1
        line = [*source.splitlines(), ""][number - 1]
        raise NotPython(_place(path, number, error.offset or 1, line), problem=error.msg) from None
    except (RecursionError, MemoryError):
        raise NotPython(_place(path, 1, 1, ""), problem="too deeply nested") from None
    for kind, node, facts in _faults(source, tree):
        line = source.split("\n")[node.lineno - 1]
        column = len(line.encode()[: node.col_offset].decode()) + 1
        raise kind(_place(path, node.lineno, column, line), **facts)
    return source


Fault = tuple[type[SpecError], ast.stmt | ast.expr, dict[str, str]]


def _faults(source: str, tree: ast.Module) -> Iterator[Fault]:
    """Everything between the marks of the schedules that has no business there."""
    if (part := part_of(source, "schedules")) is None:
        return
    tables = 0
    for node in filter(part.holds, tree.body):
        match node:
            case ast.Assign([ast.Name("SCHEDULES")], ast.Dict(keys, values)) if not tables:
                tables += 1
                for key, value in zip(keys, values, strict=True):
                    yield from _row_faults(key, value)
            case _:
                yield NotATable, node, {}


def _row_faults(key: ast.expr | None, row: ast.expr) -> Iterator[Fault]:
    match key:
        case ast.Tuple([ast.Constant(str(device)), ast.Constant(size), ast.Constant(str(kernel))]):
            good = (
                DEVICE.fullmatch(device)
                and _is_one_of(size, ELEMENT_BYTES)
                and KERNEL.fullmatch(kernel)
            )
        case _:
            good = False
    if not good:
        allowed = (
            'write (device class, bytes of an element, kernel), for example ("sm_90", 2, "forward")'
        )
        yield BadRow, key or row, {"what": "device", "allowed": allowed}
    match row:
        case ast.Dict(names, values) if _are_fields(names):
            for name, value in zip(names, values, strict=True):
                field = str(_constant(name))
                choices = {**FIELDS, **CHOICES}[field]
                if not _is_one_of(_constant(value), choices):
                    allowed = f"{field} is one of " + ", ".join(map(str, choices))
                    yield BadRow, value, {"what": field, "allowed": allowed}
        case _:
            allowed = "a tile has these fields: " + ", ".join(FIELDS)
            yield BadRow, row, {"what": "tile", "allowed": allowed}


def _are_fields(names: Sequence[ast.expr | None]) -> bool:
    """Whether these are the fields of a tile, each once."""
    given = _named(names)
    return len(names) == len(given) and set(FIELDS) <= given <= {*FIELDS, *CHOICES}


def _named(names: Sequence[ast.expr | None]) -> set[object]:
    return {_constant(name) for name in names}


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_one_of(value: object, allowed: Sequence[int]) -> bool:
    return type(value) is type(allowed[0]) and value in allowed  # True is 1, and no int


def _place(path: Path, line: int, column: int, text: str) -> Span:
    column = max(column, 1)
    return Span(str(path), line, column, column + 1, text)
