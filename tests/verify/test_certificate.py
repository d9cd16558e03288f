"""The certificate: the same inputs give the same bytes, and an edited file claims no proofs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from attnc.commands.verify_table import report_lines, verdict
from attnc.driver import compile_spec
from attnc.spec import parse_spec
from attnc.verify.certificate import (
    certificate,
    embedded_path,
    embedded_spec,
    same_kernels,
    sha256,
    without_schedules,
    write_certificate,
)
from attnc.verify.checks import Check
from attnc.verify.judgement import Compiled, NotGenerated, verify, verify_file
from attnc.verify.mutants_text import MutantRow
from attnc.verify.obligations import Obligation
from attnc.verify.report import EDITED, Report
from attnc.verify.rows import NumberRow
from attnc.verify.tolerance import Comparison
from tests.verify.specs import HANDMADE, handmade_spec, spec_of

SOURCE = HANDMADE.read_text()


def report(**changes: object) -> Report:
    """A report on the handmade kernel in which all is well."""
    good = Report(
        name="handmade",
        spec_text="name: handmade\n",
        source=SOURCE,
        obligations=(Obligation("visited once", "proved", effort=12),),
        numbers=(NumberRow("tails", "fp16", "interpreter", Comparison("out", 0.1, 0.3, 64)),),
        findings=(),
    )
    return dataclasses.replace(good, **changes)  # type: ignore[arg-type]


def numbers(comparison: Comparison, device: str = "interpreter") -> tuple[NumberRow, ...]:
    return (NumberRow("tails", "fp16", device, comparison),)


def test_all_well() -> None:
    assert report().ok and certificate(report())["verified"]


@pytest.mark.parametrize("status", ["refuted", "undecided", "failed"])
def test_an_obligation_that_was_not_shown_fails(status: str) -> None:
    judged = report(obligations=(Obligation("visited once", status, "q_len=3"),))
    assert not judged.ok
    assert judged.outcome == ("undecided" if status == "undecided" else "failed")


def test_an_undecided_claim_beside_something_wrong_fails() -> None:
    claims = (Obligation("visited once", "undecided", "z3: timeout"),)
    wrong = (Check("reference(...) is the spec's", 4, "tails, fp16: out: error above its limit"),)
    assert report(obligations=claims, checks=wrong).outcome == "failed"
    assert report(obligations=claims, numbers=()).outcome == "failed"


def test_what_was_not_run_is_undecided_and_never_verified() -> None:
    room = Comparison("out", note="not run: Cannot allocate memory", undecided=True)
    kept = report().numbers
    far = NumberRow("far rows", "fp16", "interpreter", room)
    judged = report(numbers=(*kept, far))
    assert not judged.ok and judged.outcome == "undecided"
    written = certificate(judged)
    assert written["verified"] is False
    assert written["numbers"][1] == {
        "case": "far rows",
        "dtype": "fp16",
        "result": "out",
        "compared": 0,
        "error_over_limit": "unknown",
        "problem": "",
        "note": "not run: Cannot allocate memory",
    }
    assert report_lines(judged)[2:4] == [
        "? fp16  out   on interpreter: 1 of 2 cases within the limit, worst 0.33 of it",
        "      far rows: not run: Cannot allocate memory",
    ]
    assert verdict(judged) == "undecided: 1 of 2 comparisons, 64 elements compared"
    mutants = (MutantRow("offsets in 32 bits", "undecided", "far rows: not run"),)
    assert report(mutants=mutants).outcome == "undecided"
    assert report(mutants=mutants).kill_rate == (0, 1)
    wrong = NumberRow("tails", "fp16", "interpreter", Comparison("out", 0.4, 0.3, 64))
    assert report(numbers=(far, wrong)).outcome == "failed"
    assert report_lines(report(numbers=(far, wrong)))[2].startswith("! fp16 ")


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": ()},  # nothing was compared
        {"numbers": numbers(Comparison("out"))},  # only empty tensors were
        {"numbers": numbers(Comparison("out", 0.4, 0.3, 64))},
        {"numbers": numbers(Comparison("out", float("nan"), 0.3, 64))},
        {"numbers": numbers(Comparison("out", problem="3 of 64 elements are NaN"))},
        {"checks": (Check("reference(...) is the spec's", 4, "tails, fp16: out: NaN"),)},
        {"findings": ("line 3: a masked load without `other`",)},
        {"mutants": (MutantRow("scale forgotten", "survived", ""),)},
    ],
)
def test_anything_wrong_fails(change: dict[str, object]) -> None:
    assert not report(**change).ok
    assert json.dumps(report(**change).to_json())  # a failure can be told to a program, too


def test_an_obligation_needs_a_known_status() -> None:
    with pytest.raises(ValueError, match="cannot be 'probably'"):
        Obligation("visited once", "probably")


def test_mutants_that_were_caught_are_counted() -> None:
    outcomes = ("killed", "equivalent", "not applicable", "killed")
    caught = report(mutants=tuple(MutantRow(o, o, "") for o in outcomes))
    assert caught.ok and caught.kill_rate == (3, 3)


def test_the_interpreter_says_what_it_cannot_show() -> None:
    assert "cannot show: bf16" in report().notes[0]
    assert report(numbers=numbers(Comparison("out", 0, 1, 1), "cuda")).notes == ()


def test_errors_of_one_machine_are_not_in_the_certificate() -> None:
    other = (
        *numbers(Comparison("out", 0.2, 0.31, 64)),
        *numbers(Comparison("out", 0, 1, 9), "cuda"),
    )
    mutants = (MutantRow("scale forgotten", "killed", "tails"),)
    same = certificate(report(numbers=other, mutants=mutants))
    assert {**same, "notes": []} == {**certificate(report()), "notes": []}


def test_the_certificate_lists_what_was_checked_beside_the_kernels() -> None:
    passed, absent = Check("the dense path", 22), Check("the fake", 0)
    assert certificate(report(checks=(passed, absent)))["checks"] == [
        {"name": "the dense path", "status": "passed", "cases": 22, "problem": ""},
        {"name": "the fake", "status": "absent", "cases": 0, "problem": ""},
    ]


def test_the_certificate_says_who_judged() -> None:
    versions = certificate(report())["versions"]
    assert set(versions) == {"attnc", "triton", "torch", "z3-solver", "sympy", "numpy"}
    assert all(versions.values())


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "handmade.json"
    write_certificate(report(), path)
    first = path.read_bytes()
    write_certificate(report(), path)
    assert path.read_bytes() == first and first.endswith(b"}\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["handmade.json"]


def test_the_schedule_table_is_left_out_of_the_hash() -> None:
    tuned = SOURCE.replace('"block_q": 32', '"block_q": 128')
    assert tuned != SOURCE and same_kernels(tuned, SOURCE)
    assert sha256(without_schedules(tuned)) == certificate(report())["source_sha256"]
    edited = SOURCE.replace("2e-38", "3e-38")
    assert edited != SOURCE and not same_kernels(edited, SOURCE)


def test_the_spec_in_the_header_is_read_back() -> None:
    text = embedded_spec(SOURCE)
    assert text is not None and text.startswith("name: handmade\nheads:")
    assert embedded_path(SOURCE) == "tests/verify/handmade.yaml"
    header = "# --- spec\n#   a: 1\n#\n#     - b\n# --- end of spec\n"
    assert embedded_spec(header) == "a: 1\n\n  - b\n"
    assert embedded_spec("x = 1\n") is None


def _recompile(source: str):  # type: ignore[no-untyped-def]
    return lambda text, path: Compiled(handmade_spec(), None, source)  # type: ignore[arg-type]


def test_an_edited_file_is_judged_by_numbers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNC_CACHE", str(tmp_path))
    told: list[str] = []
    checked = verify_file(HANDMADE, _recompile(SOURCE + "\n# more\n"), progress=told.append)
    assert checked.edited and checked.obligations == () and checked.notes[0] == EDITED
    assert checked.outcome == "measured" and checked.compared > 0 and told
    assert [(check.status, check.cases > 10) for check in checked.checks] == [
        ("passed", True),
        ("passed", True),
        ("absent", False),  # written by hand, without an operator
    ]
    kept = certificate(checked)
    assert kept["edited"] is True and kept["verified"] is False


def test_an_edit_that_breaks_the_kernel_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNC_CACHE", str(tmp_path))
    path = tmp_path / "handmade.py"
    path.write_text("import nonsense_that_is_not_there\n" + SOURCE)
    broken = verify_file(path, _recompile(SOURCE))
    assert broken.outcome == "failed"
    assert broken.findings == ("line 1: imports nonsense_that_is_not_there",)
    assert "does not load" in broken.numbers[0].comparison.problem


def test_a_file_that_exits_when_imported_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNC_CACHE", str(tmp_path))
    path = tmp_path / "handmade.py"
    path.write_text(SOURCE + "\nimport sys\nsys.exit(0)\n")
    report = verify_file(path, _recompile(SOURCE))
    problem = "does not load: SystemExit: 0"
    assert report.outcome == "failed" and report.numbers[0].comparison.problem == problem
    assert [check.problem for check in report.checks] == [
        f"import, fp16: file: {problem}",
        f"import, fp16: file: {problem}",
        "",
    ]


def test_a_file_without_a_spec_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.py"
    path.write_text("x = 1\n")
    with pytest.raises(NotGenerated, match="no spec in its header"):
        verify_file(path, _recompile(SOURCE))


FILLED = "x" * 108  # words that a line of the docstring holds alone
MARKS = ("# --- schedules", "# --- end of schedules", "# --- spec", "# --- end of spec")


def test_marks_in_a_docstring_are_none() -> None:
    spec = parse_spec(f"heads: 1\nhead_dim: 16\ndoc: '{f' {FILLED} '.join(MARKS)}'\n", "a.yaml")
    source = compile_spec(spec).module.source
    docstring, rest = source.split('\n"""\n', 1)
    assert all(f"\n{mark}\n" in docstring for mark in MARKS)
    assert embedded_spec(source) == spec.text
    assert docstring in without_schedules(source) and rest not in without_schedules(source)
    assert not same_kernels(source.replace(FILLED, "y" * 108, 1), source)


@pytest.mark.slow
def test_a_compiled_file_is_proved_again_and_tuning_it_is_no_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNC_CACHE", str(tmp_path / "cache"))
    spec = spec_of("head_dim: 16\nmask: causal\ncheck: [{q_len: 40, kv_len: 50}]")
    made = compile_spec(spec)

    def recompile(text: str, path: str) -> Compiled:
        again = compile_spec(parse_spec(text, path))
        return Compiled(again.spec, again.program, again.module.source)

    path = tmp_path / "sample.py"
    path.write_text(made.module.source.replace('"stages": 3', '"stages": 1'))
    assert path.read_text() != made.module.source
    first, second = verify_file(path, recompile), verify_file(path, recompile)
    assert not first.edited and first.obligations and first.ok
    assert json.dumps(certificate(first)) == json.dumps(certificate(second))
    other = verify(spec, made.program, made.module.source)
    assert certificate(other) == certificate(first)
