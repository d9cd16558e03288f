"""Read a scalar by its own name where another only repeats it.

Why: the range passes name every bound of a span; where one is another bound as it stands, the
second name says nothing to the reader and hides what is known of the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sympy import Basic, Symbol

from attnc.ir.nodes import Formula, Kernel, Let, Level, Stmt
from attnc.ir.rebuild import map_stmt, substitution


@dataclass(frozen=True, slots=True)
class DropAliases:
    """a := b; c := a + 1   ->   c := b + 1."""

    name: ClassVar[str] = "drop-aliases"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.STREAMED

    def run(self, kernel: Kernel) -> Kernel:
        """Replace every scalar that is another scalar."""
        known: dict[str, Basic] = {}
        body: list[Stmt] = []
        for stmt in kernel.body:
            stmt = map_stmt(stmt, substitution(known))
            match stmt:
                case Let(name, Formula(Symbol() as original), axes=()):
                    known[name] = original
                case _:
                    body.append(stmt)
        return replace(kernel, body=tuple(body))
