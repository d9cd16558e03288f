"""Watch the memory a module allocates: all of it must be written, and nothing beside it.

While a module runs, torch's ways to get memory without content give it between canaries and full
of NaN.  A store past the end of one head into the next is harmless to numbers when the next head
overwrites it, and a race on a GPU; past the end of the tensor it lands on a canary.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attnc.verify.far_memory import spread

CANARY = 101.0  # fits every dtype
MARGIN = 2**16  # elements before and after


Lay = Callable[[Sequence[int]], Sequence[int] | None]


@dataclass(slots=True)
class Watch:
    """Remembers what was allocated.  lay: strides of a shape that shall lie apart; None packs."""

    lay: Lay
    buffers: list[Tensor] = field(default_factory=list)

    def allocate(self, shape: Sequence[int], dtype: torch.dtype, device: Any) -> Tensor:
        """Allocate a tensor, a contiguous one between canaries; floats start as NaN."""
        if strides := self.lay(shape):
            apart = spread(shape, strides, dtype)
            return apart.fill_(torch.nan) if dtype.is_floating_point and all(strides) else apart
        count = math.prod(shape)
        buffer = torch.full((count + 2 * MARGIN,), CANARY, dtype=dtype, device=device)
        self.buffers.append(buffer)
        inner = buffer[MARGIN : MARGIN + count]
        if dtype.is_floating_point:
            inner.fill_(torch.nan)
        return inner.view(tuple(shape))

    @property
    def overrun(self) -> bool:
        """Whether a canary was overwritten."""
        return any(
            bool((side != torch.full((), CANARY, dtype=side.dtype, device=side.device)).any())
            for buffer in self.buffers
            for side in (buffer[:MARGIN], buffer[-MARGIN:])
        )


@contextlib.contextmanager
def watch(lay: Lay = lambda shape: None) -> Iterator[Watch]:
    """Watch what is allocated by torch.empty, empty_like, empty_strided and Tensor.new_empty."""
    watched = Watch(lay)
    empty, empty_like, empty_strided = torch.empty, torch.empty_like, torch.empty_strided

    def like(tensor: Tensor, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
        plan = empty_like(tensor, dtype=dtype, device="meta", **options)
        return strided(plan.shape, plan.stride(), dtype=plan.dtype, device=tensor.device)

    def strided(
        size: Sequence[int],
        stride: Sequence[int],
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> Tensor:
        plan = empty_strided(tuple(size), tuple(stride), dtype=dtype, device="meta")
        flat = watched.allocate((plan.numel(),), plan.dtype, device)
        return flat.as_strided(plan.shape, plan.stride(), flat.storage_offset())

    def new(
        *size: Any, dtype: torch.dtype | None = None, device: Any = None, **rest: Any
    ) -> Tensor:
        plan = empty(*size, dtype=dtype, device="meta")
        return watched.allocate(plan.shape, plan.dtype, device)

    def new_empty(
        tensor: Tensor, *size: Any, dtype: torch.dtype | None = None, device: Any = None
    ) -> Tensor:
        return new(*size, dtype=dtype or tensor.dtype, device=device or tensor.device)

    with (
        _replaced(torch, "empty", new),
        _replaced(torch, "empty_like", like),
        _replaced(torch, "empty_strided", strided),
        _replaced(Tensor, "new_empty", new_empty),
    ):
        yield watched


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    inherited = name not in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
