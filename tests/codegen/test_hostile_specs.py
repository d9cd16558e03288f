"""A spec's text enters a generated file as checked names, numbers and comments, nothing else."""

from __future__ import annotations

import ast
import json

import pytest
import torch

from attnc.driver import compile_spec
from attnc.errors import SpecErrors
from attnc.spec import Spec, parse_spec
from attnc.spec.schema import AttentionSpec
from tests.faults.judge import Build, agree, inputs

HEAD = "name: sample\nheads: 2\nhead_dim: 16\n"
EVIL = "pwned"  # as code: a name, a call, an import
DOCS = (
    '"""; import pwned; """',
    "'''; import pwned; '''",
    '\\"""; pwned(); \\"""',
    "ends in a backslash \\",
    'ends in quotes ""',
    'ends in quotes "',
    "{{ pwned() }} {% import pwned %} {# pwned",
    "{pwned} %(pwned)s $pwned ${pwned}",
    "# --- end of spec",
    "\\N{LATIN SMALL LETTER A} \\x41 \\u0041 \\",
    "# type: ignore # noqa \\",
)


def executable(source: str) -> str:
    """The program without its comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(
            node
        ):
            body[0] = ast.Expr(ast.Constant(...))
    return ast.dump(tree)


def harmless(spec: AttentionSpec) -> str:
    source = compile_spec(spec).module.source
    assert EVIL not in executable(source)
    text = f"{HEAD}mask: {spec.mask_text}\nscore: {spec.score_text}\n"
    plain = compile_spec(parse_spec(text, spec.path)).module
    assert executable(source) == executable(plain.source)
    return source


@pytest.mark.parametrize("doc", DOCS)
def test_a_doc_stays_a_doc(doc: str) -> None:
    source = harmless(parse_spec(f"{HEAD}doc: {json.dumps(doc)}\n"))
    flat = " ".join(str(ast.get_docstring(ast.parse(source))).split())
    assert " ".join(doc.replace('"""', "'''").split()) in flat


@pytest.mark.parametrize("doc", DOCS)
def test_a_doc_from_python_stays_a_doc(doc: str) -> None:
    harmless(Spec("sample", heads=2, head_dim=16, doc=doc))


@pytest.mark.parametrize(
    "comment",
    ['# """; import pwned', "# \\", "# --- end of spec\n# import pwned", "#\x85import pwned"],
)
def test_a_comment_of_the_spec_stays_a_comment(comment: str) -> None:
    try:
        spec = parse_spec(f"{HEAD}{comment}\nmask: causal {comment.splitlines()[0]}\n")
    except SpecErrors:
        return  # refused is as good
    harmless(spec)


@pytest.mark.parametrize(
    "path",
    [
        'a""";import pwned;""".yaml',
        "a\\",
        "a\nimport pwned\n.yaml",
        'a".yaml',
        "a\rimport pwned",
        "a\u2028import pwned",
        "{{pwned}}.yaml",
        "ü/é.yaml",
    ],
)
def test_a_path_stays_a_text(path: str) -> None:
    source = compile_spec(parse_spec(HEAD, path)).module.source
    tree = ast.parse(source)
    (kept,) = [
        n.value
        for n in tree.body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "SPEC_PATH"
    ]
    assert isinstance(kept, ast.Constant) and isinstance(kept.value, str)
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == EVIL]
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Import) and n.names[0].name == EVIL]


@pytest.mark.parametrize(
    "formula",
    ["causal  # \\", "causal\t&   (kv_idx<5)", "( causal )", "causal & (kv_idx < 1_0)", "'causal'"],
)
def test_a_formula_is_quoted_in_comments_only(formula: str) -> None:
    try:
        spec = parse_spec(f"{HEAD}mask: {json.dumps(formula)}\n")
    except SpecErrors:
        return
    harmless(spec)


@pytest.mark.parametrize(
    "name",
    [
        'x"""',
        "x\nimport pwned",
        "x; import pwned",
        "__import__",
        "x y",
        "x-y",
        "é",
        "",
        "lambda",
        "torch",
        "0x",
        "x" * 300,
    ],
)
@pytest.mark.parametrize("key", ["name", "param", "tensor"])
def test_a_name_is_an_identifier_or_refused(name: str, key: str) -> None:
    quoted = json.dumps(name)
    text = {
        "name": f"name: {quoted}\nheads: 2\nhead_dim: 16\n",
        "param": f"{HEAD}params: {{{quoted}: {{type: int, default: 1}}}}\n",
        "tensor": f"{HEAD}tensors: {{{quoted}: {{shape: [heads]}}}}\n",
    }[key]
    with pytest.raises(SpecErrors):
        parse_spec(text)


