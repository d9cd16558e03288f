"""What a kernel asks of a device, and what a thread of each kind of device can hold."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.targets import Target

WIDEST_PIECE = 128
NARROWEST_PIECE = 16
SLACK = 1536  # bytes for barriers and for reductions across warps
UNROLLED = 512  # multiply-adds of one thread and tile
SPLIT_UNROLLED = 1024  # the same for tf32x3 on mma, whose three products keep all fragments alive

# Products without a matrix unit.
UNROLLED_LADDER = ((64, 32, 8), (32, 32, 8), (32, 16, 8), (16, 16, 4), (16, 16, 8))


@dataclass(frozen=True, slots=True)
class Budget:
    """How many 32-bit values a thread may hold before it spills, and what counts for how much."""

    values: int
    piece: int  # the addresses of one more piece of a head dim
    score_tensor: float  # a value loaded for each score, with its address


BUDGETS = {
    "mma": Budget(128, 8, 1),
    "wgmma": Budget(176, 0, 3),
    "tcgen05": Budget(176, 0, 3),
    "mfma": Budget(152, 0, 2),
}


@dataclass(frozen=True, slots=True)
class Demand:
    """What a kernel asks of a device.

    score_bytes: bytes that tensors with both a row and a column in their index bring in per score.
    """

    head_dim_qk: int
    head_dim_v: int
    element_bytes: int
    score_bytes: int = 0
    unrolled: bool = False  # products without a matrix unit
    split: bool = False  # tf32x3: every operand stands in shared memory twice, as head and tail

    @property
    def qk(self) -> tuple[int, ...]:
        """Widths of the pieces of the query and key head dim."""
        return pieces(self.head_dim_qk)

    @property
    def v(self) -> tuple[int, ...]:
        """Widths of the pieces of the value head dim."""
        return pieces(self.head_dim_v)


def pieces(size: int) -> tuple[int, ...]:
    """Cut a head dim into powers of two, 16 to 128, widest first; only the last may be padded."""
    widths, left = [], -(-size // NARROWEST_PIECE) * NARROWEST_PIECE
    while left > 0:
        widths.append(min(WIDEST_PIECE, 1 << (left.bit_length() - 1)))
        left -= widths[-1]
    return tuple(widths)


def is_bound_by_unrolling(target: Target, demand: Demand) -> bool:
    """Whether products take no matrix unit there."""
    return demand.unrolled or (demand.split and target.matrix_unit == "mma")
