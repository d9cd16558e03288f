"""The certificate beside a kernel: what was shown, by what, for exactly which text.

The same inputs give the same bytes: no times, nothing of the machine.  Errors therefore stand
only against their limit; how large they were on one machine is in the report of that run.  The
schedule table is left out of the source's hash, because tuning changes it: the proofs hold for
every tile shape that the launcher accepts (proofs.EVERY_SHAPE).
"""

from __future__ import annotations

import ast
import json
from importlib import metadata
from pathlib import Path
from typing import Any

from attnc.artifact import write_all
from attnc.verify.report import Report
from attnc.verify.source_parts import kernels_hash, part_of, sha256, without_schedules

FORMAT = 1
ERRORS = {"within": "at most 1", "failed": "above 1", "undecided": "unknown"}  # over their limits
PREFIX = "#   "  # of each line of the spec inside the file
JUDGES = ("triton", "torch", "z3-solver", "sympy", "numpy")


def certificate(report: Report) -> dict[str, Any]:
    """Make the certificate of a report, from what ran in the interpreter."""
    return {
        "format": FORMAT,
        "name": report.name,
        "verified": report.ok and not report.edited,
        "edited": report.edited,
        "spec_sha256": sha256(report.spec_text),
        "source_sha256": kernels_hash(report.source),
        "versions": versions(),
        "obligations": [
            {"name": o.name, "status": o.status, "detail": o.detail, "effort": o.effort}
            for o in report.obligations
        ],
        "findings": list(report.findings),
        "numbers": [
            {
                "case": row.case,
                "dtype": row.dtype,
                "result": row.comparison.what,
                "compared": row.comparison.compared,
                "error_over_limit": ERRORS[row.comparison.status],
                "problem": row.comparison.problem,
                "note": row.comparison.note,
            }
            for row in report.numbers
            if row.device == "interpreter"
        ],
        "checks": [check.to_json() for check in report.checks],
        "notes": list(report.notes),
    }


def write_certificate(report: Report, path: Path) -> None:
    """Write the certificate whole or not at all.

    Raises: OSError.
    """
    text = json.dumps(certificate(report), indent=2, ensure_ascii=False)
    write_all({path: text + "\n"})


def same_kernels(one: str, other: str) -> bool:
    """Whether two generated texts differ in nothing but their schedule tables."""
    return without_schedules(one) == without_schedules(other)


def embedded_spec(source: str) -> str | None:
    """The spec that a generated file carries in its header; None when there is none to read."""
    if (part := part_of(source, "spec")) is None:
        return None
    return "".join(
        line.removeprefix(PREFIX if line.startswith(PREFIX) else "#") + "\n" for line in part.inside
    )


def embedded_path(source: str) -> str | None:
    """The path of the spec that a generated file names."""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign([ast.Name("SPEC_PATH")], ast.Constant(str(path))):
                return path
            case _:
                continue
    return None


def versions() -> dict[str, str]:
    """Exact versions of everything that judged."""
    return {"attnc": _attnc_version()} | {name: metadata.version(name) for name in JUDGES}


def _attnc_version() -> str:
    import attnc

    return attnc.__version__
