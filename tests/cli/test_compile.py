from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnc.cli import main

TOO_MANY_STAGES = "schedule={block_q: 64, block_kv: 64, warps: 4, stages: 8}"
BAD = "heads: 4\nhead_dim: 64\nmask: casual\n"


def test_writes_one_python_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "good.yaml"]) == 0
    ast.parse((here / "generated" / "good.py").read_text())
    assert capsys.readouterr().out == "good.yaml -> generated/good.py\n"
    assert [path.name for path in (here / "generated").iterdir()] == ["good.py"]


def test_the_same_spec_gives_the_same_bytes(here: Path) -> None:
    main(["compile", "good.yaml", "-o", "one"])
    main(["compile", "good.yaml", "-o", "two"])
    assert (here / "one/good.py").read_bytes() == (here / "two/good.py").read_bytes()


def test_hash_seeds_do_not_change_the_bytes(here: Path) -> None:
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "attnc", "compile", "good.yaml", "-o", seed]
        subprocess.run(command, check=True, env=environment, capture_output=True)
    assert (here / "1/good.py").read_bytes() == (here / "2/good.py").read_bytes()


def test_one_wrong_spec_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bad.yaml").write_text(BAD)
    assert main(["compile", "good.yaml", "bad.yaml"]) == 2
    assert not (here / "generated").exists()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bad.yaml:3:7: spec/unknown-name")
    assert "Traceback" not in captured.err


def test_all_mistakes_of_all_specs_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bad.yaml").write_text(BAD)
    (here / "worse.yaml").write_text(BAD + "colour: red\n")
    assert main(["compile", "."]) == 2
    message = capsys.readouterr().err
    assert message.count("spec/unknown-name") == 2
    assert message.count("spec/unknown-key") == 1


def test_a_folder_means_the_specs_in_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = here / "specs"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.yaml").write_text((here / "good.yaml").read_text())
    assert main(["compile", "specs", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["compiled"]
    assert [one["file"] for one in made] == ["generated/one.py", "generated/two.py"]
    assert all((here / one["file"]).stat().st_size == one["bytes"] for one in made)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "gone.yaml"], "user/no-such-file there is no file or folder gone.yaml"),
        (["compile", "empty"], "user/no-specs empty holds no spec"),
        (["compile", "good.yaml", "x" * 300 + ".yaml"], "user/unreadable cannot read xxx"),
        (["explain", "x" * 300 + ".yaml"], "File name too long"),
        (["compile", "notes.txt"], "user/not-a-spec notes.txt is not a spec"),
        (["compile", "good.yaml", "--set", "schedule.block_q"], "user/bad-setting"),
        (["compile", "good.yaml", "--set", "colour=red"], "spec/unknown-key"),
        (["compile", "good.yaml", "twin.yaml"], "are both called 'good'"),
        (["compile", "good.yaml", "-o", "notes.txt"], "user/cannot-write"),
        (["show", "good.yaml", "--after", "magic"], "no pass is called 'magic'"),
        (["show", "good.yaml", "--mask", "--q-len", "9999"], "--q-len must be from 0 to"),
        (["show", "good.yaml", "--mask", "--head", "4"], "--head must be from 0 to 3, not 4"),
        (["explain", "good.yaml", "--q-len", "-1"], "q_len must be a whole number"),
        (["explain", "good.yaml", "--param", "w=1"], "the spec has no param 'w'"),
        (["explain", "good.yaml", "--param", "w=x"], "the value must be int"),
        (["explain", "."], "is not a spec"),
        (["tune", "good.yaml", "--target", "h20"], "no device is called 'h20'"),
        (["tune", "good.yaml", "--target", "h200", "--candidates", "0"], "must be at least 1"),
        (["verify", "notes.py"], "has no spec in its header"),
    ],
)
def test_wrong_input_is_told_in_a_line_and_exits_2(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (here / "empty").mkdir()
    (here / "notes.txt").write_text("x")
    (here / "notes.py").write_text("x = 1\n")
    (here / "twin.yaml").write_text((here / "good.yaml").read_text() + "name: good\n")
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert not (here / "generated").exists()


@pytest.mark.parametrize("words", [[], ["compile"], ["fly"], ["compile", "a.yaml", "--colour"]])
def test_a_wrong_command_line_exits_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2


def test_set_overrides_the_spec(here: Path) -> None:
    main(["compile", "good.yaml", "-o", "wide"])
    main(["compile", "good.yaml", "-o", "narrow", "--set", "head_dim=32"])
    wide, narrow = ((here / name / "good.py").read_text() for name in ("wide", "narrow"))
    assert wide != narrow


def test_a_bug_of_ours_flies_with_the_program(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import attnc.driver

    def broken(program: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(attnc.driver, "render", broken)
    with pytest.raises(ZeroDivisionError) as caught:
        main(["compile", "good.yaml"])
    assert any(note.startswith("program good, ready") for note in caught.value.__notes__)


def test_existing_files_survive_a_failed_write(here: Path) -> None:
    from attnc.artifact import write_all

    kept = here / "kept.txt"
    kept.write_text("old")
    blocked = here / "file.txt" / "below"
    (here / "file.txt").write_text("not a folder")
    with pytest.raises(OSError):
        write_all({kept: "new", blocked: "x"})
    assert kept.read_text() == "old"
    assert sorted(p.name for p in here.iterdir()) == ["file.txt", "good.yaml", "kept.txt"]


def test_a_folder_in_the_place_of_one_kernel_keeps_all_from_being_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "zoo.yaml").write_text((here / "good.yaml").read_text())
    (here / "out/zoo.py").mkdir(parents=True)
    assert main(["compile", "good.yaml", "zoo.yaml", "-o", "out"]) == 2
    assert capsys.readouterr().err == (
        "user/cannot-write cannot write out/zoo.py: Is a directory\n"
        "  help: choose another folder with -o\n"
    )
    assert [path.name for path in (here / "out").iterdir()] == ["zoo.py"]


def test_writing_keeps_the_mode_of_a_file(here: Path) -> None:
    from attnc.artifact import write_all

    path = here / "kept.txt"
    path.write_text("old")
    path.chmod(0o640)
    write_all({path: "new"})
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)


def test_target_reports_what_the_machine_code_costs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "good.yaml", "--target", "sm_80,gfx942", "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)["compiled"][0]["targets"]
    kernels = ("forward", "backward_rows", "backward_q", "backward_kv")
    assert {(one["target"], one["kernel"]) for one in reports} == {
        (target, kernel) for target in ("sm_80", "gfx942") for kernel in kernels
    }
    assert all(one["fits"] and one["registers"] > 0 for one in reports)
    assert [one["kernel"] for one in reports if not one["loops"]] == 2 * ["backward_rows"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "sm_81"], "user/unknown-target no target is called 'sm_81'"),
        (["--target", "sm_75"], "user/refused-target"),
        (["--target", "sm_120", "--set", TOO_MANY_STAGES], "user/schedule-does-not-fit"),
    ],
)
def test_a_target_that_cannot_run_it_is_refused_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["compile", "good.yaml", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (here / "generated").exists()


def test_a_file_that_attnc_did_not_write_is_kept(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "good.py").write_text("print('mine')\n")
    assert main(["compile", "good.yaml", "-o", "."]) == 2
    assert capsys.readouterr().err == (
        "user/not-generated good.py was not generated by attnc\n"
        "  help: choose another folder with -o; --force overwrites the file\n"
    )
    assert (here / "good.py").read_text() == "print('mine')\n"


def test_an_edited_file_is_kept_and_nothing_beside_it_is_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "another.yaml").write_text((here / "good.yaml").read_text())
    assert main(["compile", "good.yaml"]) == 0
    capsys.readouterr()
    path = here / "generated" / "good.py"
    path.write_text(mine := path.read_text().replace('"stages": 3', '"stages": 2', 1))
    assert main(["compile", "another.yaml", "good.yaml"]) == 2
    assert capsys.readouterr() == (
        "",
        "user/edited-file generated/good.py was edited after attnc wrote it\n"
        "  help: choose another folder with -o; --force overwrites the file\n",
    )
    assert path.read_text() == mine
    assert [path.name for path in path.parent.iterdir()] == ["good.py"]


