"""Print a READY program as a Python file, and check what was printed."""

from __future__ import annotations

import ast
import sys

from attnc.artifact import GeneratedModule
from attnc.codegen.environment import environment
from attnc.codegen.module_view import view_module
from attnc.ir.levels import Level
from attnc.ir.nodes import Program
from attnc.ir.verifier import verify

ALLOWED_IMPORTS = {"torch", "triton", "__future__"} | set(sys.stdlib_module_names)


def render(program: Program, target: str = "triton") -> GeneratedModule:
    """Print the module.

    Raises: AssertionError where the text is not Python or imports more than it may.
    """
    verify(program, Level.READY)
    view = view_module(program)
    source = environment(target).get_template("module.py.jinja").render(module=view)
    _check(source)
    return GeneratedModule(program.interface.name, source)


def _check(source: str) -> None:
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        strangers = {name for name in names if name.split(".")[0] not in ALLOWED_IMPORTS}
        assert not strangers, f"a generated file may not import {', '.join(sorted(strangers))}"
