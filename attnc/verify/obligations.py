"""One thing that verify has to show, and how far it got."""

from __future__ import annotations

from dataclasses import dataclass

STATUSES = ("proved", "refuted", "undecided", "checked numerically", "failed")


@dataclass(frozen=True, slots=True)
class Obligation:
    """A claim about a kernel with the outcome of checking it.

    `detail` holds the counterexample, or the reason why nothing better than numbers is known.
    `effort` is the solver's own resource count, never a time: the same inputs give the same value.
    """

    name: str
    status: str
    detail: str = ""
    effort: int = 0

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(
                f"an obligation cannot be {self.status!r}; known: {', '.join(STATUSES)}"
            )

    @property
    def ok(self) -> bool:
        """Nothing was found wrong; `undecided` is not ok."""
        return self.status in ("proved", "checked numerically")
