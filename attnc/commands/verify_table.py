"""Lay out a report of verify as a table: every obligation, the numbers in summary, all failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnc.verify.numbers import NumberRow
    from attnc.verify.report import Report


def report_lines(report: Report) -> list[str]:
    """Print a report."""
    lines = [f"\n{report.name}"]
    lines += _obligations(report)
    lines += _numbers(report.numbers)
    lines += [f"  finding  {finding}" for finding in report.findings]
    lines += _mutants(report)
    lines += [f"  note     {note}" for note in report.notes]
    return lines


def verdict(report: Report) -> str:
    """Say in one word and a few numbers how it ended."""
    if report.ok and report.edited:
        return f"measured, nothing proved: {report.compared} elements compared"
    proved = sum(claim.status == "proved" for claim in report.obligations)
    word = "verified" if report.ok else "FAILED"
    text = f"{word}: {proved} of {len(report.obligations)} obligations proved, "
    return text + f"{report.compared} elements compared"


def _obligations(report: Report) -> Iterator[str]:
    width = max((len(claim.status) for claim in report.obligations), default=0)
    for claim in report.obligations:
        mark = " " if claim.ok else "!"
        yield f"{mark} {claim.status:<{width}}  {claim.name}"
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
        mark = "!" if bad else " "
        yield f"{mark} {dtype:<5} {what:<5} on {device}: {cases}, worst {worst:.2f} of it"
        for row in bad:
            why = row.comparison.problem or f"error {row.comparison.error:.3g}"
            yield f"      {row.case}: {why}, limit {row.comparison.limit:.3g}"


def _mutants(report: Report) -> Iterator[str]:
    if not report.mutants:
        return
    killed, applied = report.kill_rate
    yield f"  mutants  {killed} of {applied} caught"
    for row in report.mutants:
        mark = "!" if row.outcome == "survived" else " "
        yield f"{mark}   {row.outcome:<14}  {row.name}" + (f"  ({row.by})" if row.by else "")
