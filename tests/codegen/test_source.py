"""A generated file has no dead code or parameter, no atomics, no import but torch and triton."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnc.spec import read_spec
from attnc.verify.scan import scan

GENERATED = sorted((Path(__file__).parents[2] / "generated").glob("*.py"))
FILES = pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.stem)
IMPORTS = {
    "contextlib",
    "functools",
    "math",
    "collections.abc",
    "typing",
    "torch",
    "triton",
    "triton.language",
}


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in tree.body if isinstance(node, ast.FunctionDef))


def is_kernel(function: ast.FunctionDef) -> bool:
    return any("triton.jit" in ast.unparse(one) for one in function.decorator_list)


def parameters(function: ast.FunctionDef) -> set[str]:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return {one.arg for one in arguments}


def assigned(function: ast.FunctionDef) -> set[str]:
    """Every name that a function binds, parameters included."""
    stores = (
        n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    return parameters(function) | {one.id for one in stores}


def read(tree: ast.AST) -> set[str]:
    names = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return {one.id for one in names}


def overwritten(body: list[ast.stmt]) -> list[str]:
    """Names that a straight run of statements binds twice without a read between."""
    found, pending = [], set()
    for stmt in body:
        pending -= read(stmt)
        if isinstance(stmt, ast.For):
            found += overwritten(stmt.body)
            pending -= {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name)}
        elif isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
            name = stmt.targets[0].id
            found += [name] if name in pending else []
            pending.add(name)
    return found


def test_there_are_files() -> None:
    assert len(GENERATED) >= 20


@FILES
def test_every_value_of_a_kernel_is_used(path: Path) -> None:
    kernels = [one for one in functions(ast.parse(path.read_text())) if is_kernel(one)]
    assert any(kernel.name == "forward" for kernel in kernels)
    for kernel in kernels:
        assert sorted(assigned(kernel) - read(kernel)) == [], kernel.name
        assert overwritten(kernel.body) == [], kernel.name


def unpacked_with_use(function: ast.FunctionDef) -> set[str]:
    """Names of a line that names all sizes, or all results, and uses one of them."""
    whole = ("output", "q.shape", "_dense_results")
    lines = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    lines = [line for line in lines if ast.unparse(line.value).lstrip("(").startswith(whole)]
    tuples = [ast.walk(target) for line in lines for target in line.targets]
    parts = [{n.id for n in nodes if isinstance(n, ast.Name)} for nodes in tuples]
    return {name for part in parts if part & read(function) for name in part}


@FILES
def test_every_value_of_the_host_side_is_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    allowed = {"_", "ctx", "gradients"}
    for function in functions(tree):
        if is_kernel(function) or function.name == "_":  # the fake has the operator's signature
            continue
        dead = assigned(function) - read(function) - allowed - unpacked_with_use(function)
        # called with all operands, or by autograd
        is_given = function.name.startswith(("_dense_results", "_gradients", "_places_of_"))
        assert dead - (parameters(function) if is_given else set()) == set(), function.name


@FILES
def test_every_definition_and_import_is_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    public = {"attention", "reference", "SPEC_PATH", "_"}
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {
        t.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for t in node.targets
        if isinstance(t, ast.Name)
    }
    aliases = [
        alias
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    imported = {(alias.asname or alias.name).split(".")[0] for alias in aliases}
    assert sorted((defined | imported) - read(tree) - public) == []


@FILES
def test_imports_torch_triton_and_little_else(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    found |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found <= IMPORTS
    assert scan(path.read_text(), "ieee") == []


@FILES
def test_only_the_score_tile_meets_the_matrix_unit_and_nothing_is_of_its_size(path: Path) -> None:
    """Outputs are all the memory that a launch asks for."""
    launcher = next(
        one for one in functions(ast.parse(path.read_text())) if one.name == "launch_forward"
    )
    calls = [
        n
        for n in ast.walk(launcher)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    ]
    made = [
        call
        for call in calls
        if call.func.attr.startswith(("new_", "empty", "zeros", "full", "ones"))
    ]
    spec = read_spec(path.parents[1] / "specs" / f"{path.stem}.yaml")
    outputs = set(spec.outputs)
    gated = {"ungated"} if spec.head_gate else set()
    assert 1 <= len(made) <= len({"out", "lse"} | gated | outputs)
    sizes = [ast.unparse(call.args[0]) for call in made]
    assert all("q_len" not in size or "kv_len" not in size for size in sizes)


ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("attnc", "yaml", "z3"):
            raise ImportError(f"{name} must not be needed")
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, ".")
import torch
import NAME as kernel
q, k, v = torch.randn(1, 8, 20, 64), torch.randn(1, 8, 33, 64), torch.randn(1, 8, 33, 64)
with torch.no_grad():
    out, expected = kernel.attention(q, k, v), kernel.reference(q, k, v)
torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
assert kernel.INTERPRETED == EXPECTED
assert not [name for name in sys.modules if name.split(".")[0] == "attnc"]
print("alone", float(out.abs().sum()) > 0)
"""


@pytest.mark.parametrize("interpret", ["0", "1"], ids=["dense", "interpreted"])
def test_runs_alone_in_another_folder(tmp_path: Path, interpret: str) -> None:
    from attnc.driver import compile_spec
    from attnc.spec import parse_spec

    spec = parse_spec(
        "name: lonely\nheads: 8\nhead_dim: 64\nmask: causal\nscore: softcap(score, 9)\n"
    )
    (tmp_path / "lonely.py").write_text(compile_spec(spec).module.source)
    script = ALONE.replace("NAME", "lonely").replace("EXPECTED", str(interpret == "1"))
    environment = {"TRITON_INTERPRET": interpret, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-I", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "alone True\n"
