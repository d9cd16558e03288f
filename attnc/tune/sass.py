"""Read NVIDIA machine code: registers, spills and the hot loops of a cubin.

Triton's wheel ships `nvdisasm` and `cuobjdump`; no CUDA toolkit and no GPU is needed.  An
instruction is 128 bits; from bit 105 on stand the control codes with which ptxas tells the hardware
when it may issue: cycles to stall (4 bits), a hint (1), the barrier that its result sets (3), the
one that its reading sets (3), the barriers it waits for (6).  Source: Jia et al. 2018,
arXiv:1804.06826, section 2.1; unchanged up to sm_120.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern

_LABEL = re.compile(r"^(\.L_x?_?\d+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_UPPER_HALF = re.compile(r"^\s+/\* (0x[0-9a-f]{16}) \*/")
_CONTROL_BIT, _CONTROL_MASK = 41, 0x1FFFF  # in the upper half
_GUARD = re.compile(r"^@!?U?P[T\d]+\s+")
_TARGET = re.compile(r"`\((\.L_x?_?\d+)\)")
_PREDICATE = re.compile(r"\bU?P\d")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")

MATRIX = frozenset(
    "HMMA IMMA DMMA QMMA OMMA HGMMA IGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA".split()
)
_TELLING = frozenset("HGMMA QGMMA WARPGROUP DEPBAR".split())  # cost depends on the operands
_OPCODES = {
    "fma": "FFMA FMUL FADD FFMA2 FMUL2 FADD2 HFMA2 HADD2 HMUL2 DFMA DMUL DADD FSWZADD",
    "max": "FMNMX FMNMX3 HMNMX2 IMNMX VIMNMX VIMNMX3 VIADDMNMX UIMNMX UVIMNMX",
    "compare": "ISETP FSETP HSETP2 UISETP UFSETP DSETP PLOP3 UPLOP3",
    "select": "SEL FSEL USEL",
    "convert": "F2FP F2F F2I I2F I2FP FRND UF2FP UI2F PRMT UPRMT",
    "integer": (
        "IADD3 IADD IMAD LEA LOP3 SHF SHL SHR IABS MOV UMOV UIADD3 UIADD UIMAD ULEA ULOP3 USHF "
        "USGXT VIADD UVIADD BMSK SGXT LEPC R2UR S2UR S2R CS2R IDP P2R R2P LDC ULDC LDCU"
    ),
    "shared load": "LDS LDSM",
    "shared store": "STS STSM",
    "global": "LDG STG LDGSTS LD ST UTMALDG UTMASTG UBLKCP LDGDEPBAR UTMAPF UTMACMDFLUSH",
    "tensor memory": "LDTM STTM UTCCP UTCBAR UTCATOMSWS",
    "shuffle": "SHFL REDUX MOVM",
    "barrier": "BAR SYNCS DEPBAR WARPSYNC BSYNC BSSY WARPGROUP ARRIVES MEMBAR FENCE ELECT",
    "spill": "LDL STL",
}
_CLASS = {name: kind for kind, names in _OPCODES.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of SASS."""

    text: str  # without its guard
    guarded: bool
    control: int = 0x7E1  # its control codes; here: stall a cycle, set and wait for nothing

    @property
    def stall(self) -> int:
        """Cycles before the warp's next instruction, at least 1."""
        return max(1, self.control & 15)

    @property
    def sets(self) -> tuple[int, int]:
        """The barriers, 0 to 5, set by its result and by its having read; 7 for none."""
        return self.control >> 5 & 7, self.control >> 8 & 7

    @property
    def waits_for(self) -> tuple[int, ...]:
        """The barriers it waits for."""
        return tuple(number for number in range(6) if self.control >> 11 + number & 1)

    @property
    def conditional(self) -> bool:
        """Whether it may be skipped: a guard, or a branch on a predicate among its operands."""
        return self.guarded or (self.opcode == "BRA" and bool(_PREDICATE.search(self.text)))

    @property
    def operation(self) -> str:
        """The opcode with its modifiers: HMMA.16816.F32."""
        return self.text.split()[0]

    @property
    def opcode(self) -> str:
        """The opcode: HMMA."""
        return self.operation.split(".")[0]

    def brief(self) -> Instruction:
        """The same without operands that say nothing of its cost, so that many are small."""
        if self.opcode in _TELLING:
            return self
        return replace(self, text=intern(self.operation))

    @property
    def kind(self) -> str:
        """The class it falls into, a word of `mix.CLASSES`."""
        if self.opcode in MATRIX:
            return "mma"
        if self.opcode == "MUFU":
            return "exp2" if ".EX2" in self.operation else "special"
        return _CLASS.get(self.opcode, "other")


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The instructions of a kernel and what ptxas reserved for them."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    registers: int

    @property
    def spills(self) -> int:
        """Instructions that move registers to local memory or back."""
        return sum(one.kind == "spill" for one in self.instructions)

    def matrix_instructions(self) -> list[str]:
        """Every matrix instruction, with its shape."""
        return [one.operation for one in self.instructions if one.kind == "mma"]

    def hot_loops(self) -> list[list[Instruction]]:
        """Bodies of the innermost loops that hold a matrix product or an exponential, in order."""
        spans = [span for span in self._loops() if self._is_hot(*span)]
        inner = [span for span in spans if not any(_holds(span, other) for other in spans)]
        return [list(self.instructions[first : last + 1]) for first, last in inner]

    def _loops(self) -> Iterator[tuple[int, int]]:
        """Spans from a loop's head to the last jump back to it."""
        ends: dict[int, int] = {}
        for number in range(len(self.instructions)):
            head = self._jump(number)
            if head is not None and head <= number and not self._reached(number, avoiding=head):
                ends[head] = number
        yield from sorted(ends.items())

    def _reached(self, goal: int, avoiding: int) -> bool:
        """Whether a path from the entry to `goal` misses `avoiding`, which then is no loop's head.

        Slow paths (waits, long divisions) are moved out of line and jump back into the middle of a
        loop; those jumps are what this test tells from a loop's own.
        """
        seen, waiting = {avoiding}, [0]
        while waiting:
            number = waiting.pop()
            if number == goal:
                return True
            if number not in seen and number < len(self.instructions):
                seen.add(number)
                waiting += self._next(number)
        return False

    def _next(self, number: int) -> list[int]:
        one = self.instructions[number]
        jump = self._jump(number)
        after = [] if jump is None else [jump]
        if one.conditional or one.opcode not in ("BRA", "EXIT", "RET"):
            after.append(number + 1)
        return after

    def _jump(self, number: int) -> int | None:
        one = self.instructions[number]
        target = _TARGET.search(one.text) if one.opcode == "BRA" else None
        return self.labels.get(target[1]) if target else None

    def _is_hot(self, first: int, last: int) -> bool:
        return any(one.kind in ("mma", "exp2") for one in self.instructions[first : last + 1])


