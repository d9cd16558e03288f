"""Read a generated file for what running it on a CPU cannot show.

A masked load without `other` gives 0 in the interpreter and anything on a GPU (FAULTS F03); an
atomic sum gives other bits from run to run (G05); an import of attnc would break the promise that
the file stands alone.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

ALLOWED_IMPORTS = frozenset({"torch", "triton", *sys.stdlib_module_names})


def scan(source: str) -> list[str]:
    """List every finding, each with its line."""
    return [*scan_loads(source), *scan_imports(source), *scan_atomics(source)]


def scan_loads(source: str) -> list[str]:
    """Find calls of tl.load that have a mask and no `other`."""
    return [
        f"line {call.lineno}: a masked load without `other`"
        for call in _calls(source)
        if _name(call.func) == "load" and _masked(call) and not _has(call, "other", 2)
    ]


def scan_imports(source: str) -> list[str]:
    """Find imports of anything but torch, triton and the standard library."""
    findings = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for module in _imported(node):
            if module.split(".")[0] not in ALLOWED_IMPORTS:
                findings.append(f"line {node.lineno}: imports {module or 'a relative module'}")
    return findings


def scan_atomics(source: str) -> list[str]:
    """Find atomic operations: a second run could give other bits."""
    return [
        f"line {call.lineno}: {_name(call.func)} may give other bits in a second run"
        for call in _calls(source)
        if _name(call.func).startswith("atomic_")
    ]


def _calls(source: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ""


def _masked(call: ast.Call) -> bool:
    return _has(call, "mask", 1)


def _has(call: ast.Call, keyword: str, position: int) -> bool:
    """Whether an argument is given; one that is written as None is not."""
    given = [word.value for word in call.keywords if word.arg == keyword]
    given += call.args[position : position + 1]
    return any(not (isinstance(value, ast.Constant) and value.value is None) for value in given)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    return ["" if node.level else node.module or ""]
