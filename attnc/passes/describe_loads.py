"""Say which loads of a loop a tensor descriptor can do, and for which rows.

Why: with a descriptor one thread asks for a whole tile, and the hardware computes the addresses and
gives 0 for rows that are not there (TMA, sm_90).  That saves registers and instructions of every
loop.  Strides and addresses must allow it, which only the launcher sees, so that it is a choice of
the schedule: the kernel's text offers both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from sympy import Basic, Expr, GreaterThan, Integer, StrictLessThan, true
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Axis, Kernel, Let, Level, Load, Loop
from attnc.symbols import names_in

Rows = tuple[Expr, Expr]  # the first, and one past the last


@dataclass(frozen=True, slots=True)
class DescribeLoads:
    """Mark loads of whole rows of tensors in the element type.

    k_tile := load k[b, h_kv, kv_idx, d_idx] where kv_in_tile < kv_hi - kv_first
    ->   the same, described from 0 to kv_hi
    """

    name: ClassVar[str] = "describe-loads"
    needs: ClassVar[Level] = Level.READY
    leaves: ClassVar[Level] = Level.READY

    def run(self, kernel: Kernel) -> Kernel:
        """Mark what one descriptor for each buffer can do, in all loops without rounds."""
        loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop) and stmt.rounds is None]
        rows = _rows_of_buffers(kernel, loops)
        body = (_marked(stmt, kernel, rows) if stmt in loops else stmt for stmt in kernel.body)
        return replace(kernel, body=tuple(body))


def _rows_of_buffers(kernel: Kernel, loops: list[Loop]) -> dict[str, Rows]:
    """The rows that loads of a buffer want: what guards say, else all; none where guards differ.

    A load without a guard wants none but those: its tile is wholly visible.
    """
    said: dict[str, set[Rows]] = {}
    for loop in loops:
        for _, load, rows in _loads(loop, kernel):
            said.setdefault(load.buffer, set()).update(() if rows is None else (rows,))
    sizes = (axis.size for axis in kernel.axes if axis.role == "columns")
    everything = {(Integer(0), size) for size in sizes}
    one_of = {buffer: rows or everything for buffer, rows in said.items()}
    return {buffer: next(iter(rows)) for buffer, rows in one_of.items() if len(rows) == 1}


def _marked(loop: Loop, kernel: Kernel, rows: dict[str, Rows]) -> Loop:
    described = {
        let.name: replace(let, value=replace(load, described=rows[load.buffer]))
        for let, load, _ in _loads(loop, kernel)
        if load.buffer in rows
    }
    return replace(loop, body=tuple(described.get(let.name, let) for let in loop.body))


def _loads(loop: Loop, kernel: Kernel) -> Iterator[tuple[Let, Load, Rows | None]]:
    """Loads of rows of the loop's axis, and what they want of them; None: whatever the tile has."""
    axis, inner = kernel.axis(loop.axis), {let.name for let in loop.body}
    features = {str(axis.index): axis for axis in kernel.axes if axis.role == "feature"}
    for let in loop.body:
        load = let.value
        if not isinstance(load, Load) or kernel.buffer(load.buffer).dtype != "element":
            continue
        *fixed, row, column = load.index
        moving = inner | {str(axis.index), str(axis.first), *features}
        if row != axis.index or str(column) not in features or names_in(*fixed) & moving:
            continue
        exists = features[str(column)].index < features[str(column)].size
        guards = [part for part in And.make_args(load.guard) if part not in (exists, true)]
        rows = _bounds(guards, axis)
        if not guards or (rows is not None and not names_in(*rows) & moving):
            yield let, load, rows


def _bounds(guards: list[Boolean], axis: Axis) -> Rows | None:
    """The rows that guards let through, where they are one bound above, and one below at most."""
    ends: list[Basic] = []
    starts: list[Basic] = []
    for guard in guards:
        match guard:
            case StrictLessThan(lhs=axis.index, rhs=end):
                ends.append(end)
            case StrictLessThan(lhs=axis.within, rhs=end):
                ends.append(cast(Expr, end) + axis.first)
            case GreaterThan(lhs=axis.index, rhs=start):
                starts.append(start)
            case _:
                return None
    if len(ends) != 1 or len(starts) > 1:
        return None
    return cast(Rows, (starts[0] if starts else Integer(0), ends[0]))
