"""Bring all judges together: formulas, proofs, numbers, a reading, and planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from attnc.ir.nodes import Program
from attnc.runtime.loader import load_text
from attnc.spec.schema import AttentionSpec
from attnc.verify import mutants_text
from attnc.verify.certificate import embedded_path, embedded_spec, same_kernels
from attnc.verify.mutants_text import MutantRow
from attnc.verify.numbers import NumberRow, compare_numbers
from attnc.verify.obligations import Obligation
from attnc.verify.report import Report
from attnc.verify.scan import scan
from attnc.verify.tolerance import Comparison

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling a spec gave: everything that verify judges."""

    spec: AttentionSpec
    program: Program
    source: str


# spec text, its path (for errors) -> what it compiles to
Recompile = Callable[[str, str], Compiled]


class NotGenerated(ValueError):
    """The file holds no spec, so attnc cannot have made it."""


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
    numbers = _numbers(spec, source, progress)
    faults: tuple[MutantRow, ...] = ()
    if mutants:
        faults = (
            *_program_mutants(spec, program, progress),
            *_text_mutants(spec, source, progress),
        )
    return Report(
        spec.name, spec.text, source, obligations, numbers, tuple(scan(source)), mutants=faults
    )


def verify_file(
    path: Path, recompile: Recompile, *, mutants: bool = False, progress: Progress | None = None
) -> Report:
    """Check a generated file again, from the spec in its header.

    A file whose kernels differ from what that spec compiles to is judged by numbers only.
    Raises: OSError; NotGenerated; whatever `recompile` raises for a spec it refuses.
    """
    source = path.read_text(encoding="utf-8")
    text = embedded_spec(source)
    if text is None:
        raise NotGenerated(f"{path} has no spec in its header: attnc did not generate it")
    compiled = recompile(text, embedded_path(source) or str(path))
    if same_kernels(source, compiled.source):
        return verify(compiled.spec, compiled.program, source, mutants=mutants, progress=progress)
    spec = compiled.spec
    numbers = _numbers(spec, source, progress)
    faults = tuple(_text_mutants(spec, source, progress)) if mutants else ()
    findings = tuple(scan(source))
    return Report(spec.name, spec.text, source, (), numbers, findings, mutants=faults, edited=True)


def _obligations(
    spec: AttentionSpec, program: Program, progress: Progress | None
) -> tuple[Obligation, ...]:
    from attnc.verify.formulas import check_formulas
    from attnc.verify.proofs import EVERY_SHAPE, prove

    _tell(progress, "formulas")
    formulas = tuple(check_formulas(spec, program))
    _tell(progress, "proofs")
    return (*formulas, *prove(spec, program, EVERY_SHAPE))


def _numbers(spec: AttentionSpec, source: str, progress: Progress | None) -> tuple[NumberRow, ...]:
    devices = ["interpreter", *(["cuda"] if torch.cuda.is_available() else [])]
    rows: list[NumberRow] = []
    for device in devices:
        try:
            module = load_text(source, spec.name, interpret=device == "interpreter")
        except Exception as error:  # an edited file may do anything when imported
            problem = Comparison("file", problem=f"does not load: {type(error).__name__}: {error}")
            rows.append(NumberRow("import", spec.dtype, device, problem))
            continue
        rows += compare_numbers(spec, module, device=device, progress=progress)
    return tuple(rows)


def _text_mutants(
    spec: AttentionSpec, source: str, progress: Progress | None
) -> tuple[MutantRow, ...]:
    return tuple(mutants_text.campaign(spec, source, progress))


def _program_mutants(
    spec: AttentionSpec, program: Program, progress: Progress | None
) -> tuple[MutantRow, ...]:
    from attnc.verify import mutants_ir

    rows: list[MutantRow] = []
    _tell(progress, "mutants of the program")
    for verdict in mutants_ir.campaign(spec, program):
        rows.append(MutantRow(verdict.name, verdict.outcome, verdict.by))
        _tell(progress, f"mutants of the program: {len(rows)}, last {verdict.name}")
    return tuple(rows)


def _tell(progress: Progress | None, what: str) -> None:
    if progress:
        progress(what)
