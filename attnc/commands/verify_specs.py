"""`attnc verify`: prove and measure kernels, print a table, write a certificate beside each."""

from __future__ import annotations

import contextlib
import gc
import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.artifact import refuse_folder, write_all
from attnc.commands.inputs import SeveralMistakes, Unreadable, find_specs, read_specs
from attnc.commands.judges import require
from attnc.commands.meter import Meter
from attnc.commands.outputs import writing
from attnc.commands.verify_table import report_lines, summary, verdict
from attnc.driver import compile_spec
from attnc.errors import AttncError, UserError
from attnc.spec import parse_spec
from attnc.spec.schema import AttentionSpec

if TYPE_CHECKING:
    from attnc.verify.judgement import Compiled, Progress
    from attnc.verify.report import Report

FAILED = 1


class OutOfDate(UserError):
    """Report a generated file that its spec no longer compiles to."""

    code = "user/out-of-date"
    message = "{path} is not what its spec compiles to"
    help = "attnc compile {spec} writes it anew (--force over edits); attnc verify {path} judges it"


class FixedByItsFile(UserError):
    """Report --set beside a generated file, which carries its own spec."""

    code = "user/fixed-by-its-file"
    message = "--set changes specs, and {path} is judged by the spec in its header"
    help = "attnc verify SPEC --set ... judges a changed spec"


@dataclass(frozen=True, slots=True)
class Subject:
    """One kernel to judge: where it lies, and how to judge it."""

    name: str
    file: Path
    judge: Callable[[Progress], Report]

    @property
    def certificate(self) -> Path:
        """Where the certificate goes."""
        return self.file.with_suffix(".json")


def run(options: Namespace) -> int:
    """Judge every kernel asked for; 1 when any of them fails or stays undecided."""
    gc.enable()  # off since the start, for the sake of short commands
    require("verify", "numpy", "torch", "triton", "z3")
    subjects = list(_subjects(options))
    for subject in subjects:
        with writing(subject.certificate):
            refuse_folder(subject.certificate)  # before minutes are spent on what it would hold
    results = [_judge(subject, options.json) for subject in subjects]
    if options.json:
        print(json.dumps(results, indent=2))
    elif len(results) > 1:
        print("\n" + summary([result["outcome"] for result in results]))
    return 0 if all(result["ok"] for result in results) else FAILED


def _subjects(options: Namespace) -> Iterator[Subject]:
    paths = find_specs(options.specs, also=(".py",))
    files = [path for path in paths if path.suffix == ".py"]
    if files and options.settings:
        raise FixedByItsFile(path=files[0])
    spec_paths = [path for path in paths if path.suffix != ".py"]
    for spec in read_specs(spec_paths, options.settings):
        yield _subject_of_spec(spec, Path(options.output), options.mutants)
    yield from _subjects_of_files(files, options.mutants)


def _subject_of_spec(spec: AttentionSpec, folder: Path, mutants: bool) -> Subject:
    """The kernel in the output folder, written first where there is none."""
    from attnc.verify.certificate import same_kernels
    from attnc.verify.judgement import verify
    from attnc.verify.source_text import read_source

    compiled = _compile(spec)
    path = folder / f"{spec.name}.py"
    if not path.exists():
        with writing(path):
            write_all({path: compiled.source})
    with _readable(path):
        source = read_source(path)
    if not same_kernels(source, compiled.source):
        raise OutOfDate(path=path, spec=spec.path)

    def judge(progress: Progress) -> Report:
        return verify(spec, compiled.program, source, mutants=mutants, progress=progress)

    return Subject(spec.name, path, judge)


def _subjects_of_files(paths: Sequence[Path], mutants: bool) -> list[Subject]:
    """Read every file before any is judged; gather the mistakes of all of them and raise once."""
    subjects: list[Subject] = []
    errors: list[AttncError] = []
    for path in paths:
        try:
            subjects.append(_subject_of_file(path, mutants))
        except AttncError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else SeveralMistakes(errors)
    return subjects


def _subject_of_file(path: Path, mutants: bool) -> Subject:
    from attnc.verify.judgement import read_generated, verify_generated

    with _readable(path):
        file = read_generated(path, _recompile)

    def judge(progress: Progress) -> Report:
        return verify_generated(file, mutants=mutants, progress=progress)

    return Subject(path.stem, path, judge)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Tell the user what the system does not let us read."""
    try:
        yield
    except OSError as error:
        raise Unreadable(path=path, problem=error.strerror) from None


def _recompile(text: str, path: str) -> Compiled:
    return _compile(parse_spec(text, path))


def _compile(spec: AttentionSpec) -> Compiled:
    from attnc.verify.judgement import Compiled

    made = compile_spec(spec)
    return Compiled(made.spec, made.program, made.module.source)


def _judge(subject: Subject, quiet: bool) -> dict[str, Any]:
    from attnc.verify.certificate import write_certificate

    began = time.perf_counter()
    meter = Meter(subject.name)
    report = subject.judge(meter)
    meter.clear()
    with writing(subject.certificate):
        write_certificate(report, subject.certificate)
    seconds = time.perf_counter() - began
    if not quiet:
        _print(report_lines(report))
        print(f"{verdict(report)} in {seconds:.1f} s; certificate: {subject.certificate}")
    own = {"file": str(subject.file), "certificate": str(subject.certificate)}
    return {**own, "seconds": round(seconds, 1), **report.to_json()}


def _print(lines: Sequence[str]) -> None:
    print("\n".join(lines), flush=True)
