"""Lay out a report of verify as a table: every obligation, the numbers in summary, all failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnc.verify.report import Report
    from attnc.verify.rows import NumberRow
    from attnc.verify.tolerance import Comparison

KINDS = {"obligation": "obligations", "number": "comparisons", "mutant": "mutants"}


def report_lines(report: Report) -> list[str]:
    """Print a report."""
    lines = [f"\n{report.name}"]
    lines += _obligations(report)
    lines += _numbers(report.numbers)
    lines += _checks(report)
    lines += [f"  finding  {finding}" for finding in report.findings]
    lines += _mutants(report)
    lines += [f"  note     {note}" for note in report.notes]
    return lines


def verdict(report: Report) -> str:
    """Say in one word and a few numbers how it ended."""
    total = len(report.obligations)
    measured = f"{report.compared} elements compared"
    if report.outcome == "undecided":
        return f"undecided: {', '.join(_undecided(report))}, {measured}"
    word = {"failed": "FAILED"}.get(report.outcome, report.outcome)
    if report.edited:
        return f"{word}: no proof, as the file is not what attnc wrote; {measured}"
    return f"{word}: {_count(report, 'proved')} of {total} obligations proved, {measured}"


def _undecided(report: Report) -> Iterator[str]:
    """Of each kind of row, how many are undecided, where some are."""
    for section, name in KINDS.items():
        members = [row for row in report.rows if row.section == section]
        if count := sum(row.status == "undecided" for row in members):
            yield f"{count} of {len(members)} {name}"


def summary(outcomes: Sequence[str]) -> str:
    """Say how several kernels ended: how many are verified, and what became of the others."""
    counts = Counter(outcomes)
    others = [f", {counts[word]} {word}" for word in ("measured", "undecided", "failed")]
    shown = "".join(text for text in others if text[2] != "0")
    return f"{counts['verified']} of {len(outcomes)} kernels verified{shown}"


def _mark(ok: bool, status: str) -> str:
    return " " if ok else {"undecided": "?"}.get(status, "!")


def _count(report: Report, status: str) -> int:
    return sum(claim.status == status for claim in report.obligations)


def _obligations(report: Report) -> Iterator[str]:
    width = max((len(claim.status) for claim in report.obligations), default=0)
    for claim in report.obligations:
        yield f"{_mark(claim.ok, claim.status)} {claim.status:<{width}}  {claim.name}"
        if claim.detail:
            yield from (f"      {line}" for line in claim.detail.splitlines())


def _numbers(rows: Iterable[NumberRow]) -> Iterator[str]:
    """One line for each device, dtype and result; each failure in full."""

    def key(row: NumberRow) -> tuple[str, str, str]:
        return row.device, row.dtype, row.comparison.what

    for (device, dtype, what), group in groupby(sorted(rows, key=key), key):
        members = list(group)
        bad = [row for row in members if not row.comparison.ok]
        worst = max((row.comparison.ratio for row in members), default=0.0)
        cases = f"{len(members) - len(bad)} of {len(members)} cases within the limit"
        mark = min((_mark(False, row.comparison.status) for row in bad), default=" ")  # "!" < "?"
        yield f"{mark} {dtype:<5} {what:<5} on {device}: {cases}, worst {worst:.2f} of it"
        yield from (f"      {row.case}: {_why(row.comparison)}" for row in bad)


def _why(bad: Comparison) -> str:
    if bad.status == "undecided":
        return bad.note
    return f"{bad.problem or f'error {bad.error:.3g}'}, limit {bad.limit:.3g}"


def _checks(report: Report) -> Iterator[str]:
    width = max((len(check.status) for check in report.checks), default=0)
    for check in report.checks:
        mark = _mark(check.ok, check.status)
        yield f"{mark} {check.status:<{width}}  {check.name} ({check.cases} cases)"
        if check.problem:
            yield f"      {check.problem}"


def _mutants(report: Report) -> Iterator[str]:
    if not report.mutants:
        return
    killed, applied = report.kill_rate
    yield f"  mutants  {killed} of {applied} caught"
    for row in report.mutants:
        mark = _mark(row.ok, row.outcome)
        yield f"{mark}   {row.outcome:<14}  {row.name}" + (f"  ({row.by})" if row.by else "")
