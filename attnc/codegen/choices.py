"""What a schedule may choose of a kernel beyond tile, warps and stages: constants of its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnc.ir.nodes import Kernel, Load, Loop

CHOICES = {  # each by a constant of its name
    "skew": "1: the scores of a tile are made during the tile before, in loops without a mask",
    "tma": "1: tensor descriptors read rows, which begin at multiples of 16 bytes",
    "last_first": "1: the last tiles are launched first",
}


def choices_of(kernel: Kernel) -> Iterator[str]:
    """The names in CHOICES that a kernel has."""
    loops = (stmt for stmt in kernel.body if isinstance(stmt, Loop))
    if any(loop.ahead is not None for loop in loops):
        yield "skew"
    if described(kernel):
        yield "tma"
    if any(digit.turned for digit in kernel.grid):
        yield "last_first"


def described(kernel: Kernel) -> tuple[str, ...]:
    """The buffers that descriptors may read."""
    loops = (stmt for stmt in kernel.body if isinstance(stmt, Loop))
    loads = (let.value for loop in loops for let in loop.body if isinstance(let.value, Load))
    return tuple(dict.fromkeys(load.buffer for load in loads if load.described is not None))


def choices_in(kernels: Sequence[Kernel]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every choice that some kernel has, and which do."""
    able = {kernel.name: tuple(choices_of(kernel)) for kernel in kernels}
    who = ((name, tuple(kernel for kernel in able if name in able[kernel])) for name in CHOICES)
    return tuple((name, found) for name, found in who if found)
