"""Every example of docs/spec-language.md is what the language says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attnc.errors import SpecErrors
from attnc.spec import describe_blocks, parse_spec
from attnc.spec.fields import LATER, root_section

PAGE = (Path(__file__).parents[2] / "docs" / "spec-language.md").read_text()
HEAD = "heads: 8\nhead_dim: 64\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", blocks("yaml"))
def test_specs_parse(text: str) -> None:
    parse_spec(text, "example.yaml")


@pytest.mark.parametrize("line", "".join(blocks("formulas")).splitlines())
def test_formulas_parse(line: str) -> None:
    parse_spec(f"{HEAD}{line}\n", "example.yaml")


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(code: str) -> None:
    exec(compile(code, "docs/spec-language.md", "exec"), {})


def test_the_message_is_real() -> None:
    (shown,) = blocks("text")
    with pytest.raises(SpecErrors) as caught:
        parse_spec(f"{HEAD}mask: causal | kv_idx < 3\n", "specs/a.yaml")
    assert str(caught.value) + "\n" == shown


def test_there_are_examples() -> None:
    assert len(blocks("yaml")) >= 4
    assert len("".join(blocks("formulas")).splitlines()) >= 12
    assert len(blocks("python")) >= 1


def test_the_tables_are_whole() -> None:
    for each in root_section().fields:
        assert f"| `{each.name}` |" in PAGE, each.name
    for entry in describe_blocks():
        assert f"| `{entry['name']}" in PAGE, entry["name"]
    for key in LATER:
        assert f"`{key}`" in PAGE, key
