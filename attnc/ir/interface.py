"""What a generated module offers and means.

It holds everything codegen and the launcher must know beyond the kernels.  The formulas are the
spec's own; the dense reference in the generated file is printed from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr
from sympy.logic.boolalg import Boolean


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A declared tensor: a required keyword of the call."""

    name: str
    shape: tuple[str | int, ...]  # batch, heads, kv_heads, q_len, kv_len or an integer
    dtype: str  # f32 | f16 | bf16 | i32 | i64 | i1


@dataclass(frozen=True, slots=True)
class ParamArgument:
    """A declared run-time scalar; without a default it is a required keyword."""

    name: str
    kind: str  # int | float
    default: int | float | None


@dataclass(frozen=True, slots=True)
class GradientArgument:
    """What the backward gives for an operand of the call; with several, their sum.

    buffer: what a kernel writes.  reads: what other kernels of the backward make for it.  blank:
    it writes only some of the elements, the others are 0.  shares: the buffer's dimensions where
    programs write shares (b, h or g, then q, k, n or block); they are summed over what `dims` lack.
    dims: those of the operand; with `places`, what the shares vary along, which are then added to
    the operand's elements at these indices, one for each of its dimensions.
    """

    operand: str
    buffer: str
    reads: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()  # of b, h, g, q, k; n, the distance kv_idx - q_pos, from 1 - kv_len
    shares: tuple[str, ...] = ()
    places: tuple[Expr, ...] = ()
    blank: bool = False


CHOICES = ("skew", "tma", "last_first")  # fields of a schedule that a kernel may lack


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a kernel is tiled on a device class.

    skew: its products run a tile ahead (ir.Ahead).  tma: tensor descriptors do its loads
    (ir.Load.described).  last_first: its tiles start from the last one (ir.GridDim.turned).
    """

    block_q: int
    block_kv: int
    warps: int
    stages: int
    skew: bool = False
    tma: bool = False
    last_first: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """The schedule of a kernel on a device class (sm_90 ...) for an element size in bytes.

    is_listed: whether the generated file has it; a class that is rare gets one by tuning alone.
    """

    device: str
    element_bytes: int
    kernel: str
    schedule: Schedule
    is_listed: bool = True


@dataclass(frozen=True, slots=True)
class Interface:
    """A module's call and its meaning, one field for each thing that the spec decides."""

    name: str
    doc: str
    spec_text: str
    spec_path: str
    layout: str  # bhsd | bshd
    heads_q: int
    heads_kv: int
    fixes_heads: bool
    head_dim_qk: int
    head_dim_v: int
    dtype: str  # nominal: fp16 | bf16 | fp32
    fp32_dot: str  # ieee | tf32 | tf32x3
    scale: Expr
    score: Expr
    mask: Boolean
    params: tuple[ParamArgument, ...]
    tensors: tuple[TensorArgument, ...]
    outputs: tuple[str, ...]
    head_gate: bool
    dropout: bool
    backward: bool
    gradients: tuple[GradientArgument, ...]
    kept: tuple[str, ...]  # what the forward writes for them
    derivation: tuple[str, ...]  # how they are made, as formulas for a reader
    schedules: tuple[ScheduleRow, ...]
    sink: bool = False
    without_gradient: tuple[str, ...] = ()  # of the outputs

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.heads_q // self.heads_kv
