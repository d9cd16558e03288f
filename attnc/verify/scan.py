"""Read a generated file for what running it on a CPU cannot show.

A masked load without `other` gives 0 in the interpreter and anything on a GPU (FAULTS F03), and a
product there is exact whatever precision it asks for; an atomic sum gives other bits from run to
run (G05); an import of attnc would break the promise that the file stands alone.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

PRECISIONS = ("ieee", "tf32x3", "tf32")  # the finest first
ALLOWED_IMPORTS = frozenset({"torch", "triton", *sys.stdlib_module_names})


def scan(source: str, fp32_dot: str) -> list[str]:
    """List every finding, each with its line.  fp32_dot: what the spec says of float32 products."""
    findings = [*scan_loads(source), *scan_imports(source), *scan_atomics(source)]
    return [*findings, *scan_products(source, fp32_dot)]


def scan_products(source: str, fp32_dot: str) -> list[str]:
    """Find products that may round float32 inputs more than the spec allows."""
    findings = [
        f"line {node.lineno}: a product by @, which leaves the precision to Triton"
        for kernel in kernels_of(source)
        for node in ast.walk(kernel)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
    ]
    for call in _calls(source):
        if _name(call.func) == "dot" and fp32_dot not in (said := _precision(call)):
            worse = said[0] if said else "no input_precision that is told here"
            findings.append(f"line {call.lineno}: a product in {worse}; the spec says {fp32_dot}")
    return findings


def _precision(call: ast.Call) -> tuple[str, ...]:
    """What a product says of its precision, and every coarser one; nothing where it does not."""
    given = [word.value for word in call.keywords if word.arg == "input_precision"]
    match [*given, *call.args[3:4]]:
        case [ast.Constant(str(said))] if said in PRECISIONS:
            return PRECISIONS[PRECISIONS.index(said) :]
        case _:
            return ()


def kernels_of(source: str) -> list[ast.FunctionDef]:
    """Every @triton.jit function, in order."""
    return [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(line).startswith("triton.jit") for line in node.decorator_list)
    ]


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
