"""See every address that an interpreted kernel reads or writes, and name those outside its tensors.

A stray read is invisible to numbers when a select drops what it read, and stops a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter


class StrayAccess(Exception):
    """A launch would have read or written outside of every tensor it was given."""


class Launch(Exception):
    """A launch that was asked for and not made."""

    def __init__(self, grid: tuple[int, ...]) -> None:
        super().__init__(f"would launch a grid of {' x '.join(map(str, grid))} programs")
        self.grid = grid


_watching = 0


@contextlib.contextmanager
def refuse_stray_accesses() -> Iterator[None]:
    """Make every interpreted launch inside the block raise StrayAccess before it strays."""
    global _watching
    _watching += 1
    try:
        yield
    finally:
        _watching -= 1


@contextlib.contextmanager
def stop_at_launch() -> Iterator[None]:
    """Make an interpreted launch inside the block raise Launch before its first program."""

    def stop(*grid: int) -> None:
        raise Launch(grid)

    builder = vars(interpreter.interpreter_builder)
    builder["set_grid_dim"] = stop
    try:
        yield
    finally:
        del builder["set_grid_dim"]


@contextlib.contextmanager
def observed(*arguments: Any) -> Iterator[None]:
    """Check the accesses of one launch against the tensors among its arguments."""
    if not _watching:
        yield
        return
    starts, ends = _extents([value for value in arguments if isinstance(value, torch.Tensor)])
    builder = vars(interpreter.interpreter_builder)
    kinds = {"create_masked_load": ("would read", 1), "create_masked_store": ("would write", 2)}
    for name, (kind, mask_at) in kinds.items():
        access = getattr(interpreter.interpreter_builder, name)
        builder[name] = _checking(access, kind, mask_at, starts, ends)
    try:
        yield
    finally:
        for name in kinds:
            del builder[name]


def _checking(
    access: Callable[..., Any], kind: str, mask_at: int, starts: np.ndarray, ends: np.ndarray
) -> Callable[..., Any]:
    def check(*args: Any, **kwargs: Any) -> Any:
        pointers, mask = args[0], args[mask_at]
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        shown = mask if isinstance(mask, np.ndarray) else mask.data  # an array from a descriptor
        # a scalar comparison makes a mask of whole numbers, which would index instead of select
        chosen = np.broadcast_to(shown.astype(bool), pointers.data.shape)
        addresses = pointers.data[chosen]
        if stray := _outside(addresses.astype(np.uint64), size, starts, ends):
            raise StrayAccess(f"{kind} {stray} elements outside of its tensors")
        return access(*args, **kwargs)

    return check


def _outside(addresses: np.ndarray, size: int, starts: np.ndarray, ends: np.ndarray) -> int:
    if not addresses.size:
        return 0
    # nearly always all of them lie in one tensor
    home = np.searchsorted(starts, addresses.min(), side="right") - 1
    if home >= 0 and addresses.max() + np.uint64(size) <= ends[home]:
        return 0
    below = np.searchsorted(starts, addresses, side="right")
    inside = (below > 0) & (addresses + np.uint64(size) <= ends[np.maximum(below, 1) - 1])
    return int((~inside).sum())


def _extents(tensors: list[torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """First address and one past the last of each tensor, joined where they overlap."""
    joined: list[list[int]] = [[0, 0]]
    for start, end in sorted(map(_extent, filter(torch.Tensor.numel, tensors))):
        if start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    starts, ends = zip(*joined, strict=True)
    return np.array(starts, dtype=np.uint64), np.array(ends, dtype=np.uint64)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    steps = [(n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    first, last = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
    size = tensor.element_size()
    return tensor.data_ptr() + first * size, tensor.data_ptr() + (last + 1) * size
