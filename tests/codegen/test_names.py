"""No param or tensor of a spec may hide a name of the generated file, or be hidden by one."""

from __future__ import annotations

import ast

import pytest

from attnc.driver import compile_spec
from attnc.errors import SpecError
from attnc.spec.names import check_name
from attnc.spec.yaml_reader import Scalar, read_yaml
from tests.verify.specs import spec_of

BODIES = [
    "backward: true\nheads: {q: 4, kv: 2}\nhead_dim: {qk: 144, v: 24}\nlayout: bshd\n"
    "outputs: [lse]\nhead_gate: true\nparams: {zeta: {type: float, default: 1}}\n"
    "score: score * zeta",
    "backward: true\nparams: {zeta: {type: float, default: 1}, eta: {type: int, default: 3}}\n"
    "tensors: {gamma: {shape: [heads, q_len, kv_len]}, theta: {shape: [heads], grad: true},"
    " iota: {shape: [batch, kv_len], dtype: int32}}\n"
    "mask: window(eta, 2) & documents(iota)\nscale: zeta / log(kv_len + 2)\n"
    "score: softcap(score * theta[h], zeta) + gamma[h, q_idx, kv_idx] / (1 + abs(zeta))",
    "outputs: [entropy, max_score, key_mass]\nsink: per_head\ndropout: true\nlayout: bshd\n"
    "params: {zeta: {type: float, default: 1}}\nscore: score * zeta",
    "backward: true\nheads: {q: 4, kv: 2}\nparams: {eta: {type: int, default: 3}}\n"
    "tensors: {gamma: {shape: [q_len, kv_len], grad: true}, theta: {shape: [heads, 9], grad: true},"
    " iota: {shape: [batch, kv_len], dtype: int32}}\n"
    "score: score + theta[h, max(kv_idx - q_pos, -eta)] + gamma[q_idx, kv_idx]"
    " * theta[h, iota[b, kv_idx]]",
]
OWN = {"zeta", "eta", "gamma", "theta", "iota"}


def names_beside(source: str) -> set[str]:
    """What functions that take one of the spec's own names bind or read, comprehensions apart."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    found: set[str] = set()
    for function in functions:
        nodes = list(ast.walk(function))
        names = {node.arg for node in nodes if isinstance(node, ast.arg)}
        if names & OWN:
            within = {each.id for node in nodes if isinstance(node, ast.comprehension)
                      for each in ast.walk(node.target) if isinstance(each, ast.Name)}  # fmt: skip
            found |= names | {node.id for node in nodes if isinstance(node, ast.Name)} - within
    return {name for name in found if not name.startswith("_")}


def is_refused(name: str) -> bool:
    key = read_yaml(f"{name}: 1\n", "a.yaml").entries[0].key
    assert isinstance(key, Scalar)
    try:
        check_name(key, "param")
    except SpecError:
        return True
    return False


@pytest.mark.parametrize("body", BODIES, ids=["pieces", "formulas", "outputs", "tables"])
def test_every_name_of_a_generated_file_is_taken(body: str) -> None:
    source = compile_spec(spec_of(body)).module.source
    free = {name for name in names_beside(source) - OWN if not is_refused(name)}
    derived = {name for name in free if any(name.startswith(f"{own}_") for own in OWN)}
    assert free - derived == set()
