"""What verify found out, as plain rows for a person and as JSON for a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from attnc.verify.checks import Check
from attnc.verify.mutants_text import MutantRow
from attnc.verify.numbers import INTERPRETER_CANNOT_SHOW
from attnc.verify.obligations import Obligation
from attnc.verify.rows import NumberRow

EDITED = (
    "this file is not what attnc makes of its spec: its owner has edited it, or another version "
    "of attnc made it.  The numbers judge the file as it is; no proof is claimed for it"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report.  section: obligation | number | check | finding | mutant | note."""

    section: str
    name: str
    status: str
    detail: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of verifying one kernel.

    `findings` come from reading the source; `edited` says that no proofs are claimed and why
    there are none.
    """

    name: str
    spec_text: str
    source: str
    obligations: tuple[Obligation, ...]
    numbers: tuple[NumberRow, ...]
    findings: tuple[str, ...]
    checks: tuple[Check, ...] = ()
    mutants: tuple[MutantRow, ...] = ()
    edited: bool = False

    @property
    def ok(self) -> bool:
        """Nothing failed, something was compared, and whatever is claimed was shown."""
        return all(row.ok for row in self.rows) and self.compared > 0

    @property
    def outcome(self) -> str:
        """verified | measured | undecided | failed.

        measured: all is well, but nothing is proved.  undecided: nothing was found wrong, and the
        solver gave up on something, or the system had no room to run it.
        """
        if self.ok:
            return "measured" if self.edited else "verified"
        wrong = any(not row.ok and row.status != "undecided" for row in self.rows)
        return "failed" if wrong or not self.compared else "undecided"

    @property
    def compared(self) -> int:
        """How many elements were held against the reference."""
        return sum(row.comparison.compared for row in self.numbers)

    @property
    def devices(self) -> tuple[str, ...]:
        """Where the kernels ran."""
        return tuple(dict.fromkeys(row.device for row in self.numbers))

    @property
    def kill_rate(self) -> tuple[int, int]:
        """Mutants killed or shown to be equivalent, of those that apply."""
        applied = [row for row in self.mutants if row.outcome != "not applicable"]
        return sum(row.ok for row in applied), len(applied)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know to judge the rest."""
        notes = [EDITED] if self.edited else []
        if not self.compared:
            notes.append("nothing was compared: that is a failure")
        if self.devices == ("interpreter",):
            unseen = "; ".join(INTERPRETER_CANNOT_SHOW)
            notes.append(f"the kernels ran in Triton's interpreter, which cannot show: {unseen}")
        return tuple(notes)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every obligation, comparison, finding, mutant and note."""
        return tuple(self._rows())

    def _rows(self) -> Iterator[Row]:
        for claim in self.obligations:
            yield Row("obligation", claim.name, claim.status, claim.detail, claim.ok)
        for row in self.numbers:
            comparison = row.comparison
            measured = f"error {comparison.error:.2g} of {comparison.limit:.2g}"
            detail = comparison.problem or comparison.note or measured
            name = f"{row.case}, {row.dtype}, {comparison.what}, {row.device}"
            yield Row("number", name, comparison.status, detail, comparison.ok)
        for check in self.checks:
            yield Row("check", check.name, check.status, check.problem, check.ok)
        for finding in self.findings:
            yield Row("finding", finding, "failed", "", False)
        for mutant in self.mutants:
            yield Row("mutant", mutant.name, mutant.outcome, mutant.by, mutant.ok)
        for note in self.notes:
            yield Row("note", note, "", "", True)

    def to_json(self) -> dict[str, Any]:
        """Everything, with this machine's errors; the certificate holds what machines share."""
        killed, applied = self.kill_rate
        return {
            "name": self.name,
            "ok": self.ok,
            "outcome": self.outcome,
            "edited": self.edited,
            "devices": list(self.devices),
            "obligations": [
                {"name": o.name, "status": o.status, "detail": o.detail, "effort": o.effort}
                for o in self.obligations
            ],
            "numbers": [
                {
                    "case": row.case,
                    "dtype": row.dtype,
                    "device": row.device,
                    "result": row.comparison.what,
                    "ok": row.comparison.ok,
                    "error": row.comparison.error,
                    "limit": row.comparison.limit,
                    "compared": row.comparison.compared,
                    "problem": row.comparison.problem,
                    "note": row.comparison.note,
                }
                for row in self.numbers
            ],
            "checks": [check.to_json() for check in self.checks],
            "findings": list(self.findings),
            "mutants": [
                {"name": row.name, "outcome": row.outcome, "by": row.by} for row in self.mutants
            ],
            "kill_rate": {"killed": killed, "of": applied},
            "notes": list(self.notes),
        }
