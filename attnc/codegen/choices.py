"""What a schedule may choose of a kernel beyond tile, warps and stages: constants of its text."""

from __future__ import annotations

from collections.abc import Sequence

from attnc.ir.choices import choices_of
from attnc.ir.nodes import Kernel

CHOICES = {  # each by a constant of its name
    "skew": "1: the scores of a tile are made during the tile before, in loops without a mask",
    "tma": "1: tensor descriptors read rows, which begin at multiples of 16 bytes",
    "last_first": "1: the last tiles are launched first",
}


def choices_in(kernels: Sequence[Kernel]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every choice that some kernel has, and which do."""
    able = {kernel.name: tuple(choices_of(kernel)) for kernel in kernels}
    who = ((name, tuple(kernel for kernel in able if name in able[kernel])) for name in CHOICES)
    return tuple((name, found) for name, found in who if found)
