"""What `attnc compile --target` shows: rows of text cells, which the command line lays out."""

from __future__ import annotations

from collections.abc import Iterable

from attnc.tune.resources import KernelResources, schedule_text

COLUMNS = (
    "kernel",
    "target",
    "element",
    "schedule",
    "registers",
    "spills",
    "shared",
    "matrix",
    "loops",
)


def resource_table(rows: Iterable[KernelResources]) -> list[list[str]]:
    """Give one row of text cells per kernel, under COLUMNS."""
    return [
        [
            one.kernel,
            one.target,
            one.element,
            schedule_text(dict(one.schedule)),
            str(one.registers),
            str(one.spills),
            f"{one.shared_bytes / 1024:.1f}/{one.shared_limit / 1024:.0f} KB",
            ", ".join(f"{count} {name}" for name, count in one.matrix_instructions),
            " + ".join(f"{loop.total} {loop.phase}" for loop in one.loops),
        ]
        for one in rows
    ]


COUNTED = ("mma", "exp2", "fma", "max", "compare", "select")
MIX_COLUMNS = ("kernel", "target", "loop", "total", *COUNTED, "rest")


def mix_table(rows: Iterable[KernelResources]) -> list[list[str]]:
    """Give one row of text cells per hot loop, under MIX_COLUMNS."""
    table = []
    for one, loop in ((row, loop) for row in rows for loop in row.loops):
        counts = [loop.count(name) for name in COUNTED]
        rest = loop.total - sum(counts)
        table.append([one.kernel, one.target, loop.phase, *map(str, [loop.total, *counts, rest])])
    return table
