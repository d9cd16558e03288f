"""Everything around the kernels as values for the template.

That is the header, the arguments, the checks, the launch and the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Expr

from attnc import __version__, symbols
from attnc.codegen.choices import choices_in
from attnc.codegen.gradient_view import (
    GradientView,
    PartView,
    ResultView,
    places_helpers,
    read_by,
    size_text,
    view_gradients,
    view_part,
    view_result,
    view_results,
    written_by,
)
from attnc.codegen.header import header_lines, path_text, spec_lines
from attnc.codegen.kernel_view import KernelView, view_kernel
from attnc.codegen.operand_view import (
    ParamView,
    TensorView,
    varying,
    view_params,
    view_tensors,
)
from attnc.codegen.torch_text import TorchText, bare, math_text
from attnc.divisors import divisors_of
from attnc.ir.interface import Interface
from attnc.ir.nodes import Buffer, GridDim, Kernel, Let, Load, Loop, Program, Store
from attnc.ir.rebuild import lets_in
from attnc.notation import plain
from attnc.symbols import FloorDiv, names_in

SWITCHES = {  # as the launcher knows them
    "keep": "keep",
    "has_dropout_seed": "dropout_seed is not None",
}
LENGTHS = {"q_block": "q_len", "kv_block": "kv_len", "n_block": "q_len + kv_len"}


@dataclass(frozen=True, slots=True)
class DivisorView:
    """What a formula divides by that params alone decide: it must not be 0."""

    doc: str
    text: str


@dataclass(frozen=True, slots=True)
class BufferView:
    """An argument of the kernel: its tensor, and its strides in the kernel's order, if any."""

    name: str
    strides: str


@dataclass(frozen=True, slots=True)
class LaunchView:
    """One kernel, and what its launch prints."""

    kernel: KernelView
    buffers: tuple[BufferView, ...]
    grid: str  # how many programs
    sizes: str  # what the grid is made of, for a message
    reach: tuple[str, ...]  # the largest offset within a tile, for each access
    signed: bool
    switches: tuple[tuple[str, str], ...]  # what a kernel is compiled for, and what decides it
    serves: tuple[str, ...]  # of the backward: operands whose gradient takes this kernel
    parts: tuple[PartView, ...]  # of gradients, which it writes itself


@dataclass(frozen=True, slots=True)
class ReferenceView:
    """What the dense reference prints: the formulas as PyTorch, and what they need."""

    score: str  # empty where it is what it was
    mask: str
    names: tuple[str, ...]  # positions and lengths that the formulas speak of
    helpers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModuleView:
    """A whole generated file as values: each field is what one place of the template prints."""

    interface: Interface
    version: str
    header: tuple[str, ...]
    spec: tuple[str, ...]
    forward: tuple[LaunchView, ...]
    backward: tuple[LaunchView, ...]
    helpers: tuple[str, ...]  # functions that the kernels call
    choices: tuple[tuple[str, tuple[str, ...]], ...]  # fields of a schedule, and kernels with them
    tensors: tuple[TensorView, ...]
    params: tuple[ParamView, ...]
    divisors: tuple[DivisorView, ...]
    divisor_params: tuple[str, ...]  # what the divisors speak of
    divisor_floats: tuple[str, ...]
    scalars: tuple[str, ...]  # float params and scale: each a number or a 0-d tensor
    operands: tuple[str, ...]  # of the operator, tensors or scalars
    dense_arguments: tuple[str, ...]
    results: tuple[ResultView, ...]  # of the forward: outputs in the spec's order, what is kept
    passed_on: tuple[ResultView, ...]  # what one kernel of the forward makes for another alone
    kept: tuple[ResultView, ...]  # those that only the backward reads
    saved: tuple[str, ...]  # those that the backward reads
    cotangents: tuple[str, ...]  # gradients of what the call returns
    constant: tuple[str, ...]  # tensors of floats that have none
    gradients: tuple[GradientView, ...]  # of operands that may have one
    between: tuple[ResultView, ...]  # what one kernel of the backward makes for another
    path: str
    shapes: Mapping[str, str]
    needs_math: bool
    scale: str
    scale_doc: str
    scale_params: tuple[str, ...]
    scale_floats: tuple[str, ...]
    scale_numbers: tuple[str, ...]  # all that it speaks of
    scale_torch: str  # the same formula over tensors
    scale_needs_lengths: bool
    scale_needs_d: bool
    scale_varies: bool  # with a call's params or lengths: it may have no value
    reference: ReferenceView


