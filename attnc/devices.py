"""The GPUs people name (h200, a100, rtx4090 ...), and the rates a cost model needs of each.

A device is so many multiprocessors of a class, a clock and a memory; MULTIPROCESSORS has what all
chips of a class share.  Nothing here imports torch or triton.

Sources.  Limits of a multiprocessor and results per clock (exp: "32-bit floating-point reciprocal,
base-2 exponential ..."; ALU: "compare, minimum, maximum"; shared memory: 32 banks of 4 bytes): CUDA
C++ programming guide, "Compute Capabilities" and "Arithmetic Instructions".  mma_share is an
estimate: people report half to two thirds.  AMD: rocm.docs.amd.com, "AMD GPU specifications" (LDS,
vector registers of a compute unit); lanes and waves (8 a SIMD): CDNA 3 white paper and LLVM.
Each device's `source` says the rest.  The clock is the one that gives the data sheet's tensor peak.
A bandwidth of L2 is an estimate of what kernels draw; only the order of magnitude is to be trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from attnc.errors import UserError
from attnc.targets import KIB


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What chips of a class share (AMD: of a compute unit); lanes are results a clock."""

    exp_lanes: int
    fp32_lanes: int
    alu_lanes: int  # maximum, compare, select, convert, integer
    max_warps: int
    max_blocks: int
    shared_bytes: int
    shared_reserved: int = KIB  # of it, for each block
    shared_per_clock: int = 128
    registers: int = 65536  # 32-bit
    mma_share: float = 1.0  # of the tensor peak, where mma.sync is not the unit's own instruction