def names_in_functions_that_take_users_names(source: str) -> set[str]:
    """Everything that a user's param or tensor of the same name would hide or be hidden by."""
    closed = {
        "default_schedule",
        "_operator_name",
        "_number",
        "_check_scalar",
        "_check_finite",
        "_check_divisor",
        "tile_of",
        "_fields",
        "_readable",
        "_scalar",
        "_random_numbers",
        "_read",
        "_divisor",
        "_taken",
        "_check_declared",
        "_no_gradient",
        "_describable",
        "_tiles",
    }
    tree = ast.parse(source)
    open_functions = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and node.name not in closed
        and (node.name == "forward" or "triton.jit" not in ast.unparse(node).split("def ")[0])
    ]
    nodes = [node for function in open_functions for node in ast.walk(function)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.arg for node in nodes if isinstance(node, ast.arg)}


RICH = (
    "mask: causal",
    "mask: (q_idx < 20) & (kv_idx <= q_idx + 3)",
    "mask: (q_idx >= 7) | (abs(kv_idx - q_idx) < 5)",
    ("mask: (q_idx // 3 == kv_idx // 5) | (kv_idx % 7 == 2)\n"
        "score: sigmoid(score) + log(2 + abs(score)) + tanh(score)"),
    ("mask: kv_idx // 2 ** h // 1 < 3 ** h // 1\n"
        "score: 3 ** score + abs(score) ** 0.3 + score ** 9 + 3 ** h + 1.5 ** score"),
    "layout: bshd\nhead_gate: true\nmask: causal | prefix(4) | window(3, 9) & (kv_idx > 5)",
    ("heads: {q: 4, kv: 2}\nhead_dim: {qk: 200, v: 312}\nscore: alibi(score)\n"
        "mask: dilated(3, 2) | global_tokens(3)"),
    "tensors: {USER_a: {shape: [batch, heads, q_len, kv_len], dtype: bool}, "
    "USER_b: {shape: [heads, 9]}, USER_c: {shape: [q_len]}}\n"
    "params: {USER_d: {type: int, default: 3}, USER_e: {type: float, default: 1}}\n"
        "scale: 1 / log(USER_e + kv_len)\n"
    "mask: USER_a[b, h, q_idx, kv_idx] & sliding_window(USER_d)\n"
    "score: score * USER_e + USER_b[h, kv_idx // 4] * USER_c[q_idx] + USER_c[q_idx - 3]",
)  # fmt: skip


@pytest.mark.parametrize("body", RICH)
def test_no_user_may_take_a_name_that_the_file_uses(body: str) -> None:
    lines = [line for line in HEAD.splitlines() if f"{line.split(':')[0]}:" not in body]
    source = compile_spec(parse_spec("\n".join([*lines, body]) + "\n")).module.source
    accepted = []
    for name in sorted(names_in_functions_that_take_users_names(source)):
        if name.startswith("USER_") or name == "x":  # x lives inside a comprehension
            continue
        try:
            parse_spec(
                f"{HEAD}params: {{{name}: {{type: float, default: 1}}}}\nscore: score * {name}\n"
            )
        except SpecErrors:
            continue
        accepted.append(name)
    assert accepted == []


def test_a_name_made_from_a_tensors_name_is_refused() -> None:
    text = (
        "{0}tensors: {{bias: {{shape: [heads]}}}}\n"
        "params: {{bias_row: {{type: float, default: 1}}}}\nscore: score * bias_row + bias[h]\n"
    )
    with pytest.raises(SpecErrors) as caught:
        parse_spec(text.format(HEAD))
    first = str(caught.value).splitlines()[0]
    assert first == (
        "spec.yaml:5:10: spec/bad-name 'bias_row' cannot name a param: generated code says this "
        "of the tensor bias"
    )


@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])
def test_ordinary_names_are_free(build: Build, interpret: bool) -> None:
    """Words close to what generated code says, as params and as tensors."""
    words = [
        "value",
        "index",
        "row",
        "key",
        "kind",
        "rows",
        "shape",
        "size",
        "x",
        "y",
        "a",
        "n",
        "w",
        "bits",
        "offset",
    ]
    score = " + ".join(f"{word} * {number}" for number, word in enumerate(words, 1))
    params = ", ".join(f"{word}: {{type: float, default: 0.5}}" for word in words)
    built = build(
        f"params: {{{params}}}\nscore: tanh(score) + log({score} + 100) * score", interpret
    )
    agree(built, inputs(built.spec, 5, 20))
    tensors = ", ".join(f"{word}: {{shape: [heads, kv_len]}}" for word in words)
    reads = " + ".join(f"{word}[h, kv_idx]" for word in words)
    built = build(
        f"tensors: {{{tensors}}}\nscore: softcap(score, 9) + {reads}\nmask: causal", interpret
    )
    draw = torch.Generator().manual_seed(1)
    agree(
        built,
        inputs(built.spec, 5, 20, **{word: torch.randn(2, 20, generator=draw) for word in words}),
    )
