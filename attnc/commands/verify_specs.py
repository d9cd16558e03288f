"""`attnc verify`: prove and measure kernels, print a table, write a certificate beside each."""

from __future__ import annotations

import gc
import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.artifact import write_all
from attnc.commands.inputs import find_specs, read_specs
from attnc.commands.judges import require
from attnc.commands.verify_table import report_lines, verdict
from attnc.driver import compile_spec
from attnc.errors import UserError
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
    help = "attnc compile {spec} writes it anew; attnc verify {path} judges it as it is"


class NotOurs(UserError):
    """Report a Python file that attnc did not write."""

    code = "user/not-ours"
    message = "{problem}"


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
    """Judge every kernel asked for; 1 when any of them fails."""
    gc.enable()  # off since the start, for the sake of short commands
    require("verify", "numpy", "torch", "triton", "z3")
    subjects = list(_subjects(options))
    results = [_judge(subject, options.json) for subject in subjects]
    if options.json:
        print(json.dumps(results, indent=2))
    elif len(results) > 1:
        good = sum(result["ok"] for result in results)
        print(f"\n{good} of {len(results)} kernels verified")
    return 0 if all(result["ok"] for result in results) else FAILED


def _subjects(options: Namespace) -> Iterator[Subject]:
    paths = find_specs(options.specs, also=(".py",))
    files = [path for path in paths if path.suffix == ".py"]
    if files and options.settings:
        raise FixedByItsFile(path=files[0])
    spec_paths = [path for path in paths if path.suffix != ".py"]
    for spec in read_specs(spec_paths, options.settings):
        yield _subject_of_spec(spec, Path(options.output), options.mutants)
    yield from (_subject_of_file(path, options.mutants) for path in files)


def _subject_of_spec(spec: AttentionSpec, folder: Path, mutants: bool) -> Subject:
    """The kernel in the output folder, written first where there is none."""
    from attnc.verify.certificate import same_kernels
    from attnc.verify.judgement import verify

    compiled = _compile(spec)
    path = folder / f"{spec.name}.py"
    if not path.exists():
        write_all({path: compiled.source})
    source = path.read_text(encoding="utf-8")
    if not same_kernels(source, compiled.source):
        raise OutOfDate(path=path, spec=spec.path)

    def judge(progress: Progress) -> Report:
        return verify(spec, compiled.program, source, mutants=mutants, progress=progress)

    return Subject(spec.name, path, judge)


def _subject_of_file(path: Path, mutants: bool) -> Subject:
    from attnc.verify.judgement import NotGenerated, verify_file

    def judge(progress: Progress) -> Report:
        try:
            return verify_file(path, _recompile, mutants=mutants, progress=progress)
        except NotGenerated as error:
            raise NotOurs(problem=error) from None

    return Subject(path.stem, path, judge)


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
    write_certificate(report, subject.certificate)
    seconds = time.perf_counter() - began
    if not quiet:
        _print(report_lines(report))
        print(f"{verdict(report)} in {seconds:.1f} s; certificate: {subject.certificate}")
    own = {"file": str(subject.file), "certificate": str(subject.certificate)}
    return {**own, "seconds": round(seconds, 1), **report.to_json()}


def _print(lines: Sequence[str]) -> None:
    print("\n".join(lines), flush=True)


class Meter:
    """Shows on a terminal what verify is at; silent where nobody watches."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.watched = sys.stderr.isatty()

    def __call__(self, what: str) -> None:
        """Show the step that begins now."""
        if self.watched:
            print(f"\r\x1b[K{self.name}: {what}"[:120], end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave the line empty."""
        if self.watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
