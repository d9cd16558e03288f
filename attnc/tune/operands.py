"""The tensors and numbers a generated launcher is called with while it is captured.

Only shapes, strides and dtypes reach the compiler, so that nothing here is filled: a tensor of many
gigabytes that nobody touches costs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Protocol
from unittest import mock

import torch

DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
ELEMENT = "element"  # the dtype of q, k and v
FIELDS = ("block_q", "block_kv", "warps", "stages")
CHOICES = (
    "skew",
    "tma",
    "last_first",
)  # fields that a kernel may lack; False where a schedule is silent
LENGTH = 4096  # a multiple of 16, as almost every length that matters


class DeclaredTensor(Protocol):
    """What is read of a spec's tensor."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[str | int, ...]: ...
    @property
    def dtype(self) -> str: ...


class DeclaredParam(Protocol):
    """What is read of a spec's run-time scalar."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def default(self) -> int | float | None: ...


class Spec(Protocol):
    """What is read of a spec."""

    @property
    def heads_q(self) -> int: ...
    @property
    def heads_kv(self) -> int: ...
    @property
    def head_dim_qk(self) -> int: ...
    @property
    def head_dim_v(self) -> int: ...
    @property
    def layout(self) -> str: ...
    @property
    def head_gate(self) -> bool: ...
    @property
    def sink(self) -> bool: ...
    @property
    def dropout(self) -> bool: ...
    @property
    def tensors(self) -> Sequence[DeclaredTensor]: ...
    @property
    def params(self) -> Sequence[DeclaredParam]: ...


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of the call."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # a key of DTYPES, or ELEMENT


@dataclass(frozen=True, slots=True)
class Operands:
    """Everything a launcher is called with, but for the schedule."""

    tensors: tuple[Operand, ...]
    scalars: tuple[tuple[str, int | float], ...]


def operands_of(spec: Spec) -> Operands:
    """Take one batch entry at a length of 4096 as typical of a spec's calls."""
    sizes = {"batch": 1, "heads": spec.heads_q, "kv_heads": spec.heads_kv}
    sizes |= {"q_len": LENGTH, "kv_len": LENGTH}
    tensors = [
        Operand("q", _laid_out(spec, spec.heads_q, spec.head_dim_qk), ELEMENT),
        Operand("k", _laid_out(spec, spec.heads_kv, spec.head_dim_qk), ELEMENT),
        Operand("v", _laid_out(spec, spec.heads_kv, spec.head_dim_v), ELEMENT),
    ]
    for name, is_asked in (("head_gate", spec.head_gate), ("sink", spec.sink)):
        tensors += [Operand(name, (spec.heads_q,), "fp32")] if is_asked else []
    tensors += [Operand("dropout_seed", (1,), "int64")] if spec.dropout else []
    for declared in spec.tensors:
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in declared.shape)
        tensors.append(Operand(declared.name, shape, declared.dtype))
    scalars = [(param.name, _typical(param)) for param in spec.params]
    scalars += [("dropout_p", 0.1)] if spec.dropout else []  # the kernels of training
    return Operands(tuple(tensors), (*scalars, ("scale", spec.head_dim_qk**-0.5)))


def call_launcher(
    launcher: FunctionType,
    operands: Operands,
    element: str,
    schedule: Mapping[str, int],
) -> object:
    """Call a launcher with fresh tensors, each argument by its name.

    element: fp16 | bf16 | fp32.  schedule: FIELDS, and of CHOICES those that are made.
    """
    values: dict[str, Any] = {one.name: _empty(one, element) for one in operands.tensors}
    values |= dict(operands.scalars)
    values["keep"] = False
    known = launcher.__globals__.get("FIELDS", FIELDS)  # in the order of its module
    values["schedule"] = [int(schedule.get(field, 0)) for field in known]
    wanted = inspect.signature(launcher).parameters
    return launcher(**{name: value for name, value in values.items() if name in wanted})


def call_backward(
    module: ModuleType,
    operands: Operands,
    element: str,
    schedule: Mapping[str, Mapping[str, int]],
) -> None:
    """Ask a module for every gradient that it has, as a user does; schedule: by kernel.

    A module launches kernels on CPU tensors where it takes itself for interpreted.
    """
    values = {one.name: _empty(one, element) for one in operands.tensors}
    values.pop("dropout_seed", None)  # an int to a user; torch draws one
    leaves = [values[name].requires_grad_() for name in module.GRADIENTS if name in values]
    call = inspect.signature(module.attention).parameters
    numbers = {name: value for name, value in operands.scalars if name in call}
    as_on_a_gpu: dict[str, Any] = {"INTERPRETED": True, "INTERPRETER_UPCASTS_BF16": False}
    with mock.patch.multiple(module, **as_on_a_gpu):
        out, aux = module.attention(**values, **numbers, schedule=schedule, return_aux=True)
        results = [result for result in (out, *aux) if result.requires_grad]
        torch.autograd.grad(results, leaves, [torch.empty_like(result) for result in results])


def _empty(operand: Operand, element: str) -> torch.Tensor:
    dtype = DTYPES[element if operand.dtype == ELEMENT else operand.dtype]
    return torch.empty(operand.shape, dtype=dtype)


def _laid_out(spec: Spec, heads: int, features: int) -> tuple[int, ...]:
    if spec.layout == "bshd":
        return (1, LENGTH, heads, features)
    return (1, heads, LENGTH, features)


def _typical(param: DeclaredParam) -> int | float:
    if param.default is not None:
        return param.default
    return 1024 if param.kind == "int" else 0.5
