"""What an instruction of NVIDIA machine code costs: its pipe, and for how long.

A multiprocessor has four quarters, each with a scheduler that issues one warp's instruction a
cycle and with its own lanes; shared memory serves all four.  Cycles here are a quarter's, for one
warp of 32.  Latencies are those of microbenchmarks (Jia et al. 2018, arXiv:1804.06826; Luo et al.
2024, arXiv:2402.13499), rounded: the order of instructions is what they decide, not the total.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from attnc.devices import Device
from attnc.tune.occupancy import QUARTERS
from attnc.tune.sass import Instruction

MEMORY_LATENCY = 600  # cycles from an asynchronous copy to its arrival, out of L2 under load
L1_PER_CLOCK = 64  # bytes of a multiprocessor

_OPCODES = {
    "fp32": "FFMA FMUL FADD HFMA2 HADD2 HMUL2 FSWZADD HSETP2 FFMA2 FMUL2 FADD2",
    "integer fp32": "IMAD IDP",
    "alu": (
        "FMNMX FMNMX3 FSETP FSEL FSET ISETP IADD3 IADD LOP3 SHF SEL MOV PRMT LEA PLOP3 VOTE IABS "
        "IMNMX VIMNMX VIMNMX3 P2R R2P SGXT BMSK F2FP CS2R VIADD VIADDMNMX HMNMX2 FCHK POPC FLO LEPC"
    ),
    "exp": "MUFU F2I I2F F2F I2FP FRND F2IP",
    "matrix": "HMMA HGMMA QGMMA IMMA QMMA",
    "tensor memory": "LDTM STTM",
    "shared": "LDS STS LDSM STSM ATOMS LDGSTS SHFL",
    "memory": "LDG LD LDL STL STG ST RED ATOMG REDG",
}
_PIPE = {name: pipe for pipe, names in _OPCODES.items() for name in names.split()}
_LATENCY = {
    "fp32": 4, "alu": 5, "exp": 20, "matrix": 33, "uniform": 12, "shared": 24, "tensor memory": 30,
    "memory": 20, "other": 12,
}  # fmt: skip
_OWN_LATENCY = {"LDSM": 30, "STS": 15, "STSM": 15, "LDL": 35, "S2R": 30, "LDC": 30}
_DOUBLE = frozenset({"FFMA2", "FMUL2", "FADD2"})  # two results a lane
_LOADS = frozenset({"LDG", "LD", "LDGSTS"})
_WARP_SHAPES = {"16816": (16, 8, 16), "1688": (16, 8, 8), "1684": (16, 8, 4), "884": (8, 8, 4)}
_GROUP_SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)")
_COUNT_OF_MATRICES = re.compile(r"\.M\w*\.(\d)|\.(\d)$")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a warp's instruction costs in its quarter."""

    pipe: str  # tensor | exp | fp32 | alu | shared | memory | tensor memory | uniform | other
    cycles: float  # for which it holds the pipe
    latency: float  # until its result can be used
    flops: float = 0.0  # of a matrix product
    shared_bytes: float = 0.0