def read_cubin(cubin: bytes) -> MachineCode:
    """Disassemble a cubin.

    Raises: subprocess.CalledProcessError when it is none.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        listing = _run("nvdisasm", "-c", "-hex", str(path))
        usage = _run("cuobjdump", "-res-usage", str(path))
    found = _USAGE.search(usage)
    return parse_sass(listing, int(found[1]) if found else 0)


def parse_sass(listing: str, registers: int = 0) -> MachineCode:
    """Read the text that nvdisasm prints."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif found := _INSTRUCTION.match(line):
            text = _GUARD.sub("", found[1])
            instructions.append(Instruction(text, guarded=text != found[1]))
        elif instructions and (half := _UPPER_HALF.match(line)):
            control = int(half[1], 16) >> _CONTROL_BIT & _CONTROL_MASK
            instructions[-1] = replace(instructions[-1], control=control)
    return MachineCode(tuple(instructions), labels, registers)


def _holds(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer != inner and outer[0] <= inner[0] and inner[1] <= outer[1]


def _run(tool: str, *arguments: str) -> str:
    import triton

    path = Path(triton.__path__[0]) / "backends" / "nvidia" / "bin" / tool
    return subprocess.run(
        [str(path), *arguments], capture_output=True, text=True, check=True
    ).stdout
