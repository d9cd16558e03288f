"""Reading files, defaults, fields and the JSON Schema."""

from __future__ import annotations

import pickle
from pathlib import Path

import jsonschema
import pytest
import sympy
import yaml

from attnc import symbols
from attnc.errors import SpecErrors, UserError
from attnc.spec import json_schema, parse_spec, read_spec
from attnc.spec.fields import root_section
from attnc.spec.schema import Sizes

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))
HEAD = "heads: 8\nhead_dim: 64\n"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_specs_read(path: Path) -> None:
    spec = read_spec(path)
    assert spec.name == path.stem
    assert spec.doc
    assert all(size.batch * spec.heads_q * size.q_len * size.kv_len < 4e6 for size in spec.check)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_there_are_specs() -> None:
    assert len(SPECS) >= 22


def test_defaults() -> None:
    spec = parse_spec(HEAD, "plain.yaml")
    assert (spec.name, spec.doc, spec.dtype, spec.layout) == ("plain", "", "bf16", "bhsd")
    assert (spec.heads_q, spec.heads_kv, spec.group) == (8, 8, 1)
    assert (spec.head_dim_qk, spec.head_dim_v) == (64, 64)
    assert spec.scale == 1 / sympy.sqrt(symbols.d)
    assert spec.score == symbols.score
    assert spec.mask is sympy.true
    assert (spec.scale_text, spec.score_text, spec.mask_text) == ("1/sqrt(d)", "score", "true")
    assert (spec.outputs, spec.params, spec.tensors, spec.schedule) == ((), (), (), None)
    assert (spec.fp32_dot, spec.backward, spec.head_gate, spec.fixes_heads) == (
        "ieee",
        True,
        False,
        False,
    )
    assert spec.sizes == Sizes(1, 4096, 4096)
    lengths = [(size.q_len, size.kv_len) for size in spec.check]
    assert any(q == 0 for q, _ in lengths)
    assert any(k == 0 for _, k in lengths)
    assert any(q == 1 for q, _ in lengths)
    assert any(q > k > 0 for q, k in lengths)
    assert any(0 < q < k for q, k in lengths)


def test_every_field_arrives() -> None:
    text = (
        "name: all\ndoc: >\n  two\n  lines\nheads: {q: 6, kv: 2}\nhead_dim: {qk: 192, v: 128}\n"
        "dtype: fp32\nlayout: bshd\nscale: 0.1\nscore: score + t[h_kv]*w\nmask: causal\n"
        "outputs: [lse]\nfp32_dot: tf32x3\nbackward: false\nhead_gate: true\nsink: per_head\n"
        "params: {w: {type: float, default: 1}}\n"
        "tensors: {t: {shape: [kv_heads], dtype: bf16, grad: true}}\n"
        "sizes: {batch: 2, q_len: 1, kv_len: 77, w: 2.5}\n"
        "schedule: {block_q: [64, 128], stages: 2, backward_kv: {block_q: 32}}\n"
        "check: [{batch: 3, q_len: 5, w: -1}]\n"
    )
    spec = parse_spec(text, "x.yaml")
    assert (spec.name, spec.doc, spec.heads_q, spec.heads_kv) == ("all", "two lines", 6, 2)
    assert spec.scale == sympy.Rational(1, 10)
    assert spec.sizes == Sizes(2, 1, 77, (("w", 2.5),))
    assert spec.check == (Sizes(3, 5, 128, (("w", -1.0),)),)
    assert spec.schedule == {
        "block_q": (64, 128),
        "stages": 2,
        "backward_kv": {"block_q": 32},
    }
    assert hash(spec.schedule) == hash(parse_spec(text, "x.yaml").schedule)
    assert spec.tensors[0].shape == ("kv_heads",)
    assert spec.tensors[0].grad
    assert spec.params[0].default == 1.0
    assert not spec.backward
    assert spec.head_gate
    assert spec.sink
    assert spec.spans["schedule.block_q"].line == 20
    assert str(spec.spans["mask"]) == "x.yaml:11:7"
    assert spec.text == text


