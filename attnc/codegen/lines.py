"""Lines of a kernel's text, before a template prints them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from attnc.codegen.addresses import position_name
from attnc.ir.nodes import Axis


@dataclass(frozen=True, slots=True)
class Line:
    """One statement of the kernel's text; `kind` is line, blank, comment or block."""

    kind: str
    text: str = ""
    remark: str = ""
    body: tuple[Line, ...] = ()


def comment(note: str) -> Iterator[Line]:
    """A line for a note that says something."""
    if note:
        yield Line("comment", note)


def by_words(
    lines: list[Line], words: set[str], bound: Collection[str] = ()
) -> tuple[list[Line], list[Line]]:
    """The lines that use a word, directly or by way of others, or bind one; and the rest."""
    words, using, rest = set(words), [], []
    for line in lines:
        name, _, value = line.text.partition(" = ")
        if name in bound or words & set(re.findall(r"\w+", value)):
            words.add(name)
            using.append(line)
        else:
            rest.append(line)
    return using, rest


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A text with other names in it."""
    return re.sub(r"\b[a-z_]\w*\b", lambda word: names.get(word[0], word[0]), text)


def where_a_tile_stands(axis: Axis, body: list[Line]) -> Iterator[Line]:
    """Where the tile of a loop stands, as far as its body asks."""
    first, index = (
        any(re.search(rf"\b{name}\b", line.text) for line in body)
        for name in (axis.first, axis.index)
    )
    if first or index:
        yield Line("line", f"{axis.first} = tile * {axis.tile}")
    if index:
        yield Line("line", f"{axis.index} = {axis.first} + {axis.within}")


def position(axis: Axis) -> Line:
    """The positions of a tile on the whole axis."""
    return Line("line", f"{axis.index} = {axis.first} + {position_name(axis)}")


def arange(axis: Axis) -> str:
    """The positions of a tile within it; of a feature axis, on the whole axis."""
    start = f"{axis.first} + " if axis.role == "feature" and axis.first != 0 else ""
    return f"{start}tl.arange(0, {axis.tile}).to(INDEX)"


def tidy(lines: list[Line]) -> Iterator[Line]:
    """Never two blank lines, none at the ends."""
    previous = "blank"
    for i, line in enumerate(lines):
        last = i == len(lines) - 1
        if line.kind == "blank" and (previous == "blank" or last):
            continue
        previous = line.kind
        yield line
