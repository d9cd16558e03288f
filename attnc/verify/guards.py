"""Watch the memory a module allocates: all of it must be written, and nothing beside it.

The module's own name `torch` is replaced for the time of a call, so that its outputs lie between
canaries and start as NaN.  A store that runs over the end of one head into the next is harmless
to numbers when the next head overwrites it, and a race on a GPU; past the end of the tensor it
lands on a canary.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

CANARY = 12345.0
MARGIN = 2**16  # elements before and after


@dataclass(slots=True)
class Watch:
    """Stands in for `torch` inside a module and remembers what was allocated."""

    buffers: list[Tensor] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *size: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        """Allocate like torch.empty, between canaries."""
        shape = size[0] if len(size) == 1 and isinstance(size[0], Sequence) else size
        return self._allocate(tuple(int(n) for n in shape), dtype, device)

    def empty_like(self, like: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
        """Allocate like torch.empty_like; strides as torch would choose them."""
        strides = torch.empty_like(like, dtype=dtype, device="meta").stride()
        return self.empty_strided(
            like.shape, strides, dtype=dtype or like.dtype, device=like.device
        )

    def empty_strided(
        self,
        size: Sequence[int],
        stride: Sequence[int],
        *,
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> Tensor:
        """Allocate like torch.empty_strided, for dense strides."""
        flat = self._allocate((math.prod(size),), dtype, device)
        return flat.as_strided(tuple(size), tuple(stride), flat.storage_offset())

    def _allocate(self, shape: tuple[int, ...], dtype: torch.dtype | None, device: Any) -> Tensor:
        dtype = dtype or torch.get_default_dtype()
        count = math.prod(shape)
        buffer = torch.full((count + 2 * MARGIN,), CANARY, dtype=dtype, device=device)
        self.buffers.append(buffer)
        inner = buffer[MARGIN : MARGIN + count]
        if dtype.is_floating_point:
            inner.fill_(torch.nan)
        return inner.view(shape)

    @property
    def overrun(self) -> bool:
        """Whether a canary was overwritten."""
        return any(
            not bool((side == torch.tensor(CANARY, dtype=side.dtype)).all())
            for buffer in self.buffers
            for side in (buffer[:MARGIN], buffer[-MARGIN:])
        )


@contextlib.contextmanager
def watch(module: ModuleType) -> Iterator[Watch]:
    """Watch what `module` allocates by `torch.empty` and its kin."""
    standing_in = Watch()
    names = [name for name, value in vars(module).items() if value is torch]
    for name in names:
        setattr(module, name, standing_in)
    try:
        with _filled():
            yield standing_in
    finally:
        for name in names:
            setattr(module, name, torch)


@contextlib.contextmanager
def _filled() -> Iterator[None]:
    """Memory that is allocated in some other way starts as NaN too."""
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
