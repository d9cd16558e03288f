"""Run passes in order: each fits the one before, each result is verified, one observer sees all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Protocol

from attnc.ir.nodes import Kernel, Level, Program
from attnc.ir.verifier import verify


class Pass(Protocol):
    """A rewrite that keeps what a kernel means."""

    name: ClassVar[str]
    needs: ClassVar[Level]
    leaves: ClassVar[Level]

    def run(self, kernel: Kernel) -> Kernel:
        """Return the rewritten kernel; with nothing to do, an equal one."""
        ...


Observer = Callable[[str, Program], None]


def ignore(name: str, program: Program) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes that fit end to end."""

    passes: tuple[Pass, ...]

    def __post_init__(self) -> None:
        for first, second in pairwise(self.passes):
            if first.leaves is not second.needs:
                raise ValueError(f"{second.name} cannot follow {first.name}")

    def run(self, program: Program, observe: Observer = ignore) -> Program:
        """Rewrite every kernel by every pass; `observe` sees the program after each."""
        observe("plan", program)
        for step in self.passes:
            kernels = tuple(step.run(kernel) for kernel in program.kernels)
            for kernel in kernels:
                verify(kernel, step.leaves)
            program = replace(program, kernels=kernels, level=step.leaves)
            observe(step.name, program)
        return program