def cost_of(one: Instruction, device: Device) -> Cost:
    """Price one instruction."""
    opcode = one.opcode
    pipe = _PIPE.get(opcode, "uniform" if opcode.startswith("U") or opcode == "R2UR" else "other")
    latency = _OWN_LATENCY.get(opcode, _LATENCY.get(pipe, 12))
    sm = device.multiprocessor
    match pipe:
        case "matrix":
            return _matrix(one, device)
        case "fp32":
            return Cost("fp32", _cycles(sm.fp32_lanes) * (2 if opcode in _DOUBLE else 1), latency)
        case "integer fp32":  # one of the two halves of the fp32 lanes
            return Cost("fp32", max(2.0, _cycles(sm.fp32_lanes)), latency)
        case "alu":
            return Cost("alu", _cycles(sm.alu_lanes), latency)
        case "exp":
            return Cost("exp", _cycles(sm.exp_lanes), latency)
        case "shared":
            size = _shared_bytes(one)
            latency = MEMORY_LATENCY if opcode in _LOADS else latency
            cycles = max(1.0, size / (sm.shared_per_clock / QUARTERS))
            return Cost("shared", cycles, latency, shared_bytes=size)
        case "memory":
            latency = MEMORY_LATENCY if opcode in _LOADS else latency
            return Cost("memory", 32 * _width(one) / (L1_PER_CLOCK / QUARTERS), latency)
        case "tensor memory":
            found = re.search(r"\.x(\d+)", one.operation)
            return Cost(pipe, float(found[1]) if found else 1.0, latency)
        case "uniform":
            return Cost(pipe, 2.0, latency)
        case _:
            return Cost("other", 1.0, latency)


def busy_cycles(body: Sequence[Instruction], device: Device, warps: int) -> dict[str, float]:
    """Sum the cycles of a multiprocessor that one block's iteration keeps each pipe busy.

    No schedule is faster than the largest of them; `issue` is what the schedulers need.
    """
    each: defaultdict[str, float] = defaultdict(float)
    shared_bytes = 0.0
    for cost in (cost_of(one, device) for one in body):
        each["issue"] += 1
        shared_bytes += cost.shared_bytes
        if cost.pipe not in ("other", "shared"):
            each[cost.pipe] += cost.cycles
    busy = {pipe: cycles * warps / QUARTERS for pipe, cycles in each.items()}
    busy["shared"] = shared_bytes * warps / device.multiprocessor.shared_per_clock
    return busy


def flops_of(body: Sequence[Instruction], device: Device, warps: int) -> float:
    """Count the FLOPs of one iteration's matrix instructions, over all warps of a block."""
    return sum(cost_of(one, device).flops for one in body) * warps


def _cycles(lanes: int) -> float:
    return 32 / (lanes / QUARTERS)


def _matrix(one: Instruction, device: Device) -> Cost:
    """HMMA is a warp's own; HGMMA is shared by four, each in its quarter with a part of the rows.

    Narrow elements run at a higher rate, tf32 at half of it.  HGMMA reads its right operand from
    shared memory, and its left one where that is given by a descriptor.
    """
    if found := _GROUP_SHAPE.search(one.operation):
        m, n, k = map(int, found.groups())
        flops = 2 * m * n * k / QUARTERS
        width = 32 // k  # bytes of an element
        from_memory = one.text.split(",")[1].strip().startswith("gdesc")
        size = n * k * width + (m * k * width if from_memory else 0)
        rate = device.tensor_flops * 2 / width / QUARTERS
        cycles = max(flops / rate, size / device.multiprocessor.shared_per_clock)
        return Cost("tensor", cycles, 30, flops, size / QUARTERS)
    shape = re.search(r"\.(\d+)", one.operation)
    m, n, k = _WARP_SHAPES.get(shape[1] if shape else "", (16, 8, 16))
    rate = device.tensor_flops * device.multiprocessor.mma_share / QUARTERS
    rate /= 2 if "TF32" in one.operation else 1
    return Cost("tensor", 2 * m * n * k / rate, _LATENCY["matrix"], 2 * m * n * k)


def _shared_bytes(one: Instruction) -> float:
    """Bytes that a warp moves; a shuffle passes through shared memory's crossbar."""
    if one.opcode in ("LDSM", "STSM"):
        found = _COUNT_OF_MATRICES.search(one.operation)
        return 128 * int(next((text for text in found.groups() if text), 1)) if found else 128
    return 32 * (4 if one.opcode == "SHFL" else _width(one))


def _width(one: Instruction) -> int:
    """Bytes a lane moves."""
    parts = one.operation.split(".")
    for part, width in (("128", 16), ("64", 8), ("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2)):
        if part in parts:
            return width
    return 4