# exp, fp32, alu; warps, blocks, shared memory
MULTIPROCESSORS: dict[str, Multiprocessor] = {
    "sm_75": Multiprocessor(16, 64, 64, 32, 16, 64 * KIB, shared_reserved=0),
    "sm_80": Multiprocessor(16, 64, 64, 64, 32, 164 * KIB),
    "sm_86": Multiprocessor(16, 128, 64, 48, 16, 100 * KIB),
    "sm_89": Multiprocessor(16, 128, 64, 48, 24, 100 * KIB),
    "sm_90": Multiprocessor(16, 128, 64, 64, 32, 228 * KIB, mma_share=0.62),
    "sm_100": Multiprocessor(16, 128, 64, 64, 32, 228 * KIB, mma_share=0.25),
    "sm_120": Multiprocessor(16, 128, 64, 48, 24, 100 * KIB),
    "gfx942": Multiprocessor(16, 128, 64, 32, 32, 64 * KIB, 0, registers=131072),
    "gfx950": Multiprocessor(16, 128, 64, 32, 32, 160 * KIB, 0, registers=131072),
}


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as people say it."""

    name: str
    meaning: str
    target: str  # its class, in targets.py
    multiprocessors: int
    clock_ghz: float
    tensor_flops: int  # of a multiprocessor a clock: dense fp16 with float32 sums
    memory_gbs: int
    l2_gbs: int
    l2_mb: int
    source: str

    @property
    def multiprocessor(self) -> Multiprocessor:
        """What one of them can do."""
        return MULTIPROCESSORS[self.target]

    @property
    def vendor(self) -> str:
        """Whose it is: nvidia or amd."""
        return "nvidia" if self.target.startswith("sm_") else "amd"

    @property
    def l2_per_clock(self) -> float:
        """Bytes that a multiprocessor draws from L2 in a clock, while all of them do."""
        return self.l2_gbs / self.clock_ghz / self.multiprocessors

    @property
    def tensor_tflops(self) -> float:
        """Peak of dense fp16 products."""
        return self.multiprocessors * self.tensor_flops * self.clock_ghz / 1000


# A class's name (sm_90) stands for the first of its devices.
DEVICES: tuple[Device, ...] = (
    Device("t4", "T4", "sm_75", 40, 1.59, 1024, 320, 1270, 4,
           "data sheet: 65 TFLOP/s, 320 GB/s; L2 rate an estimate, 20 bytes a clock for each SM"),
    Device("a100", "A100 SXM, 80 GB", "sm_80", 108, 1.41, 2048, 2039, 5000, 40,
           "data sheet: 312 TFLOP/s, 2039 GB/s; L2 rate an estimate, 0.7 of a peak of 7219 GB/s"),
    Device("a10", "A10", "sm_86", 72, 1.695, 1024, 600, 2400, 6,
           "data sheet: 125 TFLOP/s, 600 GB/s; L2 rate an estimate, 20 bytes a clock for each SM"),
    Device("a40", "A40", "sm_86", 84, 1.74, 1024, 696, 2900, 6,
           "data sheet: 149.7 TFLOP/s, 696 GB/s; L2 rate an estimate, as of A10"),
    Device("rtx3090", "GeForce RTX 3090", "sm_86", 82, 1.695, 512, 936, 2800, 6,
           "GA102 white paper: 71 TFLOP/s with float32 sums, 936 GB/s; L2 as of A10"),
    Device("l4", "L4", "sm_89", 58, 2.04, 1024, 300, 1900, 48,
           "data sheet: 121 TFLOP/s, 300 GB/s; L2 rate an estimate, 16 bytes a clock for each SM"),
    Device("l40s", "L40S", "sm_89", 142, 2.49, 1024, 864, 5700, 96,
           "data sheet: 362 TFLOP/s, 864 GB/s; L2 rate an estimate, as of L4"),
    Device("rtx4090", "GeForce RTX 4090", "sm_89", 128, 2.52, 512, 1008, 5000, 72,
           "Ada white paper: 165.2 TFLOP/s with float32 sums, 1008 GB/s; L2 rate an estimate"),
    Device("h100", "H100 SXM, 80 GB", "sm_90", 132, 1.83, 4096, 3350, 5500, 50,
           "data sheet: 989 TFLOP/s, 3.35 TB/s; L2 rate an estimate"),
    Device("h100_pcie", "H100 PCIe", "sm_90", 114, 1.62, 4096, 2039, 4800, 50,
           "data sheet: 756 TFLOP/s, 2 TB/s (5120 bits at 1593 MHz); L2 rate an estimate"),
    Device("h200", "H200 SXM", "sm_90", 132, 1.83, 4096, 4800, 5500, 50,
           "data sheet: 989 TFLOP/s, 4.8 TB/s; L2 rate an estimate, as of H100"),
    Device("b200", "B200 SXM", "sm_100", 148, 1.856, 8192, 8000, 10000, 126,
           "data sheet: 2.25 PFLOP/s, 8 TB/s; size and rate of L2 are estimates"),
    Device("rtx5090", "GeForce RTX 5090", "sm_120", 170, 2.407, 512, 1792, 8000, 96,
           "data sheet: 838 sparse TFLOP/s, 1792 GB/s; a quarter for dense products with float32 "
           "sums is an estimate after Ada; L2 rate an estimate"),
    Device("mi300x", "Instinct MI300X", "gfx942", 304, 2.1, 2048, 5300, 17200, 32,
           "data sheet: 1307 TFLOP/s, 5.3 TB/s; L2 rate an estimate, the Infinity Cache's 17 TB/s"),
    Device("mi325x", "Instinct MI325X", "gfx942", 304, 2.1, 2048, 6000, 17200, 32,
           "data sheet: 1307 TFLOP/s, 6 TB/s; L2 rate an estimate, as of MI300X"),
    Device("mi355x", "Instinct MI355X", "gfx950", 256, 2.4, 4096, 8000, 17200, 32,
           "data sheet: 2.5 PFLOP/s, 8 TB/s; L2 rate an estimate, as of MI300X"),
)  # fmt: skip


class UnknownDevice(UserError):
    """Report a GPU attnc does not know."""

    code = "user/unknown-device"
    message = "no device is called {name!r}"
    help = "{near}known devices: {known}"


def find_device(name: str) -> Device:
    """Find a GPU by its name, or the first of a class by the class's; case and dashes are free.

    Raises: UnknownDevice, with names that look alike.
    """
    wanted = name.strip().lower().replace("-", "_").replace(" ", "_")
    found = next((one for one in DEVICES if wanted in (one.name, one.target)), None)
    if found is None:
        names = [one.name for one in DEVICES]
        close = get_close_matches(wanted, [*names, *MULTIPROCESSORS])
        near = f"did you mean {' or '.join(close)}? " if close else ""
        raise UnknownDevice(name=name, near=near, known=", ".join(names))
    return found
