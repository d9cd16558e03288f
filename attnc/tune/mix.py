"""What a hot loop is made of, in words that hold for every instruction set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Every instruction falls into exactly one class; `other` keeps the sum whole.
CLASSES = (
    "mma",  # matrix products
    "exp2",
    "special",  # reciprocals, logarithms, sines, square roots
    "fma",  # multiply, add, multiply-add in floating point
    "max",
    "compare",
    "select",
    "convert",
    "integer",
    "shared load",
    "shared store",
    "global",  # loads and copies from global memory
    "tensor memory",
    "shuffle",  # between the lanes of a warp
    "barrier",
    "spill",
    "other",
)


@dataclass(frozen=True, slots=True)
class LoopMix:
    """One hot loop: its phase, and how many instructions of each class one iteration holds."""

    phase: str  # unmasked | masked | only
    counts: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """Instructions of one iteration."""
        return sum(count for _, count in self.counts)

    def count(self, name: str) -> int:
        """Instructions of one class; 0 where there are none."""
        return dict(self.counts).get(name, 0)


def name_loops(bodies: Sequence[Iterable[str]]) -> tuple[LoopMix, ...]:
    """Name the phases of a kernel's loops, given the class of every instruction.

    split_phases writes the unmasked loop before the masked one, and compilers keep the order.
    """
    phases = ("unmasked", "masked") if len(bodies) == 2 else ("only",) * len(bodies)
    return tuple(_mix(phase, body) for phase, body in zip(phases, bodies, strict=True))


def _mix(phase: str, body: Iterable[str]) -> LoopMix:
    counted = Counter(body)
    return LoopMix(phase, tuple((name, counted[name]) for name in CLASSES if counted[name]))
