"""What one comparison of numbers is called."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.verify.cases import Case
from attnc.verify.tolerance import Comparison

FAKE = "fake"  # what a comparison is called that holds an operator's fake against its results


@dataclass(frozen=True, slots=True)
class NumberRow:
    """One result of one case.  device: interpreter | cuda; cpu | reference for the dense path."""

    case: str
    dtype: str
    device: str
    comparison: Comparison

    @property
    def part(self) -> str:
        """Which part of a file it judges: a way into it, or the fake."""
        return FAKE if self.comparison.what == FAKE else self.device


def title_of(case: Case) -> str:
    """Name a case with its sizes, as a report shows it."""
    heads = f"b{case.batch} g{case.heads_kv}"
    tiles = f" tiles {case.tiles[0]}x{case.tiles[1]}" if case.tiles else ""
    params = "".join(f" {name}={value:g}" for name, value in case.params)
    return f"{case.name} ({heads} {case.q_len}x{case.kv_len}{tiles}{params})"
