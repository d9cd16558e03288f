"""Compile a generated module's kernels for a GPU that is not there.

The module's own launcher is run on CPU tensors while each kernel, instead of launching, notes what
it was given.  The note is then compiled for the target with the specialisation that Triton's JIT
would have chosen on the machine itself: integers equal to 1 become constants, pointers and integers
divisible by 16 are marked so.  Without it the machine code would be another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, KernelParam

from attnc.errors import AttncError
from attnc.targets import Target

ALIGNED = ["tt.divisibility", 16]
WITHIN_2_GB = ["tt.pointer_range", 32]  # AMD: buffer instructions may be used
NOT_OPTIONS = frozenset({"grid", "warmup"})
TENSOR_TYPES = {
    "float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64",
    "int8": "*i8", "int16": "*i16", "int32": "*i32", "int64": "*i64",
    "uint8": "*u8", "bool": "*i1",
}  # fmt: skip


class NothingLaunched(AttncError):
    """Say that a launcher returned without launching a kernel."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and what it was launched with."""

    kernel: Any  # the JITFunction
    arguments: Mapping[str, Any]  # every parameter, in order
    options: Mapping[str, Any]  # num_warps, num_stages ...

    @property
    def name(self) -> str:
        """The kernel's name in the module."""
        return self.kernel.__name__


def capture(module: ModuleType, call: Callable[[], object]) -> tuple[Launch, ...]:
    """Run `call` and note every launch of the module's kernels, in order; none takes place.

    Raises: NothingLaunched.
    """
    launches: list[Launch] = []
    kernels = [value for value in vars(module).values() if isinstance(value, JITFunction)]
    with ExitStack() as stack:
        for kernel in kernels:
            stack.enter_context(_noting(kernel, launches))
        call()
    if not launches:
        raise NothingLaunched(f"{module.__name__} launched no kernel")
    return tuple(launches)


def compile_launch(launch: Launch, target: Target) -> Any:
    """Compile one launch for a target, down to machine code; gives Triton's CompiledKernel."""
    signature, constants, attributes = specialise(launch, target)
    source = ASTSource(launch.kernel, signature, constants, attributes)
    return triton_compile(source, target=gpu_target(target), options=dict(launch.options))


def gpu_target(target: Target) -> GPUTarget:
    """Name the target as Triton does."""
    if target.vendor == "amd":
        return GPUTarget("hip", target.name, target.warp_size)
    return GPUTarget("cuda", target.capability, target.warp_size)


def specialise(
    launch: Launch, target: Target
) -> tuple[dict[str, str], dict[tuple[int, ...], Any], dict[tuple[int, ...], list[list[Any]]]]:
    """Give each parameter its type, its constant or its attributes, as Triton's JIT does."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for number, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        kind = _type_of(parameter, value)
        signature[parameter.name] = kind
        if kind == "constexpr":
            constants[(number,)] = value
        elif marks := _attributes(parameter, value, target):
            attributes[(number,)] = marks
    return signature, constants, attributes


@contextmanager
def _noting(kernel: JITFunction[Any], launches: list[Launch]) -> Iterator[None]:
    """Put a function that takes notes in place of a kernel's `run`."""
    before = vars(kernel).get("run")

    def run(*args: Any, **kwargs: Any) -> None:
        launches.append(_bind(kernel, args, kwargs))

    kernel.run = run
    try:
        yield
    finally:
        if before is None:
            del kernel.run
        else:
            kernel.run = before


def _bind(kernel: JITFunction[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
    names = [parameter.name for parameter in kernel.params]
    given = dict(zip(names, args, strict=False))
    given |= {name: value for name, value in kwargs.items() if name in names}
    defaults = {one.name: one.default for one in kernel.params if one.has_default}
    missing = [name for name in names if name not in given and name not in defaults]
    if missing:
        raise TypeError(f"{kernel.__name__} was launched without {', '.join(missing)}")
    options = {name: value for name, value in kwargs.items() if name not in names}
    return Launch(
        kernel,
        {name: given.get(name, defaults.get(name)) for name in names},
        {name: value for name, value in options.items() if name not in NOT_OPTIONS},
    )


def _type_of(parameter: KernelParam, value: Any) -> str:
    if parameter.is_constexpr or value is None:
        return "constexpr"
    if annotated := parameter.annotation_type:
        return annotated
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        return "constexpr" if value == 1 and not parameter.do_not_specialize else _integer(value)
    if isinstance(value, float):
        return "fp32"
    return TENSOR_TYPES[str(value.dtype).removeprefix("torch.")]


def _integer(value: int) -> str:
    if -(2**31) <= value < 2**31:
        return "i32"
    return "i64" if value < 2**63 else "u64"


def _attributes(parameter: KernelParam, value: Any, target: Target) -> list[list[Any]]:
    marks: list[list[Any]] = []
    if parameter.do_not_specialize or isinstance(value, bool | float):
        return marks
    is_tensor = hasattr(value, "data_ptr")
    place = value.data_ptr() if is_tensor else value
    if place % 16 == 0 and not parameter.do_not_specialize_on_alignment:
        marks.append(ALIGNED)
    if target.vendor == "amd" and is_tensor and value.untyped_storage().nbytes() < 2**31:
        marks.append(WITHIN_2_GB)
    return marks
