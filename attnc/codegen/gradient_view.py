"""What launchers make, and how that of the backward puts gradients together, as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sympy import Expr

from attnc.codegen.torch_text import TorchText, bare
from attnc.ir.interface import GradientArgument, Interface
from attnc.ir.nodes import Buffer, Kernel
from attnc.symbols import FloorDiv, arguments, kv_len, names_in, q_len

TORCH_DTYPES = {
    "f32": "torch.float32",
    "f16": "torch.float16",
    "bf16": "torch.bfloat16",
    "i32": "torch.int32",
    "i64": "torch.int64",
    "i1": "torch.bool",
}
DISTANCES = q_len + kv_len - 1  # none, where there are no queries and no keys
POSITIONS = {  # dimension of shares: its position, and the numbers of a tensor's elements along it
    "b": ("b", "batch"),
    "h": ("h", "heads"),
    "g": ("h_kv", "kv_heads"),
    "q": ("q_idx", "q_len"),
    "k": ("kv_idx", "kv_len"),
    "n": ("distance", "1 - kv_len, max(q_len, 1 - kv_len)"),
}


@dataclass(frozen=True, slots=True)
class ResultView:
    """A tensor that a launcher makes: its name, shape and dtype."""

    name: str
    shape: str
    dtype: str  # empty: that of q
    blank: bool = False  # all 0 at first
    optional: bool = False  # made only where a gradient wants it
    declared: bool = False  # the call returns it
    has_gradient: bool = False


@dataclass(frozen=True, slots=True)
class PlacesView:
    """Where shares land in an operand: positions along their dimensions, and formulas of them."""

    name: str  # of the shares
    operand: str
    positions: tuple[tuple[str, str], ...]
    formulas: str


@dataclass(frozen=True, slots=True)
class PartView:
    """What a kernel writes for a gradient: its tensor, and what becomes of it there."""

    operand: str
    result: ResultView
    total: str  # an expression over the tensor's name
    places: PlacesView | None


@dataclass(frozen=True, slots=True)
class GradientView:
    """A gradient: its operand, and its parts added up."""

    operand: str
    total: str


def view_gradients(interface: Interface) -> tuple[GradientView, ...]:
    """Every operand's gradient, in the order of the call."""
    parts: dict[str, list[str]] = {}
    for one in interface.gradients:
        parts.setdefault(one.operand, []).append(one.buffer)
    return tuple(GradientView(operand, _added_up(names)) for operand, names in parts.items())


def _added_up(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{' + '.join(names)} if {names[0]} is not None else None"


def view_part(interface: Interface, part: GradientArgument, kernel: Kernel) -> PartView:
    """A part of a gradient that a kernel writes."""
    places = _places(interface, part) if part.places else None
    result = view_result(interface, kernel.buffer(part.buffer))
    return PartView(part.operand, result, _total(interface, part), places)


def view_result(interface: Interface, buffer: Buffer) -> ResultView:
    """A result in the layout of the call."""
    dims = [size_text(size) for size in buffer.sizes]
    if interface.layout == "bshd" and buffer.dtype == "element":
        dims[1], dims[2] = dims[2], dims[1]
    dtype = "" if buffer.dtype == "element" else TORCH_DTYPES[buffer.dtype]
    owners = {one.buffer: one for one in interface.gradients}
    own = owners.get(buffer.name)
    if own is not None and not own.shares and dtype:
        dtype = f"{own.operand}.dtype"
    shape = f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
    blank = own is not None and own.blank
    declared = buffer.name in ("out", *interface.outputs)
    has_gradient = declared and buffer.name not in interface.without_gradient
    return ResultView(buffer.name, shape, dtype, blank, buffer.optional, declared, has_gradient)


def view_results(
    interface: Interface, forward: Sequence[Kernel], backward: Sequence[Kernel]
) -> tuple[tuple[ResultView, ...], tuple[ResultView, ...]]:
    """What the operator returns, and what stays among the kernels of the forward."""
    made = {b.name: view_result(interface, b) for kernel in forward for b in written_by(kernel)}
    declared = tuple(made.pop(name) for name in ("out", *interface.outputs))
    kept = tuple(made.pop(name) for name in [*made] if name in read_by(backward))
    return (*declared, *kept), tuple(made.values())


def written_by(kernel: Kernel) -> list[Buffer]:
    """The tensors that a kernel writes."""
    return [buffer for buffer in kernel.buffers if buffer.role == "output"]


def read_by(kernels: Iterable[Kernel]) -> set[str]:
    """The names of the tensors that kernels read."""
    return {b.name for kernel in kernels for b in kernel.buffers if b.role == "input"}


def size_text(size: Expr) -> str:
    """A size as Python; a number of tiles as the launcher's."""
    if isinstance(size, FloorDiv):
        whole, tile = arguments(size)
        return f"triton.cdiv({whole - tile + 1}, {str(tile).lower()})"
    return f"max({size}, 0)" if size == DISTANCES else str(size)


def _total(interface: Interface, part: GradientArgument) -> str:
    """What a part adds, or what lands: shares are summed over what their dims lack."""
    if not part.shares:
        return part.buffer
    total, dims = part.buffer, list(part.shares)
    if "g" in part.dims and "h" in dims:
        total += f".unflatten(1, (-1, {interface.group}))"
        dims[1:2] = ["g", "member"]
    lacked = [i for i, dim in enumerate(dims) if dim not in part.dims]
    total += f".sum({tuple(lacked)})" if lacked else ""
    if part.places:
        return total
    left = [dim for dim in dims if dim in part.dims]
    order = tuple(left.index(dim) for dim in part.dims)
    return total if order == tuple(sorted(order)) else f"{total}.permute({order})"


def places_helpers(interface: Interface) -> set[str]:
    """The functions that the places of shares call."""
    text = TorchText()
    for part in interface.gradients:
        for place in part.places:
            text.print(place)
    return text.used


def _places(interface: Interface, part: GradientArgument) -> PlacesView:
    """A position along each dimension of what is left of the shares."""
    text = TorchText()
    formulas = ", ".join(bare(text.print(place)) for place in part.places)
    spoken = names_in(*part.places)
    order = [dim for dim in ("b", "h", "g", "q", "k", "n") if dim in part.dims]
    positions: list[tuple[str, str]] = []
    for at, dim in enumerate(order):
        name, extent = POSITIONS[dim]
        shape = ", ".join("-1" if other == at else "1" for other in range(len(order)))
        positions.append((name, f"torch.arange({extent}, device=q.device).view({shape})"))
    if "h" in order:
        positions.append(("h_kv", f"h // {interface.group}"))
    if "q" in order:
        positions.append(("q_pos", "q_idx + (kv_len - q_len)"))
    needed = spoken | ({"h"} if "h_kv" in spoken else set())
    needed |= {"q_idx"} if "q_pos" in spoken else set()
    used = [(name, value) for name, value in positions if name in needed]
    used += [(name, f"torch.tensor({name})") for name in ("q_len", "kv_len") if name in spoken]
    params = [param for param in interface.params if param.name in spoken]
    used += [(param.name, f"torch.as_tensor({param.name})") for param in params]
    return PlacesView(part.buffer, part.operand, tuple(used), f"({formulas},)")
