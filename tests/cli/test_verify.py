from __future__ import annotations

import json
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


@pytest.fixture
def judged(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """The judges replaced by one that says what the test wants and remembers what it was asked."""
    from attnc.verify import judgement, numbers, obligations, report, tolerance

    asked: list[SimpleNamespace] = []

    def verify(spec, program, source, *, mutants=False, progress=None):
        asked.append(SimpleNamespace(name=spec.name, source=source, mutants=mutants))
        status = "refuted" if spec.head_dim_qk == 13 else "proved"
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


def test_a_refuted_claim_exits_1_and_says_why(
    here: Path, judged: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bad.yaml").write_text("heads: 1\nhead_dim: 13\n")
    assert main(["verify", "good.yaml", "bad.yaml"]) == 1
    text = capsys.readouterr().out
    assert "! refuted  claim\n      q_len = 3\n" in text
    assert "1 of 2 kernels verified" in text
    assert json.loads((here / "generated/bad.json").read_text())["verified"] is False


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
    assert "measured, nothing proved: " in capsys.readouterr().out
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
