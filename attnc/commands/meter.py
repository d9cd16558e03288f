"""Show on a terminal what a long command is at."""

from __future__ import annotations

import sys


class Meter:
    """Shows the step that begins now; silent where nobody watches."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.watched = sys.stderr.isatty()

    def __call__(self, what: str) -> None:
        """Show the step that begins now."""
        if self.watched:
            print(f"\r\x1b[K{self.name}: {what}"[:120], end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave the line empty."""
        if self.watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
