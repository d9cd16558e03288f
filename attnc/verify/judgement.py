"""Bring all judges together: formulas, proofs, numbers, a reading, and planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import torch

from attnc.errors import UserError
from attnc.ir.nodes import Program
from attnc.runtime.loader import load_text
from attnc.spec.schema import AttentionSpec
from attnc.verify import mutants_text
from attnc.verify.certificate import embedded_path, embedded_spec, same_kernels
from attnc.verify.checks import checks_of
from attnc.verify.gradient_numbers import compare_gradients
from attnc.verify.mutants_text import MutantRow
from attnc.verify.numbers import compare_numbers
from attnc.verify.obligations import Obligation
from attnc.verify.report import Report
from attnc.verify.rows import NumberRow
from attnc.verify.scan import scan
from attnc.verify.source_text import read_source
from attnc.verify.switches import settled
from attnc.verify.tolerance import Comparison
from attnc.verify.ways import KERNEL_WAYS, Misbehaved, Way, contained

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling a spec gave: everything that verify judges."""

    spec: AttentionSpec
    program: Program
    source: str


# spec text, its path (for errors) -> what it compiles to
Recompile = Callable[[str, str], Compiled]


class NotGenerated(UserError):
    """Report a Python file that holds no spec, so that attnc cannot have made it."""

    code = "user/not-generated"
    message = "{path} has no spec in its header: attnc did not generate it"


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A generated file as it lies there, and what the spec in its header compiles to."""

    source: str
    compiled: Compiled

    @property
    def edited(self) -> bool:
        """Whether its kernels differ from what attnc makes of the spec."""
        return not same_kernels(self.source, self.compiled.source)


def verify(
    spec: AttentionSpec,
    program: Program,
    source: str,
    *,
    mutants: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Prove and measure that a generated source computes what its spec says.

    program: the READY program that `source` was printed from.  mutants: also plant faults, in the
    program and in the text, and see each one caught.
    """
    obligations = _obligations(spec, program, progress)
    planted = _program_mutants(spec, program, progress) if mutants else ()
    report = _measured(spec, source, mutants, progress)
    return replace(report, obligations=obligations, mutants=(*planted, *report.mutants))


def read_generated(path: Path, recompile: Recompile) -> GeneratedFile:
    """Read a generated file and compile the spec in its header anew.

    Raises: OSError; NotUtf8, NotPython, NotGenerated; whatever `recompile` raises for a spec.
    """
    source = read_source(path)
    text = embedded_spec(source)
    if text is None:
        raise NotGenerated(path=path)
    return GeneratedFile(source, recompile(text, embedded_path(source) or str(path)))


def verify_generated(
    file: GeneratedFile, *, mutants: bool = False, progress: Progress | None = None
) -> Report:
    """Check a generated file again; one that its owner has edited is judged by numbers only."""
    spec, program = file.compiled.spec, file.compiled.program
    if not file.edited:
        return verify(spec, program, file.source, mutants=mutants, progress=progress)
    return replace(_measured(spec, file.source, mutants, progress), edited=True)


def verify_file(
    path: Path, recompile: Recompile, *, mutants: bool = False, progress: Progress | None = None
) -> Report:
    """Check a generated file again, from the spec in its header.

    Raises: what `read_generated` raises.
    """
    file = read_generated(path, recompile)
    return verify_generated(file, mutants=mutants, progress=progress)


def _measured(spec: AttentionSpec, source: str, mutants: bool, progress: Progress | None) -> Report:
    """The report of everything that needs no program: numbers, checks, a reading."""
    rows = _numbers(spec, source, progress)
    kernels = tuple(row for row in rows if row.part in KERNEL_WAYS)
    faults = tuple(mutants_text.campaign(spec, source, progress)) if mutants else ()
    return Report(
        spec.name,
        spec.text,
        source,
        (),
        kernels,
        tuple(scan(source, spec.fp32_dot)),
        checks=checks_of(rows),
        mutants=faults,
    )


def _obligations(
    spec: AttentionSpec, program: Program, progress: Progress | None
) -> tuple[Obligation, ...]:
    from attnc.verify.formulas import check_formulas
    from attnc.verify.interpreted_gradients import check_gradients
    from attnc.verify.proofs import EVERY_SHAPE, prove

    found: list[Obligation] = []
    for calls, meant, variant in settled(spec, program):
        _tell(progress, "formulas")
        made = [*check_formulas(meant, variant)]
        _tell(progress, "formulas of the gradients")
        made += check_gradients(meant, variant)
        _tell(progress, "proofs")
        made += prove(meant, variant, EVERY_SHAPE)
        found += [replace(one, name=f"{calls}: {one.name}" if calls else one.name) for one in made]
    return tuple(found)


def _numbers(spec: AttentionSpec, source: str, progress: Progress | None) -> tuple[NumberRow, ...]:
    """Judge every way into the file; one that it bars by failing to load has failed."""
    compiled = ("cpu", "reference", *(["cuda"] if torch.cuda.is_available() else []))
    ways: list[Way] = []
    barred: list[NumberRow] = []
    for names, interpret in ((("interpreter",), True), (compiled, False)):
        try:
            with contained():
                module = load_text(source, spec.name, interpret=interpret)
        except Misbehaved as error:
            problem = Comparison("file", problem=f"does not load: {error}")
            barred += [NumberRow("import", spec.dtype, name, problem) for name in names]
            continue
        ways += [Way(module, name) for name in names if _holds(module, name)]
    if not ways:
        return tuple(barred)
    gradients = compare_gradients(spec, ways, progress=progress)
    return (*barred, *compare_numbers(spec, ways, progress=progress), *gradients)


def _holds(module: ModuleType, name: str) -> bool:
    return name != "reference" or hasattr(module, name)


def _program_mutants(
    spec: AttentionSpec, program: Program, progress: Progress | None
) -> tuple[MutantRow, ...]:
    from attnc.verify import mutants_ir

    rows: list[MutantRow] = []
    _tell(progress, "mutants of the program")
    for calls, meant, variant in settled(spec, program):
        for verdict in mutants_ir.campaign(meant, variant):
            name = f"{calls}: {verdict.name}" if calls else verdict.name
            rows.append(MutantRow(name, verdict.outcome, verdict.by))
            _tell(progress, f"mutants of the program: {len(rows)}, last {name}")
    return tuple(rows)


def _tell(progress: Progress | None, what: str) -> None:
    if progress:
        progress(what)