def test_force_overwrites_what_is_not_ours(here: Path) -> None:
    folder = here / "generated"
    folder.mkdir()
    (folder / "good.py").write_text("print('mine')\n")
    assert main(["compile", "good.yaml", "--force"]) == 0
    assert "print('mine')" not in (folder / "good.py").read_text()


def test_a_file_that_attnc_wrote_is_replaced_whatever_it_was_made_from(here: Path) -> None:
    """Its own hash speaks for it: from an older spec, or by an attnc that wrote other text."""
    from attnc.artifact import GeneratedModule, sealed, unsealed

    path = here / "generated" / "good.py"
    assert main(["compile", "good.yaml", "--set", "head_dim=32"]) == 0
    assert main(["compile", "good.yaml"]) == 0
    now = path.read_text()
    older = unsealed(now).replace("generated by attnc 0.", "generated by attnc 0.0.", 1)
    path.write_text(sealed(GeneratedModule("good", older)).source)
    assert main(["compile", "good.yaml"]) == 0
    assert path.read_text() == now


@pytest.mark.parametrize(
    "mark", [f"# sha256 of this file without this line: {'0' * 64}", "# --- end of schedules"]
)
def test_no_doc_can_stand_for_the_seal(here: Path, mark: str) -> None:
    filled = "x" * 108  # words that a line of the docstring holds alone
    (here / "marks.yaml").write_text(f"heads: 1\nhead_dim: 16\ndoc: '{filled} {mark} {filled}'\n")
    assert main(["compile", "marks.yaml"]) == 0
    assert f"{filled}\n{mark}\n{filled}" in (here / "generated" / "marks.py").read_text()
    assert main(["compile", "marks.yaml", "--set", "head_dim=32"]) == 0


def test_a_file_without_its_seal_may_be_anything(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from attnc.artifact import unsealed

    path = here / "generated" / "good.py"
    assert main(["compile", "good.yaml"]) == 0
    path.write_text(unsealed(path.read_text()))
    assert main(["compile", "good.yaml"]) == 0  # the text that comes out anyway
    path.write_text(unsealed(path.read_text()) + "MINE = True\n")
    capsys.readouterr()
    assert main(["compile", "good.yaml"]) == 2
    assert capsys.readouterr().err == (
        "user/edited-file generated/good.py holds no hash of what attnc wrote, "
        "so it may be edited\n"
        "  help: choose another folder with -o; --force overwrites the file\n"
    )


def test_mistakes_are_json_where_json_is_asked_for(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bad.yaml").write_text(BAD)
    assert main(["compile", "good.yaml", "bad.yaml", "--json"]) == 2
    assert main(["compile", "gone.yaml"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "errors": [
            {
                "code": "spec/unknown-name",
                "message": "nothing is called 'casual' in a mask",
                "help": "did you mean causal?",
                "file": "bad.yaml",
                "line": 3,
                "column": 7,
            }
        ]
    }
    assert err == "user/no-such-file there is no file or folder gone.yaml\n"
