"""Read YAML into a tree in which every value knows where it stands.

Only the part of YAML that a spec needs: one document of mappings, sequences and scalars.  Anchors,
aliases, tags and complex keys are refused, so a small file cannot unfold into a large one, and
limits on size, count and depth bound the work.  What a scalar means is decided by the field that
holds it (`kinds.py`), never guessed from how it looks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from attnc.errors import SpecError, SpecErrors
from attnc.source import Span
from attnc.spec import mistakes

MAX_BYTES = 64 * 1024
MAX_VALUES = 2000
MAX_DEPTH = 16
# every line end of YAML is made one: what ends a line differs from reader to reader, and the text
# must read the same from the comment lines of a generated file
_LINE_END = re.compile("\r\n|[\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Source:
    """A text, a line feed at the end of each line, and the name of the file it came from."""

    path: str
    text: str
    starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0, *(i + 1 for i, c in enumerate(self.text) if c == "\n")]
        object.__setattr__(self, "starts", tuple(starts))

    def span(self, start: int, end: int) -> Span:
        """The part of [start, end) that stands on the line where it begins."""
        start = max(0, min(start, len(self.text)))
        line = bisect_right(self.starts, start)
        first = self.starts[line - 1]
        text = self.text[first:].split("\n", 1)[0]
        column = start - first + 1
        return Span(self.path, line, column, max(column + 1, min(end - first, len(text)) + 1), text)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the tree: characters [start, end) of its source."""

    source: Source
    start: int
    end: int

    @property
    def span(self) -> Span:
        return self.source.span(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Scalar(Node):
    """A text.  `style` is None for a bare scalar, else the character that quotes or opens it."""

    value: str
    style: str | None = None

    def locate(self, start: int, end: int) -> Span:
        """The place in the source of characters [start, end) of the value."""
        places = self._places()
        last = max(start, min(end, len(places)) - 1)
        if not places or start >= len(places):
            return self.source.span(self.end, self.end + 1)
        return self.source.span(places[start], places[last] + 1)

    def _places(self) -> list[int]:
        """Where each character of the value stands; folded blanks stand beside a neighbour."""
        raw = self.source.text
        at = (
            raw.find("\n", self.start) + 1
            if self.style in ("|", ">")
            else self.start + bool(self.style)
        )
        places: list[int] = []
        for char in self.value:
            found = at if char.isspace() else raw.find(char, at, self.end)
            found = at if found < 0 else found
            places.append(found)
            at = min(found + 1, self.end)
        return places


@dataclass(frozen=True, slots=True)
class Sequence(Node):
    """A list."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping and its value."""

    key: Scalar
    value: Node


@dataclass(frozen=True, slots=True)
class Mapping(Node):
    """A mapping; its keys are scalars and differ."""

    entries: tuple[Entry, ...]

    def get(self, name: str) -> Node | None:
        """The value under a key, or None."""
        return next((entry.value for entry in self.entries if entry.key.value == name), None)


def read_yaml(text: str, path: str) -> Mapping:
    """Read a text into its tree, whose source is the text with plain line ends.

    Raises: SpecErrors when it is no YAML, uses a part of YAML that specs do without, is larger than
    a spec can be, or is not a mapping.
    """
    source = Source(path, _LINE_END.sub("\n", text.removeprefix("\ufeff")))
    try:
        if len(text.encode("utf-8", "replace")) > MAX_BYTES:
            raise mistakes.FileTooLarge(source.span(0, 0), limit=MAX_BYTES // 1024)
        root = _Composer(source).document()
        if not isinstance(root, Mapping):
            raise mistakes.NotAMapping(source.span(0, 1) if root is None else root.span)
    except SpecError as error:
        raise SpecErrors([error]) from None
    return root


class _Composer:
    """Build the tree from PyYAML's events, which come lazily: a refused file costs little."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.count = 0
        self.events = self._events()

    def _events(self) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(self.source.text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = mark.index if mark else 0
            raise mistakes.BadYaml(self.source.span(at, at + 1), problem=_problem(error)) from None
        except yaml.reader.ReaderError as error:
            place = self.source.span(error.position, error.position + 1)
            raise mistakes.BadCharacter(place, char=_code(error.character)) from None

    def document(self) -> Node | None:
        """The one document of the text, or None when the text is empty."""
        root: Node | None = None
        for event in self.events:
            match event:
                case yaml.DocumentStartEvent() if root is not None:
                    place = self.source.span(event.start_mark.index, event.end_mark.index)
                    raise mistakes.SeveralDocuments(place)
                case yaml.StreamStartEvent() | yaml.StreamEndEvent():
                    continue
                case yaml.DocumentStartEvent() | yaml.DocumentEndEvent():
                    continue
                case _:
                    root = self.node(event, 0)
        return root

    def node(self, event: yaml.Event, depth: int) -> Node:
        """The value that begins with this event."""
        start, end = event.start_mark.index, event.end_mark.index
        self.count += 1
        self._refuse(event, self.source.span(start, end), depth)
        match event:
            case yaml.ScalarEvent():
                return Scalar(self.source, start, end, event.value, event.style)
            case yaml.SequenceStartEvent():
                items, end = self._items(depth)
                return Sequence(self.source, start, end, items)
            case _:
                entries, end = self._entries(depth)
                return Mapping(self.source, start, end, entries)

    def _refuse(self, event: yaml.Event, place: Span, depth: int) -> None:
        """Stop at what a spec does without."""
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise mistakes.Anchor(place)
        if getattr(event, "tag", None):
            raise mistakes.Tag(place, tag=getattr(event, "tag", None))
        if depth > MAX_DEPTH:
            raise mistakes.TooDeep(place, limit=MAX_DEPTH)
        if self.count > MAX_VALUES:
            raise mistakes.TooManyValues(place, limit=MAX_VALUES)

    def _items(self, depth: int) -> tuple[tuple[Node, ...], int]:
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, depth + 1))
        return tuple(items), event.end_mark.index

    def _entries(self, depth: int) -> tuple[tuple[Entry, ...], int]:
        entries: dict[str, Entry] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.node(event, depth + 1)
            if not isinstance(key, Scalar):
                raise mistakes.KeyIsNoName(key.span)
            if key.value in entries:
                line = entries[key.value].key.span.line
                raise mistakes.DuplicateKey(key.span, key=key.value, line=line)
            entries[key.value] = Entry(key, self.node(next(self.events), depth + 1))
        return tuple(entries.values()), event.end_mark.index


def _code(character: str | int) -> str:
    """How messages name a character that cannot be shown."""
    return f"U+{character if isinstance(character, int) else ord(character):04X}"


def _problem(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's own words, with the two that speak its jargon put plainly."""
    problem = str(error.problem or error.context)
    if "'\\t'" in problem:
        return "a tab cannot indent or start a value; use spaces"
    return problem
