from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnc.cli import main
from attnc.commands.judges import NeedsPackages
from attnc.driver import compile_path, compile_spec
from attnc.spec import parse_spec

SPECS = sorted((Path(__file__).parent.parent.parent / "specs").glob("*.yaml"))
TINY = """\
heads: 1
head_dim: 16
mask: causal
check:
  - {batch: 1, q_len: 5, kv_len: 7}
"""


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_file_says_from_which_spec_it_can_be_made_again(path: Path) -> None:
    """Otherwise `verify FILE.py` would take every file for an edited one."""
    from attnc.verify.certificate import embedded_path, embedded_spec

    source = compile_path(path).source
    text, place = embedded_spec(source), embedded_path(source)
    assert text is not None and place is not None
    assert compile_spec(parse_spec(text, place)).module.source == source


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffheads: 1\nhead_dim: 16\nmask: causal\n",
        "heads: 1\r\nhead_dim: 16\r\nmask: causal\r\n",
        "heads: 1\rhead_dim: 16\rmask: causal\r",
        "heads: 1\x85head_dim: 16\x85mask: causal\x85",
        "heads: 1\u2028head_dim: 16\u2029mask: causal\u2028",
        "heads: 1\nhead_dim: 16\ndoc: one\u2028 two\n",
    ],
)
def test_a_spec_reads_the_same_from_its_kernel_whatever_ends_its_lines(text: str) -> None:
    from attnc.verify.certificate import embedded_spec

    source = compile_spec(parse_spec(text)).module.source
    inside = embedded_spec(source)
    assert inside is not None
    assert compile_spec(parse_spec(inside)).module.source == source


