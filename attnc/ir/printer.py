"""Print a program completely: equal text means equal programs (spans aside).

`attnc show` prints this; bug notes carry it; golden tests compare it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields
from functools import singledispatch
from itertools import zip_longest

from sympy import Expr, true
from sympy.logic.boolalg import Boolean

from attnc.ir.formula_text import formula_text
from attnc.ir.interface import Interface, ScheduleRow
from attnc.ir.nodes import (
    Ahead,
    Axis,
    Buffer,
    Collapse,
    Contract,
    Dot,
    Fill,
    Formula,
    GridDim,
    Kernel,
    Let,
    Load,
    Loop,
    Node,
    Pick,
    Piece,
    Program,
    Reduce,
    Rounds,
    Scalar,
    Start,
    Store,
    Update,
    Value,
)

_INDENT = "    "
_WIDEST = next(field.default for field in fields(Axis) if field.name == "piece")


def print_ir(node: Node) -> str:
    """Print a program, a kernel or any part of one."""
    return "\n".join(_lines(node))


def print_value(value: Value) -> str:
    """Print the right-hand side of a Let."""
    match value:
        case Load(buffer, index, guard, described):
            rows = " to ".join(map(formula_text, described or ()))
            rows = f", described from {rows}" if described else ""
            return f"load {buffer}{_index(index)}{_guard(guard)}{rows}"
        case Formula(expr):
            return formula_text(expr)
        case Contract(left, right, over):
            return f"contract {left} * {right} over {', '.join(over) or 'nothing'}"
        case Dot(left, right, over, add_to):
            return f"dot {left} * {right} over {over}" + (f" added to {add_to}" if add_to else "")
        case Collapse(kind, name, over):
            return f"{kind} of {name} along {over}"
        case Pick(name, over, slot):
            return f"pick {name} along {over} at {slot}"
        case Fill(number):
            return f"fill {formula_text(number)}"


def _shape(axes: tuple[str, ...]) -> str:
    return f"[{', '.join(axes)}]"


def _index(index: tuple[Expr, ...]) -> str:
    return f"[{', '.join(formula_text(i) for i in index)}]"


def _guard(guard: Boolean) -> str:
    return "" if guard == true else f" where {formula_text(guard)}"


def _remark(text: str) -> str:
    return f"  # {text!r}" if text else ""


def _nested(nodes: tuple[Node, ...]) -> Iterator[str]:
    for node in nodes:
        yield from (_INDENT + line for line in _lines(node))


@singledispatch
def _lines(node: Node) -> Iterator[str]:
    raise TypeError(f"no printer for {type(node).__name__}")


@_lines.register
def _program(node: Program) -> Iterator[str]:
    yield f"program {node.interface.name}, {node.level.value}"
    yield from (_INDENT + line for line in interface_lines(node.interface))
    for kernel in node.kernels:
        yield ""
        yield from _lines(kernel)


@_lines.register
def _kernel(node: Kernel) -> Iterator[str]:
    yield f"kernel {node.name}"
    for part in (node.grid, node.axes, node.scalars, node.buffers):
        yield from _nested(part)
    yield f"{_INDENT}body"
    yield from (_INDENT + line for line in _nested(node.body))


@_lines.register
def _axis(node: Axis) -> Iterator[str]:
    cut = node.role == "feature" or node.piece != _WIDEST  # only features are ever cut
    yield (
        f"axis {node.name}: {node.role}, size {formula_text(node.size)}, "
        f"tile {formula_text(node.tile)}, {node.index} from {formula_text(node.first)}"
        + (f", pieces up to {node.piece}" if cut else "")
    )


@_lines.register
def _grid_dim(node: GridDim) -> Iterator[str]:
    yield f"grid {node.index} < {formula_text(node.extent)}" + (", or counted down" * node.turned)


@_lines.register
def _buffer(node: Buffer) -> Iterator[str]:
    # a broken program must print as well: it is what a bug note shows
    pairs = zip_longest(node.dims, map(formula_text, node.sizes), fillvalue="?")
    sizes = ", ".join(f"{dim}: {size}" for dim, size in pairs)
    words = (("optional", node.optional), ("finite", node.finite), (node.role, True))
    role = " ".join(word for word, holds in words if holds)
    yield f"{role} {node.name}[{sizes}] {node.dtype}{_remark(node.meaning)}"


@_lines.register
def _scalar(node: Scalar) -> Iterator[str]:
    yield f"scalar {node.name} {node.kind}{_remark(node.meaning)}"


@_lines.register
def _let(node: Let) -> Iterator[str]:
    head = f"{node.name}{_shape(node.axes)} {node.dtype}"
    yield f"{head} := {print_value(node.value)}{_remark(node.note)}"


@_lines.register
def _start(node: Start) -> Iterator[str]:
    yield f"start {node.name}{_shape(node.axes)} {node.dtype} := {print_value(node.value)}"


@_lines.register
def _store(node: Store) -> Iterator[str]:
    yield f"store {node.buffer}{_index(node.index)} := {node.value}{_guard(node.guard)}"


@_lines.register
def _loop(node: Loop) -> Iterator[str]:
    yield f"loop {node.axis}{_remark(node.note)}"
    rounds = () if node.rounds is None else (node.rounds,)
    ahead = () if node.ahead is None else (node.ahead,)
    for part in (rounds, node.pieces, node.body, node.reductions, node.updates, ahead):
        yield from _nested(part)


@_lines.register
def _rounds(node: Rounds) -> Iterator[str]:
    joined = ", joined" if node.joined else ""
    yield f"rounds {node.index} < {formula_text(node.count)}{joined}"
    yield from _nested(node.lets)


@_lines.register
def _ahead(node: Ahead) -> Iterator[str]:
    yield f"skewed, steps from {formula_text(node.begin)} to {formula_text(node.end)}"
    yield (
        f"{_INDENT}makes {', '.join(node.lets)} of step {formula_text(node.following)}"
        f"{_guard(node.exists)}"
    )
    yield f"{_INDENT}takes {node.value} of the step before, -inf at first"
    yield f"{_INDENT}reads for itself{_guard(node.visits)}"


@_lines.register
def _piece(node: Piece) -> Iterator[str]:
    kind = "masked" if node.masked else "unmasked"
    yield f"tiles from {formula_text(node.start)} to {formula_text(node.stop)}, {kind}"


@_lines.register
def _reduce(node: Reduce) -> Iterator[str]:
    init = "continued" if node.init is None else f"from {formula_text(node.init)}"
    text = (
        f"{node.kind} over {node.over} of {formula_text(node.element)}{_guard(node.where)} {init}"
    )
    if node.onto is not None:
        text += f" onto {formula_text(node.onto)}"
    if node.follows is not None:
        text += f" following {node.follows}"
    if node.repair is not None:
        text += f" repaired by {formula_text(node.repair)}"
    yield f"reduce {node.name}{_shape(node.axes)} := {text}{_remark(node.note)}"


@_lines.register
def _update(node: Update) -> Iterator[str]:
    yield f"update {node.name} := {node.value}"


def interface_lines(interface: Interface) -> Iterator[str]:
    """Print every field of an interface, the spec's text by its hash."""
    for field in fields(interface):
        value = getattr(interface, field.name)
        if field.name == "spec_text":
            yield f"spec_text sha256 {hashlib.sha256(value.encode()).hexdigest()}"
        elif field.name in ("scale", "score", "mask"):
            yield f"{field.name} {formula_text(value)}"
        elif field.name in ("schedules", "params", "tensors"):
            listed = (entry for entry in value if getattr(entry, "is_listed", True))
            yield from (f"{field.name.removesuffix('s')} {_entry(entry)}" for entry in listed)
        else:
            yield f"{field.name} {value!r}"


def _entry(entry: object) -> str:
    if isinstance(entry, ScheduleRow):
        tile = entry.schedule
        return (
            f"{entry.device} {entry.element_bytes} bytes: block_q {tile.block_q}, "
            f"block_kv {tile.block_kv}, warps {tile.warps}, stages {tile.stages}"
            + (", skew" if tile.skew else "")
            + (", tma" if tile.tma else "")
            + (", last_first" if tile.last_first else "")
        )
    return repr(entry)
