"""What a file holds besides its kernels, judged on the same cases: the dense path and the fake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnc.verify.rows import FAKE, NumberRow

NAMES = {
    "cpu": "attention(...) on a CPU outside Triton's interpreter is the spec's",
    "reference": "reference(...) is the spec's",
    FAKE: "the operator's fake has the shapes, dtypes and strides of the results",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One part of a file.  cases: on how many it was judged; problem: the first that failed."""

    name: str
    cases: int
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Nothing is wrong; a part that an owner has taken out cannot be."""
        return not self.problem

    @property
    def status(self) -> str:
        """passed | failed | absent."""
        if self.problem:
            return "failed"
        return "passed" if self.cases else "absent"

    def to_json(self) -> dict[str, str | int]:
        """The same on every machine: no number but the count of cases."""
        facts = {"name": self.name, "status": self.status}
        return facts | {"cases": self.cases, "problem": self.problem}


def checks_of(rows: Sequence[NumberRow]) -> tuple[Check, ...]:
    """Sum up, part by part, the rows that are not about kernels."""
    return tuple(_check(part, [row for row in rows if row.part == part]) for part in NAMES)


def _check(part: str, rows: list[NumberRow]) -> Check:
    judged = {(row.case, row.dtype) for row in rows if not row.comparison.note}
    problems = (_problem(row) for row in rows if not row.comparison.ok)
    return Check(NAMES[part], len(judged), next(problems, ""))


def _problem(row: NumberRow) -> str:
    found = row.comparison
    return f"{row.case}, {row.dtype}: {found.what}: {found.problem or 'error above its limit'}"
