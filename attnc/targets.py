"""The device classes attnc writes schedules for, and what one block may use on each.

The launcher of a generated file maps a real device to a class by its architecture.  Nothing here
imports torch or triton: `attnc compile` reads this table and must start at once.

Sources.  NVIDIA: CUDA C++ programming guide, "Compute Capabilities", rows "Maximum amount of shared
memory per thread block", "Number of 32-bit registers per multiprocessor" and "... per thread"; the
least product is Triton's `min_dot_size`, 16 in each direction; tensor memory is PTX ISA, "Tensor
Memory", 512 columns.  AMD: CDNA 3 and CDNA 4 ISA guides, "LDS" (64 KB, 160 KB) and "VGPRs" (512 a
lane with the accumulation registers).
"""

from __future__ import annotations

from dataclasses import dataclass

from attnc.errors import UserError

KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """A device class, and what one block may use on it."""

    name: str  # sm_90, gfx942 ...
    meaning: str  # chips of this class
    matrix_unit: str  # mma | wgmma | tcgen05 | mfma | none: Triton has no products for it
    shared_bytes: int  # shared memory (AMD: LDS) of one block
    registers: int = 65536  # 32-bit registers of a multiprocessor (AMD: of a compute unit)
    registers_per_thread: int = 255
    warp_size: int = 32
    max_warps: int = 32  # of one block
    dot_minimum: int = 16  # least extent of a product
    tensor_columns: int = 0  # columns of tensor memory
    by_default: bool = True  # whether every generated file has schedules for it
    has_bf16: bool = True
    has_backward: bool = True  # whether attnc writes kernels of the backward for it

    @property
    def vendor(self) -> str:
        """Whose it is: nvidia or amd."""
        return "nvidia" if self.name.startswith("sm_") else "amd"

    @property
    def capability(self) -> int:
        """The number in an NVIDIA name: sm_90 -> 90; 0 for AMD."""
        return int(self.name.removeprefix("sm_")) if self.vendor == "nvidia" else 0

    @property
    def has_descriptors(self) -> bool:
        """Whether tensor descriptors (TMA) are done in hardware there."""
        return self.capability >= 90

    @property
    def has_async_copies(self) -> bool:
        """Whether loads can be pipelined: what AMD has instead, Triton knows."""
        return self.vendor == "amd" or self.capability >= 80

    def why_not(self, kernel: str, element: str) -> str:
        """Why it gets no such kernel for elements of a type (fp16 ...); empty: it does."""
        if element == "bf16" and not self.has_bf16:
            return "computes no bf16; take fp16: `dtype: fp16` in the spec"
        if kernel != "forward" and not self.has_backward:
            return "gets kernels of the forward alone"
        return ""


TARGETS: tuple[Target, ...] = (
    Target(
        "sm_75", "T4, RTX 20", "none", 64 * KIB,
        by_default=False, has_bf16=False, has_backward=False,
    ),
    Target("sm_80", "A100", "mma", 163 * KIB),
    Target("sm_86", "A10, A40, RTX 30", "mma", 99 * KIB),
    Target("sm_89", "L4, L40S, RTX 40", "mma", 99 * KIB),
    Target("sm_90", "H100, H200", "wgmma", 227 * KIB),
    Target("sm_100", "B200, GB200", "tcgen05", 227 * KIB, tensor_columns=512),
    Target("sm_120", "RTX 50", "mma", 99 * KIB),
    Target(
        "gfx942", "MI300X, MI325X", "mfma", 64 * KIB,
        registers=131072, registers_per_thread=512, warp_size=64, max_warps=16,
    ),
    Target(
        "gfx950", "MI350X, MI355X", "mfma", 160 * KIB,
        registers=131072, registers_per_thread=512, warp_size=64, max_warps=16,
    ),
)  # fmt: skip

TARGET_NAMES = tuple(target.name for target in TARGETS)


class UnknownTarget(UserError):
    """Report a device class attnc does not know."""

    code = "user/unknown-target"
    message = "no target is called {name!r}"
    help = "known targets: {known}"


class RefusedTarget(UserError):
    """Report a kernel that attnc does not write for a device class."""

    code = "user/refused-target"
    message = "{kernel} cannot be made for {name} ({meaning}): it {why}"


def find_target(name: str) -> Target:
    """Find a device class by its name.

    Raises: UnknownTarget.
    """
    found = next((target for target in TARGETS if target.name == name), None)
    if found is None:
        raise UnknownTarget(name=name, known=", ".join(TARGET_NAMES))
    return found


def check_target(target: Target, kernel: str, element: str) -> None:
    """Raise RefusedTarget where a class gets no such kernel for elements of a type."""
    if why := target.why_not(kernel, element):
        raise RefusedTarget(kernel=kernel, name=target.name, meaning=target.meaning, why=why)
