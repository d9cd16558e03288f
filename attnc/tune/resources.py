"""What a schedule costs on a target, read from machine code; no GPU is needed.

Triton compiles what cannot run without a word: too much shared memory fails at launch, too much
tensor memory gives a kernel that does nothing.  So the limits are compared here.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from sys import intern
from types import ModuleType
from typing import Any

from attnc.runtime.loader import load_text
from attnc.targets import Target, check_target, find_target
from attnc.tune.amdgcn import Assembly, kind_of, parse_amdgcn
from attnc.tune.crosscompile import Launch, capture, compile_launch
from attnc.tune.mix import LoopMix, name_loops
from attnc.tune.operands import CHOICES, FIELDS, Operands, call_backward, call_launcher
from attnc.tune.sass import Instruction, MachineCode, read_cubin
from attnc.tune.ttir import masked_loads_without_other

FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class KernelResources:
    """One kernel, compiled for one target with one schedule."""

    kernel: str
    target: str
    element: str  # fp16 | bf16 | fp32
    schedule: tuple[tuple[str, int], ...]
    registers: int
    spills: int  # instructions (AMD: registers) that go to local memory
    shared_bytes: int
    shared_limit: int
    tensor_columns: int
    tensor_limit: int
    matrix_instructions: tuple[tuple[str, int], ...]
    loops: tuple[LoopMix, ...]
    is_loop: bool  # whether it was written with one
    findings: tuple[str, ...]  # masked loads without `other`
    instructions: int = 0
    bodies: tuple[tuple[Instruction, ...], ...] = ()  # of `loops`; the cost model plays them

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it cannot run there; empty when it fits."""
        found = []
        if self.shared_bytes > self.shared_limit:
            found.append(f"{self.shared_bytes} bytes of shared memory, limit {self.shared_limit}")
        if self.tensor_columns > self.tensor_limit:
            found.append(f"{self.tensor_columns} tensor-memory columns, limit {self.tensor_limit}")
        if self.is_loop and not self.loops:
            found.append("the compiled kernel is empty: no loop is in it")
        return tuple(found)

    @property
    def fits(self) -> bool:
        """Whether a block of it can run on the target."""
        return not self.problems

    @property
    def exp2_per_score(self) -> float:
        """Exponentials of the first loop's iteration, per score of its tile."""
        schedule, lanes = dict(self.schedule), find_target(self.target).warp_size
        scores = schedule["block_q"] * schedule["block_kv"]
        return (
            self.loops[0].count("exp2") * lanes * schedule["warps"] / scores if self.loops else 0.0
        )

    @property
    def text(self) -> str:
        """One line, and one more for each thing that is wrong."""
        loops = " + ".join(f"{loop.total} {loop.phase}" for loop in self.loops)
        matrix = ", ".join(f"{count} {name}" for name, count in self.matrix_instructions)
        head = (
            f"{self.target} {self.element} {schedule_text(dict(self.schedule))}: "
            f"{self.registers} registers, {self.spills} spills, "
            f"{self.shared_bytes} of {self.shared_limit} bytes shared, "
            f"{matrix or 'no matrix instructions'}, loop {loops or 'none'}"
        )
        return "\n".join([head, *(f"  {one}" for one in (*self.problems, *self.findings))])

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        plain = asdict(replace(self, bodies=())) | {
            "fits": self.fits,
            "problems": list(self.problems),
        }
        del plain["bodies"]
        plain["schedule"] = dict(self.schedule)
        plain["matrix_instructions"] = dict(self.matrix_instructions)
        plain["loops"] = [
            {"phase": one.phase, "total": one.total, **dict(one.counts)} for one in self.loops
        ]
        return plain


