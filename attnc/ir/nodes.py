"""A tiled program, read as a grammar.

    Program  = interface, Kernel*                     what a module offers, and its kernels
    Kernel   = Axis*, GridDim*, Buffer*, Scalar*, Stmt*
    Stmt     = Let | Loop | Start | Store
    Let      = name := Value                          bound once
    Loop     = axis, Piece*, Rounds?, Let*, Reduce*   NAIVE, STREAMED: reductions are declared
             | axis, Piece*, Rounds?, Let*, Update*, Ahead?
                                                      READY: what is carried is spelled out
    Rounds   = index, count, Let*                     a loop may walk its axis several times
    Value    = Load | Formula                         at every level
             | Contract                               NAIVE, STREAMED
             | Collapse                               STREAMED (a column test), READY
             | Dot | Pick | Fill                      READY

A value is a tile over named axes with a dtype; one without axes is a scalar of the program
instance.  Formulas are sympy over `attnc.symbols` (positions, lengths, params), over axis indices,
and over the names of values.  Names are matched by text, never by sympy assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sympy import Expr, Symbol, true
from sympy.logic.boolalg import Boolean

from attnc.ir.interface import Interface
from attnc.ir.places import BLOCK_KV as BLOCK_KV
from attnc.ir.places import BLOCK_Q as BLOCK_Q
from attnc.ir.places import Axis as Axis
from attnc.ir.places import Buffer as Buffer
from attnc.ir.places import GridDim as GridDim
from attnc.ir.places import Node as Node
from attnc.ir.places import Scalar as Scalar

STEP = Symbol("step", integer=True)  # of a loop that runs ahead: its number
FIRST_STEP = Symbol("first_step", integer=True)
END_STEP = Symbol("end_step", integer=True)  # one past the last


class Level(Enum):
    """How far a kernel has been lowered."""

    NAIVE = "naive"  # the textbook: a loop for each reduction
    STREAMED = "streamed"  # reductions that follow each other share a loop
    READY = "ready"  # carried values, selects and dots are spelled out


# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Load(Node):
    """The elements of a buffer at `index`, 0 where `guard` is false (those are not read at all).

    described: where a tensor descriptor can do it, the first row that it reads, and one past the
    last.  Rows are positions on the loop's axis; outside, and past the last feature, it gives 0.
    """

    buffer: str
    index: tuple[Expr, ...]
    guard: Boolean = true
    described: tuple[Expr, Expr] | None = None


@dataclass(frozen=True, slots=True)
class Formula(Node):
    """An elementwise formula over values, positions and scalars.

    Its integers are 32-bit, but for those that stand within ir.functions.Wide.
    """

    expr: Expr | Boolean


@dataclass(frozen=True, slots=True)
class Contract(Node):
    """sum over axes `over` of left * right, accumulated in float32."""

    left: str
    right: str
    over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dot(Node):
    """add_to + sum over `over` of left * right, in float32; left is rounded to right's dtype."""

    left: str
    right: str
    over: str
    add_to: str | None = None


@dataclass(frozen=True, slots=True)
class Collapse(Node):
    """The max, sum or `any` of a tile along one axis."""

    kind: str
    value: str
    over: str


@dataclass(frozen=True, slots=True)
class Pick(Node):
    """For each position p of `slot`, the element of a tile at position p along `over`.

    Positions are counted within the tile; 0 where p lies outside of it.
    """

    value: str
    over: str
    slot: str


@dataclass(frozen=True, slots=True)
class Fill(Node):
    """A tile of one number."""

    value: Expr


Value = Load | Formula | Contract | Dot | Collapse | Pick | Fill


# ---------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Let(Node):
    """name := value."""

    name: str
    value: Value
    axes: tuple[str, ...] = ()
    dtype: str = "f32"  # f32 | element | f16 | bf16 | i32 | i64 | i1
    note: str = ""  # a comment for the reader of the generated file