def view_module(program: Program) -> ModuleView:
    """Collect what the templates print."""
    interface = program.interface
    forward = [kernel for kernel in program.kernels if kernel.name.startswith("forward")]
    backward = program.kernels[len(forward) :]
    launches = [_launch(kernel, program) for kernel in program.kernels]
    made = [view_result(interface, b) for kernel in backward for b in written_by(kernel)]
    scale, divisors = interface.scale, _divisors(interface)
    results, passed_on = view_results(interface, forward, backward)
    read = read_by(backward)
    tensors = view_tensors(interface, program)
    floats = [p.name for p in interface.params if p.kind == "float"]
    names = ("q", "k", "v", *(tensor.name for tensor in tensors))
    seeds, shares = (("dropout_seed",), ("dropout_p",)) if interface.dropout else ((), ())
    moved = {one.operand for one in interface.gradients}
    return ModuleView(
        interface=interface,
        version=__version__,
        header=header_lines(program),
        spec=spec_lines(interface),
        forward=tuple(launches[: len(forward)]),
        backward=tuple(launches[len(forward) :]),
        helpers=tuple(sorted({name for one in launches for name in one.kernel.helpers})),
        choices=choices_in(program.kernels),
        tensors=tensors,
        params=view_params(interface),
        divisors=tuple(DivisorView(plain(divisor), math_text(divisor)) for divisor in divisors),
        divisor_params=tuple(p.name for p in interface.params if p.name in names_in(*divisors)),
        divisor_floats=tuple(name for name in floats if name in names_in(*divisors)),
        scalars=(*floats, "scale"),
        operands=(*names, *seeds, *floats, "scale"),
        dense_arguments=(*names, *seeds, *(p.name for p in interface.params), *shares, "scale"),
        results=results,
        passed_on=passed_on,
        kept=tuple(result for result in results if not result.declared),
        saved=tuple(result.name for result in results if result.name in read),
        cotangents=tuple(f"grad_{result.name}" for result in results if result.has_gradient),
        constant=tuple(name for name in varying(tensors) if name not in moved),
        gradients=view_gradients(interface),
        between=tuple(one for one in made if not one.name.startswith("grad_")),
        path=path_text(interface.spec_path),
        shapes=_shapes(interface),
        needs_math=any("math." in math_text(formula) for formula in (scale, *divisors)),
        scale=math_text(scale),
        scale_doc=plain(interface.scale),
        scale_params=tuple(p.name for p in interface.params if p.name in names_in(scale)),
        scale_floats=tuple(name for name in floats if name in names_in(scale)),
        scale_numbers=tuple(sorted(names_in(scale))),
        scale_torch=bare(TorchText().print(scale)),
        scale_needs_d="d" in names_in(scale),
        scale_varies=bool(names_in(scale) - {"d"}),
        scale_needs_lengths=bool(names_in(scale) & {"q_len", "kv_len"}),
        reference=_reference(interface, places_helpers(interface)),
    )


def _launch(kernel: Kernel, program: Program) -> LaunchView:
    written = [buffer.name for buffer in written_by(kernel)]
    gradients = program.interface.gradients
    serves = dict.fromkeys(g.operand for g in gradients if {g.buffer, *g.reads} & set(written))
    return LaunchView(
        view_kernel(kernel, program),
        tuple(_buffer(program.interface, buffer) for buffer in kernel.buffers),
        " * ".join(size_text(dim.extent) for dim in kernel.grid),
        " x ".join(_size_words(dim) for dim in reversed(kernel.grid)),
        _reaches(kernel),
        any(scalar.kind == "sign" for scalar in kernel.scalars),
        tuple((s.name.upper(), SWITCHES[s.name]) for s in kernel.scalars if s.kind == "switch"),
        tuple(serves),
        tuple(view_part(program.interface, g, kernel) for g in gradients if g.buffer in written),
    )


