"""What the search for schedules knows of a program's kernels, read from the READY program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from sympy import Basic, Symbol

from attnc.explain.report import schedule_for
from attnc.ir.choices import choices_of
from attnc.ir.nodes import BLOCK_KV, BLOCK_Q, Kernel, Loop, Program, Start
from attnc.plan.interface import asked_schedule
from attnc.spec.schema import AttentionSpec
from attnc.targets import find_target
from attnc.tune.space import KernelShape

FIELD: dict[Basic, str] = {BLOCK_Q: "block_q", BLOCK_KV: "block_kv"}


def kernel_shapes(spec: AttentionSpec, program: Program, target: str) -> tuple[KernelShape, ...]:
    """One for each kernel of the program that the target gets, in its order."""
    return tuple(_shape(spec, program, kernel, target) for kernel in kernels_on(program, target))


def kernels_on(program: Program, target: str) -> tuple[Kernel, ...]:
    """The kernels of the program that a device class gets, in its order."""
    has_backward = find_target(target).has_backward
    return tuple(one for one in program.kernels if has_backward or one.name == "forward")


def _shape(spec: AttentionSpec, program: Program, kernel: Kernel, target: str) -> KernelShape:
    blocks = [(axis.role, FIELD[axis.tile]) for axis in kernel.axes if axis.tile in FIELD]
    more = ["stages"] if any(isinstance(stmt, Loop) for stmt in kernel.body) else []
    held = next(field for role, field in blocks if role == "rows")
    return KernelShape(
        name=kernel.name,
        fields=(*{field: role for role, field in blocks}, "warps", *more, *choices_of(kernel)),
        usual=asdict(schedule_for(spec, program, target, kernel.name)),
        asked=asked_schedule(spec.schedule, kernel.name),
        held=held,
        walked="block_kv" if held == "block_q" else "block_q",
        features=sum(_width(kernel, axis.name) for axis in kernel.axes if axis.role == "feature"),
        summed=sum(_sums(kernel)),
    )


def _sums(kernel: Kernel) -> Iterator[int]:
    """How many elements of each row held every carried tile has, a tile of scores aside."""
    for stmt in kernel.body:
        if isinstance(stmt, Start) and len(stmt.axes) > 1:
            yield sum(_width(kernel, name) for name in stmt.axes)


def _width(kernel: Kernel, name: str) -> int:
    """How many positions of an axis a tile has, where the schedule does not say; else none."""
    tile = kernel.axis(name).tile
    return 0 if isinstance(tile, Symbol) else int(tile)
