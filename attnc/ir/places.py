"""Where the values of a tiled program are: its axes, the grid, the call's tensors and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from sympy import Expr, Symbol

from attnc.source import Span

BLOCK_Q = Symbol("BLOCK_Q", integer=True, positive=True)  # query rows of a tile
BLOCK_KV = Symbol("BLOCK_KV", integer=True, positive=True)  # keys of a tile


@dataclass(frozen=True, slots=True)
class Node:
    """Base of all IR nodes."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Axis(Node):
    """A named axis, and the tile of it that a program instance holds.

    Position p of the tile stands at `index` = first + p on the whole axis, 0 <= p < tile; formulas
    call p `within`.  Positions with index >= size do not exist: loads and stores guard against
    them.
    """

    name: str  # q, k, d, e; after split_axis also d0, d1 ...
    role: str  # rows | columns | feature
    size: Expr
    tile: Expr  # BLOCK_Q, BLOCK_KV or an Integer (a power of two, at least 16)
    index: Symbol  # q_idx, kv_idx, d_idx ...
    first: Expr  # rows: q_first; columns: kv_first = tile number * BLOCK_KV; feature: an Integer
    piece: int = 128  # feature: the widest tile that split_axis may cut it into

    @property
    def within(self) -> Symbol:
        """The position within the tile: q_in_tile, kv_in_tile, d_in_tile ..."""
        stem = self.index.name.removesuffix("_idx")
        return Symbol(f"{stem}_in_tile", integer=True, nonnegative=True)


@dataclass(frozen=True, slots=True)
class GridDim(Node):
    """One digit of the linear program number, innermost first.

    turned: a schedule may count it down from the last.
    """

    index: Symbol
    extent: Expr
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Buffer(Node):
    """A tensor of the call, addressed by one index a dimension; strides are run-time values."""

    name: str
    dims: tuple[str, ...]  # names of its dimensions; strides are called {name}_stride_{dim}
    sizes: tuple[Expr, ...]
    dtype: str  # element | f32 | f16 | bf16 | i32 | i64 | i1   (element: that of q, k, v)
    role: str  # input | output
    meaning: str
    optional: bool = False  # a call may lack it; loads of it are guarded by symbols.switch_of
    finite: bool = False  # holds no infinity: what is read from it needs no anchor


@dataclass(frozen=True, slots=True)
class Scalar(Node):
    """A run-time number of the call, or a constant for which a kernel is compiled.

    sign: -1 or 1.  switch: the condition that an optional buffer is there.
    """

    name: str
    kind: str  # i32 | f32 | sign | switch
    meaning: str
