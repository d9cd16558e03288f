"""The kinds of value that hold others: lists, mappings with fixed keys or chosen names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnc.errors import SpecError
from attnc.spec import mistakes
from attnc.spec.kinds import Json, Kind, Report, given, refuse
from attnc.spec.yaml_reader import Entry, Node, Scalar, Sequence
from attnc.spec.yaml_reader import Mapping as MappingNode


@dataclass(frozen=True, slots=True)
class OneOf:
    """The first kind that fits the node's shape: a scalar, a list or a mapping."""

    kinds: tuple[Kind, ...]

    def read(self, node: Node, name: str, report: Report) -> Any:
        for kind in self.kinds:
            if _shape(kind) is type(node):
                return self._read(kind, node, name, report)
        refuse(self, node, name)

    def _read(self, kind: Kind, node: Node, name: str, report: Report) -> Any:
        try:
            return kind.read(node, name, report)
        except mistakes.BadValue as error:
            if error.span != node.span:
                raise
        refuse(self, node, name)  # in words that name every kind

    def expected(self) -> str:
        return " or ".join(kind.expected() for kind in self.kinds)

    def json_schema(self) -> Json:
        return {"oneOf": [kind.json_schema() for kind in self.kinds]}


def _shape(kind: Kind) -> type[Node]:
    if isinstance(kind, (Section, Names)):
        return MappingNode
    return Sequence if isinstance(kind, List) else Scalar


@dataclass(frozen=True, slots=True)
class List:
    """A list of one kind.  `unique` refuses an item that is there already."""

    item: Kind
    least: int = 0
    most: int = 64
    unique: bool = False

    def read(self, node: Node, name: str, report: Report) -> tuple[Any, ...]:
        if not isinstance(node, Sequence) or not self.least <= len(node.items) <= self.most:
            refuse(self, node, name)
        values: list[Any] = []
        for at, item in enumerate(node.items):
            value = gathered(
                lambda item=item, at=at: self.item.read(item, f"{name}[{at}]", report), report
            )
            if self.unique and value in values:
                report.append(
                    mistakes.BadValue(
                        item.span, field=name, expected="free of repeats", given=given(item)
                    )
                )
            values.append(value)
        return tuple(values)

    def expected(self) -> str:
        return f"a list of {self.least} to {self.most} items" if self.least else "a list"

    def json_schema(self) -> Json:
        schema: Json = {"type": "array", "items": self.item.json_schema(), "maxItems": self.most}
        if self.least:
            schema["minItems"] = self.least
        return schema | ({"uniqueItems": True} if self.unique else {})


@dataclass(frozen=True, slots=True)
class Field:
    """A key: what it holds, what it means, and whether it must be there."""

    name: str
    kind: Kind
    doc: str
    required: bool = False
    default: Any = None  # for JSON Schema; the checker applies defaults


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with fixed keys; `later` says what keys are that come with a later version."""

    what: str
    fields: tuple[Field, ...]
    later: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)  # what to write for other keys
    more: Callable[[], Json] | None = (
        None  # JSON Schema of further keys, which the checker reads itself
    )

    def read(self, node: Node, name: str, report: Report) -> dict[str, Any]:
        """Return the keys that are right; report the others."""
        if not isinstance(node, MappingNode):
            refuse(self, node, name)
        known = {each.name: each for each in self.fields}
        values: dict[str, Any] = {}
        for entry in node.entries:
            key = entry.key.value
            if key not in known:
                self._unknown(entry, report)
                continue
            where = f"{name}.{key}" if name else key
            value = gathered(
                lambda e=entry, k=key, w=where: known[k].kind.read(e.value, w, report), report
            )
            if value is not None:
                values[key] = value
        given_keys = {entry.key.value for entry in node.entries}
        for each in self.fields:
            if each.required and each.name not in given_keys:
                place = node.source.span(node.start, node.start + 1)
                facts = {"where": name or self.what, "key": each.name, "advice": each.doc}
                report.append(mistakes.MissingKey(place, **facts))
        return values

    def _unknown(self, entry: Entry, report: Report) -> None:
        key, name = entry.key, entry.key.value
        if name in self.later:
            advice = "this version compiles attention without it; remove the key"
            feature = f"{name} ({self.later[name]})"
            report.append(mistakes.NotBuiltYet(key.span, feature=feature, advice=advice))
            return
        names = [each.name for each in self.fields]
        close = difflib.get_close_matches(name, [*names, *self.later], 1)
        advice = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(names)}"
        if name in self.elsewhere:
            value = entry.value.value if isinstance(entry.value, Scalar) else ""
            number = value if value.isascii() and value.isdigit() and len(value) < 10 else "n"
            advice = f"write {self.elsewhere[name].format(number)}"
        shown = name if name.isprintable() and len(name) <= 40 else f"{name[:37]!r}..."
        report.append(mistakes.UnknownKey(key.span, where=self.what, key=shown, advice=advice))

    def expected(self) -> str:
        return "a mapping with " + ", ".join(each.name for each in self.fields)

    def json_schema(self) -> Json:
        properties: Json = {}
        for each in self.fields:
            schema = each.kind.json_schema() | {"description": each.doc}
            properties[each.name] = (
                schema if each.default is None else schema | {"default": each.default}
            )
        required = [each.name for each in self.fields if each.required]
        extra = self.more() if self.more else False
        schema: Json = {"type": "object", "properties": properties, "additionalProperties": extra}
        return schema | ({"required": required} if required else {})


@dataclass(frozen=True, slots=True)
class Names:
    """A mapping from names the user chooses to values of one kind."""

    item: Kind
    check: Callable[[Scalar], None]
    most: int = 32

    def read(self, node: Node, name: str, report: Report) -> dict[str, Any]:
        if not isinstance(node, MappingNode) or len(node.entries) > self.most:
            refuse(self, node, name)
        values: dict[str, Any] = {}
        for entry in node.entries:
            key, where = entry.key.value, f"{name}.{entry.key.value}"
            gathered(lambda e=entry: self.check(e.key), report)
            value = gathered(lambda e=entry, w=where: self.item.read(e.value, w, report), report)
            if value is not None:
                values[key] = value
        return values

    def expected(self) -> str:
        return f"a mapping of at most {self.most} names"

    def json_schema(self) -> Json:
        return {
            "type": "object",
            "additionalProperties": self.item.json_schema(),
            "maxProperties": self.most,
        }


def gathered(read: Callable[[], Any], report: Report) -> Any:
    """Run a check; put its mistake into the report and return None."""
    try:
        return read()
    except SpecError as error:
        report.append(error)
        return None
