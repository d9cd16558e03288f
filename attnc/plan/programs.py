"""Which programs a kernel has, and what each of them goes through in rounds.

A result owns its grid: a program for each tile of the axes that it has, for each of its heads and
batch entries.  What it is summed over and does not walk in tiles, a program goes through in rounds:
the query heads of a group, all heads, the batch, and, by distance, the tiles of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr, Integer, Mul, Symbol

from attnc import symbols
from attnc.ir.nodes import BLOCK_KV, BLOCK_Q, Formula, GridDim, Let, Rounds
from attnc.plan.buffers import BATCH, DISTANCES, HEADS, KV_HEADS, N_BLOCK, N_FIRST
from attnc.symbols import FloorDiv, FloorMod

Q_BLOCK, Q_FIRST, KV_BLOCK, KV_FIRST, OWN_FIRST, MEMBER, TURN = (
    Symbol(name, integer=True, nonnegative=True)
    for name in ("q_block", "q_first", "kv_block", "kv_first", "own_first", "member", "turn")
)
LENGTHS: dict[str, tuple[Symbol, Expr, Expr]] = {  # axis: number of a tile, size, tile
    "q": (Q_BLOCK, symbols.q_len, BLOCK_Q),
    "k": (KV_BLOCK, symbols.kv_len, BLOCK_KV),
    "n": (N_BLOCK, DISTANCES, BLOCK_KV),
}
SHARING = "every query head that shares these keys"


@dataclass(frozen=True, slots=True)
class Programs:
    """What a program is, for a kernel whose results own the axes `grid`.

    held: the axis whose tile it holds while it walks the other one of q and k.
    """

    grid: tuple[str, ...]
    group: int  # query heads that share a key/value head

    @property
    def held(self) -> str:
        """The axis of the tile's rows."""
        return "k" if "k" in self.grid and "q" not in self.grid else "q"

    @property
    def walked(self) -> str:
        """The axis whose tiles the loops walk."""
        return "q" if self.held == "k" else "k"

    @property
    def is_by_pairs(self) -> bool:
        """Whether a program owns one tile of the walked axis too."""
        return self.walked in self.grid

    @property
    def is_by_distance(self) -> bool:
        """Whether a program owns a band of distances."""
        return "n" in self.grid

    def dims(self) -> tuple[GridDim, ...]:
        """The digits of a program's number, innermost first."""
        tiles = [GridDim(LENGTHS[axis][0], _tiles(axis)) for axis in "qkn" if axis in self.grid]
        if "r" in self.grid:
            tiles.append(GridDim(symbols.h, HEADS))
        elif "g" in self.grid:
            tiles.append(GridDim(symbols.h_kv, KV_HEADS))
        return (*tiles, *((GridDim(symbols.b, BATCH),) if "b" in self.grid else ()))

    def places(self) -> list[Let]:
        """Where the program's own tiles stand, and which heads belong together."""
        made: list[Let] = []
        if "r" in self.grid:
            made.append(self._shared_head())
        elif "g" in self.grid and self.group == 1:
            made.append(Let("h", Formula(symbols.h_kv), dtype="i32"))
        if self.held in self.grid:
            made.append(_first(self.held))
        if self.is_by_pairs:
            made.append(Let(str(OWN_FIRST), Formula(_start(self.walked)), dtype="i32"))
        if self.is_by_distance:
            made.append(Let(str(N_FIRST), Formula(_start("n")), dtype="i32"))
        return made

    def rounds(self) -> Rounds | None:
        """What a program goes through, and what each round begins with."""
        digits = self._digits()
        if not digits:
            return None
        if len(digits) == 1:
            ((index, count),) = digits
            return Rounds(index, count, self._turn())
        rest: Expr = TURN
        lets: list[Let] = []
        for index, count in digits[:-1]:
            lets.append(Let(str(index), Formula(FloorMod(rest, count)), dtype="i32"))
            rest = FloorDiv(rest, count)
        lets.append(Let(str(digits[-1][0]), Formula(rest), dtype="i32"))
        count = Mul(*(count for _, count in digits))
        return Rounds(TURN, count, (*lets, *self._turn()))

    def _digits(self) -> list[tuple[Symbol, Expr]]:
        digits: list[tuple[Symbol, Expr]] = []
        if self.held not in self.grid:
            digits.append((LENGTHS[self.held][0], _tiles(self.held)))
        if "g" not in self.grid:
            digits.append((symbols.h, HEADS))
        elif "r" not in self.grid and self.group > 1:
            digits.append((MEMBER, Integer(self.group)))
        if "b" not in self.grid:
            digits.append((symbols.b, BATCH))
        return digits

    def _turn(self) -> tuple[Let, ...]:
        """What follows from the digits of a round."""
        made: list[Let] = []
        if "g" not in self.grid:
            made.append(self._shared_head())
        elif "r" not in self.grid and self.group > 1:
            head = Formula(symbols.h_kv * self.group + MEMBER)
            made.append(Let("h", head, dtype="i32", note=SHARING))
        if self.held not in self.grid:
            made.append(_first(self.held))
        return tuple(made)

    def _shared_head(self) -> Let:
        shared = FloorDiv(symbols.h, self.group)
        return Let("h_kv", Formula(shared), dtype="i32", note="the head that its group shares")


def _tiles(axis: str) -> Expr:
    _, size, tile = LENGTHS[axis]
    return FloorDiv(size + tile - 1, tile)


def _start(axis: str) -> Expr:
    block, _, tile = LENGTHS[axis]
    return block * tile


def _first(axis: str) -> Let:
    name = Q_FIRST if axis == "q" else KV_FIRST
    return Let(str(name), Formula(_start(axis)), dtype="i32")