def _size_words(dim: GridDim) -> str:
    """A size of the grid for a message."""
    if not isinstance(dim.extent, FloorDiv):
        word = {"h": "heads", "h_kv": "heads"}.get(str(dim.index), str(dim.extent))
        return f"{word} {{{dim.extent}}}"
    length = LENGTHS[str(dim.index)]
    return f"{length} {{{length}}}"


def _divisors(interface: Interface) -> list[Expr]:
    params = [param.name for param in interface.params]
    return divisors_of((interface.score, interface.mask), params, interface.head_dim_qk)


def _buffer(interface: Interface, buffer: Buffer) -> BufferView:
    """Strides in the order batch, heads, rows, features, whatever the tensor's layout."""
    turned = ".transpose(1, 2)" if interface.layout == "bshd" and buffer.dtype == "element" else ""
    strides = f"{buffer.name}{turned}.stride()"
    if buffer.optional:
        strides += f" if {buffer.name} is not None else {(0,) * len(buffer.dims)}"
    return BufferView(buffer.name, strides if buffer.dims else "")


def _shapes(interface: Interface) -> dict[str, str]:
    def shape(heads: str, length: str, features: object) -> str:
        middle = (heads, length) if interface.layout == "bhsd" else (length, heads)
        return f"[batch, {', '.join(middle)}, {features}]"

    return {
        "q": shape("heads", "q_len", interface.head_dim_qk),
        "k": shape("kv_heads", "kv_len", interface.head_dim_qk),
        "v": shape("kv_heads", "kv_len", interface.head_dim_v),
        "out": shape("heads", "q_len", interface.head_dim_v),
        "any": shape("heads", "length", "head_dim"),
    }


def _reaches(kernel: Kernel) -> tuple[str, ...]:
    """How far the elements of a tile lie from its first one: decides the width of offsets."""
    found: dict[str, None] = {}
    by_index = {str(axis.index): axis for axis in kernel.axes}
    fixed = {"h", "h_kv", *(str(dim.index) for dim in kernel.grid)}
    for access in _accesses(kernel):
        parts = []
        for position, index in enumerate(access.index):
            axis = by_index.get(str(index))
            stride = f"{access.buffer}_strides[{position}]"
            if axis is not None and axis.role == "feature":
                last = max(
                    int(a.first) + int(a.tile) for a in kernel.axes if a.name[0] == axis.name[0]
                )
                parts.append(f"{last - 1} * {stride}")
            elif axis is not None:
                parts.append(f"({str(axis.tile).lower()} - 1) * {stride}")
            elif names_in(index) - fixed:
                parts.append(f"{access.buffer}.shape[{position}] * {stride}")
        if parts:
            found[" + ".join(parts)] = None
    return tuple(found)


def _accesses(kernel: Kernel) -> list[Load | Store]:
    found: list[Load | Store] = []
    for stmt in kernel.body:
        lets = lets_in(stmt) if isinstance(stmt, Loop) else (stmt,)
        found += [let.value for let in lets if isinstance(let, Let) and isinstance(let.value, Load)]
        found += [stmt] if isinstance(stmt, Store) else []
    return found


def _reference(interface: Interface, helpers: set[str]) -> ReferenceView:
    text = TorchText(helpers)
    mask = text.print(interface.mask)
    text.taken = ("visible",)
    plain_score = interface.score == symbols.score
    score = "" if plain_score else bare(text.print(interface.score))
    spoken = names_in(interface.score, interface.mask)
    spoken |= {"q_idx"} if "q_pos" in spoken else set()
    order = ("b", "h", "h_kv", "q_idx", "kv_idx", "q_pos", "d", "q_len", "kv_len")
    return ReferenceView(
        score=score,
        mask=bare(mask),
        names=tuple(name for name in order if name in spoken),
        helpers=tuple(sorted(text.used)),
    )