def report(
    source: str,
    operands: Operands,
    target: str,
    element: str,
    schedule: Mapping[str, int],
    stem: str = "kernel",
    kernel: str = FORWARD,
) -> tuple[KernelResources, ...]:
    """Compile a kernel of a generated module, as its launcher would launch it.

    source: the generated text.  element: fp16 | bf16 | fp32.  schedule: block_q, block_kv, warps,
    stages.  kernel: forward, or one of the backward.  Equal arguments are compiled once in a
    process.
    Raises: UnknownTarget, RefusedTarget.
    """
    fields = [(field, schedule[field]) for field in FIELDS]
    fields += [(field, True) for field in CHOICES if schedule.get(field)]
    found = find_target(target)
    check_target(found, kernel, element)
    return _report(source, operands, found, element, tuple(fields), stem, kernel)


def measure(
    launch: Launch, target: Target, element: str, fields: tuple[tuple[str, int], ...]
) -> KernelResources:
    """Compile one launch and read what it takes; fields: its schedule."""
    compiled = compile_launch(launch, target)
    blank = KernelResources(
        kernel=launch.name,
        target=target.name,
        element=element,
        schedule=fields,
        registers=0,
        spills=0,
        shared_bytes=compiled.metadata.shared,
        shared_limit=target.shared_bytes,
        tensor_columns=getattr(compiled.metadata, "tmem_size", 0) or 0,
        tensor_limit=target.tensor_columns,
        matrix_instructions=(),
        loops=(),
        is_loop="scf.for" in compiled.asm["ttir"],
        findings=tuple(masked_loads_without_other(compiled.asm["ttir"])),
    )
    if target.vendor == "amd":
        assembly = parse_amdgcn(compiled.asm["amdgcn"])
        loops = assembly.hot_loops()
        kinds = [[kind_of(opcode) for opcode in body] for body in loops]
        bodies = tuple(tuple(Instruction(intern(name), False) for name in body) for body in loops)
        blank = replace(blank, instructions=len(assembly.opcodes), bodies=bodies)
        return _with_code(blank, assembly, kinds)
    code = read_cubin(compiled.asm["cubin"])
    loops = code.hot_loops()
    bodies = tuple(tuple(one.brief() for one in body) for body in loops)
    blank = replace(blank, instructions=len(code.instructions), bodies=bodies)
    return _with_code(blank, code, [[one.kind for one in body] for body in loops])


def schedule_text(schedule: Mapping[str, int]) -> str:
    """Write a schedule as 128x64, 8 warps, 3 stages."""
    tile = f"{schedule['block_q']}x{schedule['block_kv']}"
    counts = ((schedule[what], what) for what in ("warps", "stages"))
    counted = (f"{n} {what if n > 1 else what[:-1]}" for n, what in counts)
    return ", ".join([tile, *counted, *(name for name in CHOICES if schedule.get(name))])


@functools.cache
def _report(
    source: str,
    operands: Operands,
    target: Target,
    element: str,
    fields: tuple[tuple[str, int], ...],
    stem: str,
    kernel: str,
) -> tuple[KernelResources, ...]:
    module = _module(source, stem)
    launches = capture(module, lambda: _call(module, operands, element, dict(fields), kernel))
    return tuple(
        measure(launch, target, element, fields) for launch in launches if launch.name == kernel
    )


def _call(
    module: ModuleType, operands: Operands, element: str, schedule: dict[str, int], kernel: str
) -> None:
    if kernel == FORWARD:
        call_launcher(module.launch_forward, operands, element, schedule)
    else:
        call_backward(module, operands, element, {kernel: schedule})


@functools.cache
def _module(source: str, stem: str) -> Any:
    return load_text(source, stem, interpret=False)


def _with_code(
    blank: KernelResources, code: Assembly | MachineCode, hot: list[list[str]]
) -> KernelResources:
    """What a kernel's code says; `hot`: the kinds of the instructions of its hot loops."""
    return replace(
        blank,
        registers=code.registers,
        spills=code.spills,
        matrix_instructions=_counted(code.matrix_instructions()),
        loops=name_loops(hot),
    )


def _counted(names: list[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(names).items()))
