from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from attnc.cli import build_parser, main


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_show_prints_the_program_after_each_pass(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = printed(capsys, "show", "good.yaml", "--list").split()
    assert passes[0] == "plan"
    assert "stream-reductions" in passes
    assert "program good, naive" in printed(capsys, "show", "good.yaml", "--after", "plan")
    last = printed(capsys, "show", "good.yaml", "--after", passes[-1])
    assert last == printed(capsys, "show", "good.yaml")
    assert "program good, ready" in last


def test_show_takes_a_pass_by_the_name_of_its_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_file = printed(capsys, "show", "good.yaml", "--after", "stream_reductions")
    assert by_file == printed(capsys, "show", "good.yaml", "--after", "stream-reductions")
    assert main(["show", "good.yaml", "--after", "stream_reduction"]) == 2
    assert capsys.readouterr().err.startswith(
        "user/unknown-pass no pass is called 'stream_reduction'\n"
        "  help: did you mean stream-reductions? known passes: plan, stream-reductions, "
    )


def test_every_option_has_help() -> None:
    parser = build_parser()
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        assert all(action.help for action in command._actions), name


def test_show_draws_the_mask(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", "good.yaml", "--mask", "--q-len", "3", "--kv-len", "3")
    assert "    0 #..     1\n    1 ##.     2\n    2 ###     3\n" in text
    words = ("show", "good.yaml", "--mask", "--q-len", "4", "--kv-len", "4", "--tile", "2")
    found = json.loads(printed(capsys, *words, "--json"))
    assert found["visible"] == [1, 2, 3, 4]
    assert found["examples"] == []
    assert found["tiles"] == [["mixed", "empty"], ["full", "mixed"]]


def test_explain_says_it_in_text_and_in_json(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("explain", "good.yaml", "--q-len", "64", "--kv-len", "64", "--batch", "3")
    assert "3, 4 heads over 2, 64 queries, 64 keys" in printed(capsys, *words)
    found = json.loads(printed(capsys, *words, "--json"))
    assert found["sizes"]["batch"] == 3
    assert found["tiles"]["visible_pairs"] == 3 * 4 * 64 * 65 // 2
    assert found["attention_matrix_fp16"]["1M"] == "2 TB"
    assert found["certificate"] is None


@pytest.mark.parametrize(
    ("command", "line", "part", "problem"),
    [
        (
            ["show", "--mask"],
            "mask: kv_idx // mm <= 3",
            "mask",
            "integer division or modulo by zero",
        ),
        (["explain"], "mask: kv_idx % mm <= 3", "mask", "integer modulo by zero"),
        (
            ["explain"],
            "score: score - (9 // mm) * abs(q_pos - kv_idx)",
            "score",
            "integer division or modulo by zero",
        ),
    ],
)
def test_a_param_with_which_a_formula_has_no_value_is_told(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    line: str,
    part: str,
    problem: str,
) -> None:
    text = f"heads: 1\nhead_dim: 16\nparams: {{mm: {{type: int, default: 4}}}}\n{line}\n"
    (here / "by.yaml").write_text(text)
    assert main([*command, "by.yaml", "--param", "mm=0"]) == 2
    column = line.index(" ") + 2
    assert capsys.readouterr().err == (
        f"by.yaml:4:{column}: spec/no-value the {part} has no value with mm=0: {problem}\n"
        f"    4 | {line}\n"
        f"      | {' ' * (column - 1)}{'^' * (len(line) - column + 1)}\n"
        "  help: give params with which it has one: --param NAME=VALUE\n"
    )


def test_explain_compares_two_masks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = (here / "good.yaml").read_text().replace("causal", "causal & sliding_window(2)")
    (here / "other.yaml").write_text(other)
    text = printed(
        capsys, "explain", "good.yaml", "--against", "other.yaml", "--q-len", "4", "--kv-len", "4"
    )
    assert "    3 --##" in text


def test_explain_gives_params_to_both_specs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    window = "mask: sliding_window(w)\nparams: {w: {type: int, default: 4096}}"
    other = (here / "good.yaml").read_text().replace("mask: causal", window)
    (here / "other.yaml").write_text(other)
    words = ("explain", "good.yaml", "--against", "other.yaml", "--param", "w=2", "--json")
    found = json.loads(printed(capsys, *words))
    assert found["verdict"] == "different"
    assert found["parts"]["mask"]["where"]["params"] == {"w": 2}
    assert main([*words[:4], "--param", "v=2"]) == 2
    assert capsys.readouterr().err == (
        "user/unknown-param the spec has no param 'v'\n  help: their params: w\n"
    )
    assert main([*words[:4], "--q-len", "129"]) == 2
    assert capsys.readouterr().err == (
        "user/too-large-to-compare two specs are compared at a q_len of at most 128, not 129\n"
        "  help: without sizes, a few queries of a call are compared that is long enough for both\n"
    )


def test_new_writes_a_spec_that_compiles(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "new", "fresh") == "wrote fresh.yaml\n"
    assert main(["compile", "fresh.yaml"]) == 0


def test_new_never_overwrites(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (here / "good.yaml").read_text()
    assert main(["new", "good"]) == 2
    assert "good.yaml exists already" in capsys.readouterr().err
    assert (here / "good.yaml").read_text() == before


@pytest.mark.parametrize("name", ["1st", "a-b", "", "a b", "gone/fresh", "def", "torch", "_x"])
def test_new_refuses_names_that_no_spec_can_have(here: Path, name: str) -> None:
    assert main(["new", name]) == 2


def test_list_names_what_there_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = json.loads(printed(capsys, "list", "blocks", "--json"))
    assert any(block["name"].startswith("sliding_window") for block in blocks)
    targets = json.loads(printed(capsys, "list", "targets", "--json"))
    assert {"sm_80", "sm_90", "gfx942"} <= {target["name"] for target in targets}
    devices = json.loads(printed(capsys, "list", "devices", "--json"))
    assert {"h200", "a100", "mi300x"} <= {device["name"] for device in devices}
    (here / "broken.yaml").write_text("heads: [")
    everything = printed(capsys, "list")
    assert "good.yaml" in everything and "is no valid spec" in everything


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(printed(capsys, "schema"))
    assert {"heads", "head_dim", "mask", "score"} <= set(schema["properties"])
