"""Change a spec's text by `key.path=value`, as `--set` does, and leave the rest as it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence as Texts

from attnc.spec import mistakes
from attnc.spec.yaml_reader import Mapping, Node, Sequence, read_yaml

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*", re.ASCII)
_NEEDS_QUOTES = re.compile(r"[,\[\]{}:#&*!|>'\"%@`?-]|^\s*$", re.ASCII)


def apply_settings(text: str, settings: Texts[str], path: str = "spec.yaml") -> str:
    """Return the text of the spec with each `key.path=value` put into it.

    Raises: UserError when a setting is no key=value, SpecErrors when the text is no YAML.
    """
    for setting in settings:
        text = _apply(text, setting, path)
    return text


def _apply(text: str, setting: str, path: str) -> str:
    key, equals, value = setting.partition("=")
    value = value.strip()
    if not equals or not _KEY.fullmatch(key.strip()):
        raise mistakes.BadSetting(setting=repr(setting), problem="this is no key=value")
    if not value or not value.isprintable():
        raise mistakes.BadSetting(
            setting=repr(setting), problem="the value must be one line of text"
        )
    root = read_yaml(text, path)
    return _put(root.source.text, root, key.strip().split("."), _quoted(value))


def _quoted(value: str) -> str:
    """The value as YAML: a list or mapping as it is, any other text so that it stays one text."""
    if value[0] in "[{\"'" or re.fullmatch(r"-?[0-9.]+", value):
        return value
    return json.dumps(value, ensure_ascii=False) if _NEEDS_QUOTES.search(value) else value


def _put(text: str, node: Node, keys: list[str], value: str) -> str:
    """Put a value under a path of keys: replace what is there, or write the missing keys."""
    key, rest = keys[0], keys[1:]
    below = _below(node, key)
    if below is not None and rest and isinstance(below, (Mapping, Sequence)):
        return _put(text, below, rest, value)
    for missing in reversed(rest):
        value = f"{{{missing}: {value}}}"
    if below is not None:
        blank = " " if text[below.start - 1 : below.start] == ":" else ""
        end = below.start + len(text[below.start : below.end].rstrip())
        tail = "\n" if text[below.start : below.end].endswith("\n") else ""
        return text[: below.start] + blank + value + tail + text[max(end, below.end) :]
    return _insert(text, node, f"{key}: {value}")


def _below(node: Node, key: str) -> Node | None:
    if isinstance(node, Mapping):
        return node.get(key)
    if isinstance(node, Sequence) and key.isdigit() and int(key) < len(node.items):
        return node.items[int(key)]
    return None


def _insert(text: str, node: Node, entry: str) -> str:
    """Write a new key: at the end of the spec, or before the first key of an inner mapping."""
    if text[node.start] in "{[":
        comma = ", " if text[node.start + 1 : node.end].strip() != "}" else ""
        return f"{text[: node.start + 1]}{entry}{comma}{text[node.start + 1 :]}"
    if node.span.column == 1 and not text.rstrip().endswith("\n..."):
        return f"{text.rstrip()}\n{entry}\n"
    line = text.rfind("\n", 0, node.start) + 1
    indent = " " * (node.start - line)
    return f"{text[: node.start]}{entry}\n{indent}{text[node.start :]}"
