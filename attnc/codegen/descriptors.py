"""How a tensor descriptor reads what a load reads: made before the loop, asked for each tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnc.codegen.triton_text import TritonText
from attnc.ir.nodes import Axis, Kernel, Load
from attnc.symbols import names_in


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor's name, the text that makes it, and the text that reads a tile by it."""

    name: str
    made: str
    read: str


def descriptor(
    kernel: Kernel,
    text: TritonText,
    load: Load,
    axes: tuple[str, ...],
    base: str,
    claim: Callable[[str, str], str],
) -> Descriptor:
    """Write a load by descriptor over the tile `axes`; base: where the rows of its head begin.

    claim: takes the name wanted for a text and gives the name that it gets.
    """
    assert load.described is not None
    rows, features = _axes(kernel, axes)
    start, end = load.described
    stride = f"{load.buffer}_stride_{rows.name}"
    shape = text.over(end - start, ())
    if (start, end) != (0, rows.size):
        shape = f"tl.maximum({shape}, 1)"  # no descriptor is of nothing; then no tile is asked for
    moved, back = "", ""
    if start != 0:
        first = text.over(start, ())
        moved = f" + tl.cast({first}, tl.int64) * {stride}"
        is_wide = any(name in text.names and text.names[name].long for name in names_in(start))
        back = f" - tl.cast({first}, tl.int32)" if is_wide else f" - {first}"  # it takes 32 bits
    sizes = f"[{shape}, {features.size}], [{stride}, 1], [{rows.tile}, {features.tile}]"
    made = f"tl.make_tensor_descriptor({base}{moved}, {sizes})"
    name = claim(f"{load.buffer}_box", made)
    read = f"{name}.load([tile * {rows.tile}{back}, {features.first}])"
    turned = axes[0] == features.name
    return Descriptor(name, made, f"tl.trans({read})" if turned else read)


def _axes(kernel: Kernel, axes: tuple[str, ...]) -> tuple[Axis, Axis]:
    """The rows and the features of a tile."""
    first, second = (kernel.axis(name) for name in axes)
    return (second, first) if first.role == "feature" else (first, second)
