"""generated/ is the only whole-kernel golden: its diff shows what an edit did to every kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnc.artifact import is_as_written, seal_of, unsealed
from attnc.driver import compile_path
from attnc.verify.certificate import embedded_spec, sha256, without_schedules

ROOT = Path(__file__).parent.parent
SPECS = sorted((ROOT / "specs").glob("*.yaml"))
GENERATED = ROOT / "generated"


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_generated_is_current(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a generated file names its spec by the path it was compiled from
    kept = (GENERATED / spec.stem).with_suffix(".py").read_text(encoding="utf-8")
    made = compile_path(spec.relative_to(ROOT)).source
    assert unsealed(made) == unsealed(kept), "run: attnc compile specs/ -o generated/"
    assert seal_of(kept) is None or is_as_written(kept)


def test_nothing_else_lies_in_generated() -> None:
    known = {f"{spec.stem}{suffix}" for spec in SPECS for suffix in (".py", ".json")}
    assert {path.name for path in GENERATED.iterdir() if path.is_file()} <= known


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_the_certificate_is_of_this_file(spec: Path) -> None:
    """A certificate of an older text says nothing of the file that lies beside it."""
    source = (GENERATED / f"{spec.stem}.py").read_text(encoding="utf-8")
    kept = json.loads((GENERATED / f"{spec.stem}.json").read_text(encoding="utf-8"))
    text = embedded_spec(source)
    assert text is not None
    assert kept["verified"] is True and kept["edited"] is False
    assert kept["spec_sha256"] == sha256(text)
    assert kept["source_sha256"] == sha256(without_schedules(source)), "run: attnc verify specs/"
