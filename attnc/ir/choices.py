"""What a schedule may choose of a READY kernel beyond tile, warps and stages."""

from __future__ import annotations

from collections.abc import Iterator

from attnc.ir.nodes import Kernel, Load, Loop


def choices_of(kernel: Kernel) -> Iterator[str]:
    """The fields of ir.interface.CHOICES that a kernel has, in their order."""
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
