"""How a loop counts its tiles: several ranges run as one, and rounds too where they are joined."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy
from sympy import Basic, Expr, Integer

from attnc.codegen.lines import Line, renamed
from attnc.codegen.triton_text import TritonText
from attnc.ir.nodes import END_STEP, FIRST_STEP, STEP, Loop, Piece, Rounds
from attnc.symbols import replaced, value_symbol


@dataclass(frozen=True, slots=True)
class Steps:
    """How a loop that may be skewed numbers its steps."""

    index: str  # tile, or step where it is mapped to a tile
    start: Expr
    stop: Expr
    hop: tuple[Line, ...]
    printer: TritonText

    def text(self, formula: Basic) -> str:
        """A formula over the numbers of steps."""
        index = value_symbol(self.index, "i32")
        known: dict[Basic, Basic] = {STEP: index, FIRST_STEP: self.start, END_STEP: self.stop}
        return self.printer.over(replaced(formula, known), ())

    def tile_of(self, step: Expr) -> tuple[Line, ...]:
        """Say which tile is that of another step, by the name `ahead`."""
        if not self.hop:
            return (Line("line", f"ahead = {self.text(step)}"),)
        names = {"step": "step_ahead", "tile": "ahead"}
        moved = (replace(line, text=renamed(line.text, names)) for line in self.hop)
        return (Line("line", f"step_ahead = {self.text(step)}"), *moved)


@dataclass(frozen=True, slots=True)
class Counting:
    """Lines before the loop, its head, the first lines of its body.

    turn: in a loop that is joined with its rounds, the lines that say which tile of which round.
    """

    before: tuple[Line, ...]
    head: str
    hop: tuple[Line, ...]
    turn: tuple[Line, ...] = ()
    steps: Steps | None = None


@dataclass(frozen=True, slots=True)
class _Count:
    """`index` runs from start to stop."""

    before: tuple[Line, ...]
    index: str
    start: str
    stop: str
    hop: tuple[Line, ...] = ()


def count_tiles(loop: Loop, text: TritonText) -> Counting:
    """Say how a loop counts."""
    count = _one(loop.pieces[0], text) if len(loop.pieces) == 1 else _several(loop.pieces, text)
    if loop.rounds is not None and loop.rounds.joined:
        return _joined(count, loop.rounds, text)
    if loop.ahead is not None:
        steps = _steps(loop.pieces, count, text)
        start = f"{steps.text(loop.ahead.begin)} if SKEW else {count.start}"
        stop = f"{steps.text(loop.ahead.end)} if SKEW else {count.stop}"
        return Counting(count.before, _head(count.index, start, stop), count.hop, steps=steps)
    return Counting(count.before, _head(count.index, count.start, count.stop), count.hop)


def _steps(pieces: tuple[Piece, ...], count: _Count, text: TritonText) -> Steps:
    start, stop = pieces[0].start, pieces[0].stop
    if len(pieces) > 1:
        start, stop = Integer(0), value_symbol(count.stop, "i32")
    return Steps(count.index, start, stop, count.hop, text)


def _one(piece: Piece, text: TritonText) -> _Count:
    return _Count((), "tile", text.over(piece.start, ()), text.over(piece.stop, ()))


def _several(pieces: tuple[Piece, ...], text: TritonText) -> _Count:
    """A step is mapped to the tile of its piece."""
    setup: list[Line] = []
    total: Expr = Integer(0)
    tiles: list[tuple[str, str]] = []
    step = value_symbol("step", "i32")
    for i, piece in enumerate(pieces):
        tiles.append((_counter(step + piece.start - total, text), f"steps_{i + 1}"))
        length = sympy.Max(piece.stop - piece.start, 0, evaluate=False)
        setup.append(Line("line", f"steps_{i + 1} = {_counter(total + length, text)}"))
        total = value_symbol(f"steps_{i + 1}", "i32")
    tile = tiles[-1][0]
    for one, end in reversed(tiles[:-1]):
        rest = f"({tile})" if " if " in tile else tile
        tile = f"{one} if step < {end} else {rest}"
    return _Count(tuple(setup), "step", "0", tiles[-1][1], (Line("line", f"tile = {tile}"),))


def _joined(count: _Count, rounds: Rounds, text: TritonText) -> Counting:
    """Every round takes as many steps as the first."""
    before, steps, own = count.before, count.stop, ""
    if count.start != "0" or not steps.isidentifier():
        steps, own = "steps", f"{_operand(count.start)} + "
        line = Line("line", f"steps = {_operand(count.stop)} - {_operand(count.start)}")
        before = (*before, line)
    turn = (
        Line("line", f"{count.index} = {own}turn % {steps}"),
        Line("line", f"{rounds.index} = turn // {steps}"),
    )
    head = _head("turn", "0", f"{text.over(rounds.count, ())} * {steps}")
    return Counting(before, head, count.hop, turn)


def _operand(text: str) -> str:
    return text if text.isidentifier() or text.isdecimal() else f"({text})"


def _head(index: str, start: str, stop: str) -> str:
    return f"for {index} in range({start}, {stop}):"


def _counter(formula: Expr, text: TritonText) -> str:
    """A number of tiles, 32-bit as every loop variable: `tile` is one name in all loops."""
    shown = text.over(formula, ())
    return f"tl.cast({shown}, tl.int32)" if text.is_long(formula) else shown
