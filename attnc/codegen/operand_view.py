"""The operands of the call beyond q, k and v, as the module's text speaks of them."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.codegen.gradient_view import TORCH_DTYPES
from attnc.ir.interface import Interface
from attnc.ir.nodes import Program


@dataclass(frozen=True, slots=True)
class TensorView:
    """A declared tensor as the module's text speaks of it."""

    name: str
    dtype: str
    shape: str  # as a Python tuple over batch, heads, kv_heads, q_len, kv_len
    doc: str
    used: bool  # by the kernel
    kernel_argument: str


@dataclass(frozen=True, slots=True)
class ParamView:
    """A declared run-time scalar as the module's text speaks of it."""

    name: str
    kind: str
    default: str | None


def view_tensors(interface: Interface, program: Program) -> tuple[TensorView, ...]:
    """Declared tensors, and those that a feature adds."""
    read = {buffer.name for kernel in program.kernels for buffer in kernel.buffers}
    declared = [(t.name, t.shape, t.dtype) for t in interface.tensors]
    by_head = {"head_gate": interface.head_gate, "sink": interface.sink}
    declared += [(name, ("heads",), "f32") for name, asked in by_head.items() if asked]
    return tuple(
        TensorView(
            name,
            TORCH_DTYPES[dtype],
            f"({', '.join(map(str, shape))},)",
            f"[{', '.join(map(str, shape))}] {TORCH_DTYPES[dtype].removeprefix('torch.')}",
            name in read,
            f"{name}.view(torch.int8)" if dtype == "i1" else name,
        )
        for name, shape, dtype in declared
    )


def view_params(interface: Interface) -> tuple[ParamView, ...]:
    """Run-time scalars."""
    return tuple(
        ParamView(p.name, p.kind, None if p.default is None else repr(p.default))
        for p in interface.params
    )


def varying(tensors: tuple[TensorView, ...]) -> list[str]:
    """Tensors of which somebody might ask a gradient."""
    return [tensor.name for tensor in tensors if "float" in tensor.dtype]
