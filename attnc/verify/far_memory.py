"""Tensors whose elements lie so far apart that their offsets need 64 bits, in memory never touched.

A page of an anonymous mapping costs nothing until it is written, so a tensor may reach over many
gigabytes.  Each stride fits 32 bits; what must not is its product with an index.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

REACH = 2**31  # elements: the least offset that 32 bits cannot hold
STAGGER = 2048  # elements that tell axes of equal strides apart: head dims are smaller
NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python's mmap does not always name


class NoRoom(Exception):
    """The system grants no address space of the size asked for: no fault of who asked."""


def far_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Put the last index of each axis past REACH, but that of a head dim, a fourth axis.

    An axis of fewer than 3 cannot: its stride would not fit 32 bits itself.
    """
    axes = enumerate(shape[:3])
    return (*(_stride(size, REACH) + STAGGER * axis for axis, size in axes), 1)[: len(shape)]


def wide_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Put past REACH only the last index of all in a tile, of rows and of features if there are."""
    within = [size for size in shape[2:] if size > 1]
    reach = REACH // max(1, len(within))
    return (2**16, 1, *(_stride(size, reach) + STAGGER * i for i, size in enumerate(shape[2:])))


def _stride(size: int, reach: int) -> int:
    return -(-reach // max(2, size - 1))


def spread(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Lay a tensor of such strides into memory of its own.

    Raises: NoRoom.
    """
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    try:
        memory = mmap.mmap(-1, (last + 1) * dtype.itemsize, flags=flags)
        memory.madvise(mmap.MADV_NOHUGEPAGE)  # one element would take megabytes
    except OSError as error:
        raise NoRoom(error.strerror) from error
    return torch.frombuffer(memory, dtype=dtype).as_strided(tuple(shape), tuple(strides))
