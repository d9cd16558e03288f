"""`attnc compile`: write a generated file for each spec, or nothing at all."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnc.artifact import write_all
from attnc.commands.inputs import find_specs, read_specs
from attnc.driver import Compilation, compile_spec
from attnc.errors import UserError


class CannotWrite(UserError):
    """Report a folder or a file that cannot be written."""

    code = "user/cannot-write"
    message = "cannot write {path}: {problem}"
    help = "choose another folder with -o"


def run(options: Namespace) -> int:
    """Compile every spec in memory first: one mistake anywhere and no file is touched."""
    began = time.perf_counter()
    folder = Path(options.output)
    specs = read_specs(find_specs(options.specs), options.settings)
    made = [compile_spec(spec) for spec in specs]
    reports = _reports(made, options.target)
    _write({folder / one.module.filename: one.module.source for one in made})
    seconds = time.perf_counter() - began
    if options.json:
        print(json.dumps(_as_json(made, folder, reports, seconds), indent=2))
        return 0
    for one in made:
        print(f"{one.spec.path} -> {folder / one.module.filename}")
        if options.target:
            print("\n".join(_report_lines(reports[one.spec.name])))
    if len(made) > 1:
        print(f"{len(made)} kernels in {seconds:.2f} s")
    return 0


def _write(files: dict[Path, str]) -> None:
    try:
        write_all(files)
    except OSError as error:
        path = error.filename or next(iter(files))
        raise CannotWrite(path=path, problem=error.strerror) from None


def _reports(made: Sequence[Compilation], targets: str) -> Mapping[str, Sequence[Any]]:
    if not targets:
        return {}
    from attnc.commands.target_reports import target_reports

    return target_reports(made, targets)


def _report_lines(rows: Sequence[Any]) -> list[str]:
    from attnc.commands.target_reports import report_lines

    return report_lines(rows)


def _as_json(
    made: list[Compilation], folder: Path, reports: Mapping[str, Sequence[Any]], seconds: float
) -> dict[str, Any]:
    return {
        "seconds": round(seconds, 3),
        "compiled": [
            {
                "spec": one.spec.path,
                "name": one.spec.name,
                "file": str(folder / one.module.filename),
                "certificate": str(folder / f"{one.spec.name}.json"),
                "bytes": len(one.module.source.encode()),
                "targets": [report.as_json() for report in reports.get(one.spec.name, ())],
            }
            for one in made
        ],
    }
