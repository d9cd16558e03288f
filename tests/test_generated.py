"""generated/ is the only whole-kernel golden: its diff shows what an edit did to every kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnc.driver import compile_path

ROOT = Path(__file__).parent.parent
SPECS = sorted((ROOT / "specs").glob("*.yaml"))
GENERATED = ROOT / "generated"


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_generated_is_current(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a generated file names its spec by the path it was compiled from
    kept = (GENERATED / spec.stem).with_suffix(".py").read_text(encoding="utf-8")
    made = compile_path(spec.relative_to(ROOT)).source
    assert made == kept, "run: attnc compile specs/ -o generated/"


def test_nothing_else_lies_in_generated() -> None:
    known = {f"{spec.stem}{suffix}" for spec in SPECS for suffix in (".py", ".json")}
    assert {path.name for path in GENERATED.iterdir() if path.is_file()} <= known


def test_every_spec_has_a_certificate() -> None:
    missing = [spec.stem for spec in SPECS if not (GENERATED / f"{spec.stem}.json").is_file()]
    assert missing == [], "run: attnc verify specs/"