@pytest.fixture
def judged(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """The judges replaced by one that says what the test wants and remembers what it was asked."""
    from attnc.verify import judgement, numbers, obligations, report, tolerance

    asked: list[SimpleNamespace] = []

    def verify(spec, program, source, *, mutants=False, progress=None):
        asked.append(SimpleNamespace(name=spec.name, source=source, mutants=mutants))
        status = {13: "refuted", 12: "undecided"}.get(spec.head_dim_qk, "proved")
        claim = obligations.Obligation("claim", status, "q_len = 3")
        good = tolerance.Comparison("out", compared=10, error=1e-7, limit=1e-6)
        rows = (numbers.NumberRow("case", "fp16", "interpreter", good),)
        return report.Report(spec.name, spec.text, source, (claim,), rows, ())

    monkeypatch.setattr(judgement, "verify", verify)
    return asked


def test_writes_kernel_and_certificate(here: Path, judged: list[SimpleNamespace]) -> None:
    assert main(["verify", "good.yaml"]) == 0
    kept = json.loads((here / "generated/good.json").read_text())
    assert kept["verified"] is True
    assert (here / "generated/good.py").read_text() == judged[0].source


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("good.yaml/x", "good.yaml/x: Not a directory"),
        ("taken", "taken/good.json: Is a directory"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_judged(
    here: Path,
    judged: list[SimpleNamespace],
    capsys: pytest.CaptureFixture[str],
    output: str,
    message: str,
) -> None:
    (here / "taken/good.json").mkdir(parents=True)
    assert main(["verify", "good.yaml", "-o", output]) == 2
    assert capsys.readouterr().err == (
        f"user/cannot-write cannot write {message}\n  help: choose another folder with -o\n"
    )
    assert judged == []


def test_a_refuted_claim_exits_1_and_says_why(
    here: Path, judged: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bad.yaml").write_text("heads: 1\nhead_dim: 13\n")
    assert main(["verify", "good.yaml", "bad.yaml"]) == 1
    text = capsys.readouterr().out
    assert "! refuted  claim\n      q_len = 3\n" in text
    assert "FAILED: 0 of 1 obligations proved, 10 elements compared in " in text
    assert "\n1 of 2 kernels verified, 1 failed\n" in text
    assert json.loads((here / "generated/bad.json").read_text())["verified"] is False


def test_an_undecided_claim_exits_1_and_is_no_failure(
    here: Path, judged: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "hard.yaml").write_text("heads: 1\nhead_dim: 12\n")
    assert main(["verify", "good.yaml", "hard.yaml"]) == 1
    text = capsys.readouterr().out
    assert "? undecided  claim\n      q_len = 3\n" in text
    assert "undecided: 1 of 1 obligations, 10 elements compared in " in text
    assert "\n1 of 2 kernels verified, 1 undecided\n" in text
    assert json.loads((here / "generated/hard.json").read_text())["verified"] is False


def test_a_file_that_exits_fails_and_the_next_one_is_judged(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {
        "quits": "import sys\nsys.exit(0)\n",
        "leaves": "import os\nos._exit(3)\n",
        "raises": "1 / 0\n",
    }
    for name, end in ends.items():
        (here / f"{name}.yaml").write_text(TINY)
        main(["compile", f"{name}.yaml"])
        path = here / f"generated/{name}.py"
        path.write_text(path.read_text() + end)
    capsys.readouterr()
    assert main(["verify", *(f"generated/{name}.py" for name in ends)]) == 1
    text = capsys.readouterr().out
    assert "import: does not load: SystemExit: 0," in text
    assert "import: does not load: SystemExit: 3," in text
    assert "import: does not load: ZeroDivisionError: division by zero," in text
    assert "FAILED: no proof, as the file is not what attnc wrote; 0 elements compared in " in text
    assert "\n0 of 3 kernels verified, 3 failed\n" in text


def test_files_that_are_no_python_are_all_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("cut", b"x = 1\ny = (2,,)\n"), ("bytes", b"x = 1\ny = '\xff'\n")):
        (here / f"{name}.py").write_bytes(text)
    assert main(["verify", "cut.py", "bytes.py"]) == 2
    assert capsys.readouterr().err == (
        "cut.py:2:8: user/not-python this is not Python: invalid syntax\n"
        "    2 | y = (2,,)\n"
        "      |        ^\n"
        "\n"
        "bytes.py:2:6: user/not-utf8 byte 0xff is not UTF-8 text\n"
        "    2 | y = '\ufffd'\n"
        "      |      ^\n"
        "  help: save the file as UTF-8\n"
    )


def test_a_kernel_that_is_no_text_any_more_is_told(
    here: Path, judged: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compile", "good.yaml"])
    (here / "generated/good.py").write_bytes(b"\xff")
    assert main(["verify", "good.yaml"]) == 2
    assert capsys.readouterr().err.startswith("generated/good.py:1:1: user/not-utf8 byte 0xff")


def test_a_file_without_a_spec_is_not_ours(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.py").write_text("x = 1\n")
    assert main(["verify", "mine.py"]) == 2
    assert capsys.readouterr().err == (
        "user/not-generated mine.py has no spec in its header: attnc did not generate it\n"
    )


def test_a_kernel_that_is_out_of_date_is_told(
    here: Path, judged: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compile", "good.yaml"])
    (here / "good.yaml").write_text((here / "good.yaml").read_text() + "outputs: [lse]\n")
    assert main(["verify", "good.yaml"]) == 2
    assert "generated/good.py is not what its spec compiles to" in capsys.readouterr().err
    assert judged == []


def test_json_and_mutants_are_passed_on(
    here: Path, judged: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "good.yaml", "--mutants", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found] == ["good"]
    assert found[0]["obligations"][0]["status"] == "proved"
    assert judged[0].mutants is True


def test_an_edited_file_is_judged_by_numbers_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "tiny.yaml").write_text(TINY)
    main(["compile", "tiny.yaml"])
    path = here / "generated/tiny.py"
    path.write_text(path.read_text().replace("\nimport torch\n", "\nimport torch  # mine\n", 1))
    assert main(["verify", "generated/tiny.py"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"  passed  reference\(...\) is the spec's \(\d\d cases\)\n", text)
    assert "measured: no proof, as the file is not what attnc wrote; " in text
    assert main(["verify", "generated/tiny.py", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert found["edited"] is True
    assert found["obligations"] == []
    assert any("no proof is claimed" in note for note in found["notes"])
    assert json.loads((here / "generated/tiny.json").read_text())["edited"] is True


def test_a_file_is_judged_by_its_own_spec(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compile", "good.yaml"])
    assert main(["verify", "generated/good.py", "--set", "head_dim=32"]) == 2
    assert "is judged by the spec in its header" in capsys.readouterr().err


def test_missing_judges_are_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(NeedsPackages, match="verify needs z3"):
        from argparse import Namespace

        from attnc.commands.verify_specs import run

        run(Namespace())
