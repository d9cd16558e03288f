"""The table of which room may import which, checked on every import, lazy ones included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "attnc"

GROUND = {
    "algebra",
    "artifact",
    "devices",
    "divisors",
    "errors",
    "notation",
    "ranges",
    "source",
    "symbols",
    "targets",
}
MAY_IMPORT = {
    "spec": set(),
    "ir": set(),
    "graph": {"spec"},
    "plan": {"graph", "ir"},
    "passes": {"ir"},
    "codegen": {"ir"},
    "runtime": set(),
    "verify": {"spec", "ir", "runtime"},
    "tune": {"spec", "runtime", "verify"},
    "explain": {"spec", "graph", "ir"},
}
ALL = set(MAY_IMPORT)
TOPS = {
    "__init__": ALL | {"driver", "python_api"},
    "__main__": {"cli"},
    "cli": ALL | {"driver", "commands"},
    "commands": ALL | {"driver", "commands"},
    "driver": ALL,
    "python_api": ALL | {"driver"},
}
# What `attnc compile` must never load: start-up time is part of the contract.
HEAVY = {"torch", "triton", "z3", "numpy"}
MAY_BE_HEAVY = {"runtime", "verify", "tune"}


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, at whatever depth, with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            module = node.module or ""
            if module == "attnc":
                yield from ((node.lineno, f"attnc.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def broken_rules(room: str, path: Path) -> list[str]:
    allowed = TOPS.get(room, MAY_IMPORT.get(room, set()) | {room}) | GROUND
    found = []
    for line, module in imports_of(path):
        top, _, rest = module.partition(".")
        target = rest.partition(".")[0]
        if top == "attnc" and target not in allowed | {"", "__version__"}:
            found.append(f"{path.relative_to(PACKAGE)}:{line} {room} may not import {target}")
        if top in HEAVY and room not in MAY_BE_HEAVY:
            found.append(f"{path.relative_to(PACKAGE)}:{line} {room} may not import {top}")
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    assert broken_rules(room_of(path), path) == []


def test_every_file_stands_in_a_known_room() -> None:
    known = GROUND | ALL | set(TOPS) | {"_templates"}
    assert {room_of(path) for path in FILES} <= known


def test_the_checker_sees_lazy_and_heavy_imports() -> None:
    bad = PACKAGE / "codegen" / "bad.py"
    text = "def f():\n    from attnc.spec import schema\n    import torch\n"
    assert _rules_of_text(text, "codegen", bad) == [
        "codegen/bad.py:2 codegen may not import spec",
        "codegen/bad.py:3 codegen may not import torch",
    ]


def _rules_of_text(text: str, room: str, path: Path) -> list[str]:
    class Held(type(path)):  # a path whose text is in memory
        def read_text(self, *args: object, **kwargs: object) -> str:
            return text

    return broken_rules(room, Held(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_has_fewer_than_300_lines(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") < 300