@dataclass(frozen=True, slots=True)
class Reduce(Node):
    """name := init joined with `element` over all positions of `over` where `where` holds.

    `follows` names a running maximum m in the same loop.  When m moves from m_old to m_new, what
    has been summed so far becomes `repair`, a formula over the reduction's own name, m_old and
    m_new (ir.functions).  A reduction with init None continues the one of the same name in the loop
    before.

    A sum whose axes hold `over` keeps it: position by position of the tile, whichever tile that is
    (`where` sees to it that only one counts), so that rounds alone are summed.  With `onto`, the
    result has one axis of its own, and a pair is added to the element at position `onto` of it.
    """

    name: str
    kind: str  # max | sum
    over: str
    element: Expr
    axes: tuple[str, ...]
    init: Expr | None
    where: Boolean = true
    follows: str | None = None
    repair: Expr | None = None
    note: str = ""  # where `where` comes from
    onto: Expr | None = None


@dataclass(frozen=True, slots=True)
class Piece(Node):
    """Tiles [start, stop) of an axis, none if start >= stop; masked: some pair may be hidden."""

    start: Expr
    stop: Expr
    masked: bool = True


@dataclass(frozen=True, slots=True)
class Update(Node):
    """After the loop's body the carried value `name` becomes `value`."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Rounds(Node):
    """Walk the tiles once for each index = 0 .. count - 1; `lets` are what each round begins with.

    What is reduced or carried starts before the first round and runs through all of them.  Joined
    rounds are counted by one loop together with their tiles: every round has the same ones, and
    begins with nothing but numbers.
    """

    index: Symbol
    count: Expr
    lets: tuple[Let, ...]
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Ahead(Node):
    """Where a schedule skews the loop, `lets` of its body are made during the step before theirs.

    The loop means what it means without.  Skewed, it runs from step `begin` to before `end`; its
    own steps are first_step .. end_step - 1.  A step makes the lets of step `following`, unless
    `exists` fails: then nothing is read for them.  The rest of its body takes from them `value`
    alone, as the step before made it; to the first step it is -inf.  The rest reads nothing unless
    `visits` holds.
    """

    lets: tuple[str, ...]
    value: str
    begin: Expr
    end: Expr
    following: Expr
    exists: Boolean
    visits: Boolean


@dataclass(frozen=True, slots=True)
class Loop(Node):
    """Visit the tiles of all pieces, in order, one at a time; pieces never overlap."""

    axis: str
    pieces: tuple[Piece, ...]
    body: tuple[Let, ...]
    reductions: tuple[Reduce, ...] = ()
    updates: tuple[Update, ...] = ()
    note: str = ""
    rounds: Rounds | None = None
    ahead: Ahead | None = None


@dataclass(frozen=True, slots=True)
class Start(Node):
    """A carried value's first content (READY)."""

    name: str
    value: Value
    axes: tuple[str, ...]
    dtype: str = "f32"


@dataclass(frozen=True, slots=True)
class Store(Node):
    """Write a value to buffer[index] where `guard` holds, rounded to the buffer's dtype."""

    buffer: str
    index: tuple[Expr, ...]
    value: str
    guard: Boolean = true


Stmt = Let | Loop | Start | Store


@dataclass(frozen=True, slots=True)
class Kernel(Node):
    """One launch: what it runs over, what it reads and writes, and its statements in order."""

    name: str
    axes: tuple[Axis, ...]
    grid: tuple[GridDim, ...]
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    body: tuple[Stmt, ...]

    def axis(self, name: str) -> Axis:
        """The axis of that name."""
        return next(axis for axis in self.axes if axis.name == name)

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)


@dataclass(frozen=True, slots=True)
class Program(Node):
    """What a module offers, and the kernels that compute it, all at one level."""

    interface: Interface
    kernels: tuple[Kernel, ...]
    level: Level = Level.NAIVE