@pytest.mark.parametrize(
    ("key", "text", "fixes"),
    [
        ("score", "score + h", True),
        ("mask", "h_kv < 3", True),
        ("score", "alibi", True),
        ("score", "score + t[h]", False),
        ("mask", "causal & (kv_idx < t[h])", False),
        ("score", "score + t[h] * h", True),
    ],
)
def test_naming_a_head_fixes_their_number(key: str, text: str, fixes: bool) -> None:
    tensors = "tensors: {t: {shape: [heads], dtype: int32}}\n" if "t[" in text else ""
    assert parse_spec(f"{HEAD}{tensors}{key}: {text}\n").fixes_heads is fixes


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("score * 0.1", symbols.score / 10),
        ("score - 1e-3", symbols.score - sympy.Rational(1, 1000)),
        ("7 // 2 + -7 // 2 + -7 % 4 + score", symbols.score),
        ("score ** 2 ** 3", symbols.score**8),
        ("-score ** 2", -(symbols.score**2)),
        ("relu(score)", sympy.Max(symbols.score, 0)),
        ("log2(8) * score", symbols.score * sympy.log(8) / sympy.log(2)),
    ],
)
def test_numbers_are_exact(text: str, formula: sympy.Expr) -> None:
    assert parse_spec(f"{HEAD}score: {text}\n").score == formula


@pytest.mark.parametrize("scale", ["where(d == 64, 1, 1 / (d - 64))", "sigmoid(-d)", "1 / (d - n)"])
def test_what_d_does_not_make_infinite_is_kept(scale: str) -> None:
    body = "params: {n: {type: int, default: 64}}\nmask: sliding_window(n)\n"
    spec = parse_spec(f"heads: 8\nhead_dim: 64\nscale: {scale}\n{body}", "a.yaml")
    assert symbols.d in spec.scale.free_symbols


def test_conditions_of_every_form_agree() -> None:
    forms = ["causal & ~prefix(3)", "causal and not prefix(3)", "not (~causal or prefix(3))"]
    found = {parse_spec(f"{HEAD}mask: {form}\n").mask for form in forms}
    assert len(found) == 1


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "no.yaml"
    with pytest.raises(UserError) as caught:
        read_spec(path)
    assert (
        str(caught.value) == f"user/unreadable-spec cannot read {path}: No such file or directory"
    )


def test_folder_and_null_byte(tmp_path: Path) -> None:
    for path in (tmp_path, Path("a\0b")):
        with pytest.raises(UserError, match="user/unreadable-spec"):
            read_spec(path)


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"heads: 8\ndoc: \xff\n")
    with pytest.raises(SpecErrors) as caught:
        read_spec(path)
    assert str(caught.value) == (
        f"{path}:2:6: spec/not-utf8 byte 0xff is not UTF-8 text\n"
        "    2 | doc: \ufffd\n"
        "      |      ^\n"
        "  help: save the file as UTF-8"
    )


def test_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * 70000)
    with pytest.raises(SpecErrors, match="spec/file-too-large"):
        read_spec(path)


def test_errors_pickle() -> None:
    with pytest.raises(SpecErrors) as caught:
        parse_spec("heads: 0\n")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_windows_line_ends_and_byte_order_mark() -> None:
    spec = parse_spec("\ufeff" + HEAD.replace("\n", "\r\n") + "mask: causal\r\n")
    assert spec.mask == (symbols.kv_idx <= symbols.q_pos)


def test_schema_follows_the_fields() -> None:
    schema = json_schema()
    assert list(schema["properties"]) == [each.name for each in root_section().fields]
    assert schema["required"] == ["heads", "head_dim"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["dtype"]["enum"] == ["fp16", "bf16", "fp32"]
    assert schema["properties"]["sink"]["enum"] == ["none", "per_head"]
    assert all(each["description"] for each in schema["properties"].values())


def test_schema_accepts_every_spec() -> None:
    for path in SPECS:
        jsonschema.validate(yaml.safe_load(path.read_text()), json_schema())
