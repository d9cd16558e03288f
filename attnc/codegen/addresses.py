"""Where the elements of a tile lie: a scalar base, a scalar step a tile, and offsets in the tile.

Offsets within a tile are INDEX wide, which the launcher sets to 64 bits only where strides demand
it.  Bases and steps are scalars and always 64-bit, so no product of an index and a stride can wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sympy import Expr

from attnc.codegen.texts import PRODUCT, Text, widen
from attnc.codegen.triton_text import TritonText
from attnc.ir.nodes import Axis, Kernel


@dataclass(frozen=True, slots=True)
class Address:
    """The texts of one access: `setup` lines go before the loop, `pointer` into the access."""

    setup: tuple[tuple[str, str], ...]  # (name, text), each at most once a kernel
    pointer: str
    base: str  # the scalar part that no tile moves


def position_name(axis: Axis) -> str:
    """The vector of an axis's positions that offsets count.

    It counts within the tile, or, for features, from the first on.
    """
    return str(axis.index if axis.role == "feature" else axis.within)


def address(
    kernel: Kernel,
    text: TritonText,
    buffer: str,
    index: Sequence[Expr],
    axes: tuple[str, ...],
    claim: Callable[[str, str], str],
    suffix: str = "",
) -> Address:
    """Write the address of buffer[index] over the tile `axes`.

    claim: takes the name wanted for a text and gives the name that it gets, since a tensor may be
    read at several places.
    """
    by_index = {str(axis.index): axis for axis in kernel.axes}
    base, offsets, steps, gathered = [f"{buffer}_ptr"], [], [], []
    for dim, position in zip(kernel.buffer(buffer).dims, index, strict=True):
        stride = f"{buffer}_stride_{dim}"
        axis = by_index.get(str(position))
        if axis is None:
            part = text.print(position, axes)
            if part.axes:
                gathered.append(
                    widen(_times(f"tl.cast({part.text}, INDEX)", stride, part.axes), axes)
                )
            elif position != 0:
                base.append(f"tl.cast({part.text}, tl.int64) * {stride}")
            continue
        offsets.append(widen(_times(position_name(axis), stride, (axis.name,)), axes))
        if axis.role == "columns":
            step = f"tl.cast({axis.tile}, tl.int64) * {stride}"
            steps.append((claim(f"{buffer}_step", step), step))
        elif axis.role == "rows":
            base.append(f"tl.cast({axis.first}, tl.int64) * {stride}")
    start = " + ".join(base)
    setup = [(claim(f"{buffer}_base", start), start)] if len(base) > 1 else []
    fixed = setup[0][0] if setup else base[0]
    pointer = [fixed]
    pointer += [f"tile * {name}" for name, _ in steps]
    if offsets and (len(offsets) > 1 or steps):
        within = " + ".join(offsets)
        name = claim(f"{buffer}_offsets{suffix}", within)
        setup += [*steps, (name, within)]
        offsets = [name]
    return Address(tuple(setup), " + ".join([*pointer, *offsets, *gathered]), fixed)


def _times(position: str, stride: str, axes: tuple[str, ...]) -> Text:
    return Text(f"{position} * {stride}", PRODUCT, axes)
