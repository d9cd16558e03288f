"""Run a tiled program on numpy, program instance by program instance, at any level.

What NAIVE and STREAMED programs leave implicit, and what it means here:
* a position of an axis with index >= size does not exist, so it joins no Reduce;
* inside a loop a running maximum of -inf counts as 0 (the row is empty so far), so that no
  formula takes the difference of two infinities; outside of loops it is -inf;
* a sum that `follows` a maximum keeps its value while the maximum stays, and is 0 while that is
  -inf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
import sympy
from sympy import Symbol

from attnc.ir.nodes import Axis, Kernel, Let, Loop, Program, Reduce, Start, Stmt, Store
from attnc.verify.evaluation import Array, Environment, evaluate
from attnc.verify.skewed_walk import SkewedWalk
from attnc.verify.tiles import OutOfBounds, Tiles, collapse, names_read

__all__ = ["OutOfBounds", "Visit", "run"]


KINDS = ((bool, np.bool_), (int | np.integer, np.int64), (float, np.float64))


@dataclass(frozen=True, slots=True)
class Visit:
    """One tile that one program instance visited."""

    kernel: str
    instance: tuple[int, ...]  # values of the grid's indices, innermost first
    loop: int  # number of the loop in the kernel's body
    piece: int
    tile: int
    masked: bool


# a NaN of its own bits: what is computed has others
UNWRITTEN = np.array(0x7FF8_0000_0000_5A5A, np.uint64).view(np.float64)[()]


def zeros_where_unwritten(found: np.ndarray) -> np.ndarray:
    """What a launcher hands to kernels that add to zeros: what they do not store is 0."""
    bits = np.ascontiguousarray(found).view(np.uint64)
    return np.where(bits == UNWRITTEN.view(np.uint64), 0.0, found)


def run(
    program: Program,
    inputs: Mapping[str, np.ndarray],
    scalars: Mapping[str, int | float] | None = None,
    schedule: tuple[int, int] = (16, 16),
    visits: list[Visit] | None = None,
    skew: bool = False,
) -> dict[str, np.ndarray]:
    """Run a program in float64; buffers have their dimensions in the order of `Buffer.dims`.

    `scalars`: params and other run-time numbers; lengths and head counts follow from the shapes
    of the inputs.  `schedule`: (BLOCK_Q, BLOCK_KV).  `visits`: receives every visited tile, but of
    loops that run ahead by `skew`.
    Returns: the outputs; what is never stored stays NaN.
    Raises: OutOfBounds for an access outside of its buffer where its guard holds.
    """
    buffers = {name: np.asarray(array) for name, array in inputs.items()}
    outputs: dict[str, np.ndarray] = {}
    for kernel in program.kernels:
        values = _call_values(kernel, buffers, scalars or {}, schedule)
        _allocate(kernel, values, buffers, outputs)
        for instance in _grid(kernel, values):
            digits = {
                dim.index.name: number for dim, number in zip(kernel.grid, instance, strict=True)
            }
            log = None if visits is None else (visits, instance)
            _Instance(Tiles(kernel, buffers, {**values, **digits}), log, skew).run()
    return outputs


def _call_values(
    kernel: Kernel,
    buffers: Mapping[str, np.ndarray],
    scalars: Mapping[str, int | float],
    schedule: tuple[int, int],
) -> dict[str, Array]:
    """Bind the block sizes, what the shapes show, and the scalars that were given."""
    values: dict[str, Array] = {"BLOCK_Q": np.int64(schedule[0]), "BLOCK_KV": np.int64(schedule[1])}
    for buffer in kernel.buffers:
        if buffer.name not in buffers:
            continue
        for size, length in zip(buffer.sizes, buffers[buffer.name].shape, strict=True):
            if isinstance(size, Symbol):
                values.setdefault(size.name, np.int64(length))
    for name, number in scalars.items():
        kind = next(kind for python, kind in KINDS if isinstance(number, python))
        values[name] = kind(number)
    return values


def _allocate(
    kernel: Kernel,
    values: Mapping[str, Array],
    buffers: dict[str, np.ndarray],
    outputs: dict[str, np.ndarray],
) -> None:
    for buffer in kernel.buffers:
        shape = tuple(int(evaluate(size, Environment(values))) for size in buffer.sizes)
        if buffer.role == "output" and buffer.name not in buffers:
            buffers[buffer.name] = outputs[buffer.name] = np.full(shape, UNWRITTEN)
        elif buffers[buffer.name].shape != shape:
            raise ValueError(f"{buffer.name} has shape {buffers[buffer.name].shape}, not {shape}")


def _grid(kernel: Kernel, values: Mapping[str, Array]) -> Iterator[tuple[int, ...]]:
    extents = [int(evaluate(dim.extent, Environment(values))) for dim in kernel.grid]
    for digits in product(*(range(extent) for extent in reversed(extents))):
        yield tuple(reversed(digits))


@dataclass(slots=True)
class _Instance:
    """One program instance and the values it has bound so far."""

    tiles: Tiles
    log: tuple[list[Visit], tuple[int, ...]] | None = None
    skew: bool = False
    loops: int = 0
    maxima: set[str] = field(default_factory=set)  # declared running maxima, finished or not

    def run(self) -> None:
        for statement in self.tiles.kernel.body:
            self._statement(statement)

    def _statement(self, statement: Stmt) -> None:
        match statement:
            case Let(name, value, axes, dtype) | Start(name, value, axes, dtype):
                self.tiles.values[name] = self.tiles.value(value, axes, dtype)
            case Store():
                self.tiles.store(statement)
            case Loop():
                self._loop(statement)
                self.loops += 1

    def _loop(self, loop: Loop) -> None:
        for reduction in loop.reductions:
            if (init := reduction.init) is not None:
                first = self.tiles.spread(self.tiles.evaluate(init), reduction.axes)
                self.tiles.values[reduction.name] = first
        if loop.rounds is None:
            self._walk(loop)
            return
        carried = {part.name for part in (*loop.reductions, *loop.updates)}
        outer = dict(self.tiles.values)
        for number in range(int(self.tiles.evaluate(loop.rounds.count))):
            self.tiles.values[loop.rounds.index.name] = np.int64(number)
            for let in loop.rounds.lets:
                self._statement(let)
            self._walk(loop)
            kept = {name: self.tiles.values[name] for name in carried}
            self.tiles.values = {**outer, **kept}

    def _walk(self, loop: Loop) -> None:
        """Visit the tiles of all pieces."""
        tiles, axis = self.tiles, self.tiles.kernel.axis(loop.axis)
        ends = [(int(tiles.evaluate(p.start)), int(tiles.evaluate(p.stop))) for p in loop.pieces]
        if self.skew and loop.ahead is not None:
            walk = SkewedWalk(tiles, partial(self._enter, axis), self._statement, self._visit)
            walk.run(loop, loop.ahead, [tile for end in ends for tile in range(*end)])
            return
        for number, piece in enumerate(loop.pieces):
            for tile in range(*ends[number]):
                if self.log is not None:
                    visits, instance = self.log
                    place = tiles.kernel.name, instance, self.loops, number, tile
                    visits.append(Visit(*place, piece.masked))
                self._visit(loop, tile)

    def _visit(self, loop: Loop, tile: int) -> None:
        """Run the body once.  What it binds is gone afterwards."""
        outer = dict(self.tiles.values)
        self._enter(self.tiles.kernel.axis(loop.axis), tile)
        if loop.reductions:
            self._declared(loop)
        for let in () if loop.reductions else loop.body:
            self._statement(let)
        updated = {update.name: self.tiles.values[update.value] for update in loop.updates}
        updated |= {one.name: self.tiles.values[one.name] for one in loop.reductions}
        self.tiles.values = {**outer, **updated}

    def _enter(self, axis: Axis, tile: int) -> None:
        """Bind the symbol that says where the tile starts, or the tile number it is made of."""
        if isinstance(axis.first, Symbol):
            self.tiles.values[axis.first.name] = np.int64(tile * self.tiles.tile(axis))
            return
        for symbol in axis.first.free_symbols:
            if str(symbol) not in ("BLOCK_Q", "BLOCK_KV"):
                self.tiles.values[str(symbol)] = np.int64(tile)

    def _declared(self, loop: Loop) -> None:
        """Run the body once with declared reductions; a Let may follow one it reads."""
        values = self.tiles.values
        previous = {reduction.name: values[reduction.name] for reduction in loop.reductions}
        values.update({name: _anchor(values[name]) for name in self.maxima if name in values})
        waiting = {reduction.name for reduction in loop.reductions}
        later = list(loop.body)
        joined: dict[str, np.ndarray] = {}
        for reduction in (None, *loop.reductions):
            if reduction is not None:
                joined[reduction.name] = self._join(reduction, previous, joined)
                waiting.discard(reduction.name)
            later = self._bind_ready(later, waiting)
        values.update(joined)

    def _bind_ready(self, lets: list[Let], waiting: set[str]) -> list[Let]:
        """Bind the Lets that need no reduction of `waiting`; return the others."""
        later: list[Let] = []
        for let in lets:
            if names_read(let.value) & (waiting | {other.name for other in later}):
                later.append(let)
            else:
                self._statement(let)
        return later

    def _join(
        self,
        reduction: Reduce,
        previous: Mapping[str, np.ndarray],
        joined: Mapping[str, np.ndarray],
    ) -> np.ndarray:
        """The reduction's value after this tile; inside the loop a maximum is seen anchored."""
        tiles = self.tiles
        axis = tiles.kernel.axis(reduction.over)
        exists = tiles.evaluate(sympy.Lt(axis.index, axis.size, evaluate=False))
        axes = tuple(dict.fromkeys((*reduction.axes, reduction.over)))
        if reduction.onto is not None:
            return self._landed(reduction, previous[reduction.name], exists)
        element = tiles.spread(tiles.evaluate(reduction.element), axes)
        counts = tiles.spread(tiles.evaluate(reduction.where) & exists, axes)
        identity = -np.inf if reduction.kind == "max" else 0.0
        tile = np.where(counts, element, identity)
        if reduction.over not in reduction.axes:
            tile = collapse(reduction.kind, tile, tiles.dimension(axis.name))
        before = previous[reduction.name]
        if reduction.follows is not None:
            before = self._repaired(
                reduction, previous, previous[reduction.follows], joined[reduction.follows]
            )
        with np.errstate(all="ignore"):
            result = np.maximum(before, tile) if reduction.kind == "max" else before + tile
        if reduction.kind == "max":
            self.maxima.add(reduction.name)
        tiles.values[reduction.name] = _anchor(result) if reduction.kind == "max" else result
        return result

    def _landed(self, reduction: Reduce, before: np.ndarray, exists: Array) -> np.ndarray:
        """What a sum becomes when each pair is added to the element where it lands."""
        tiles = self.tiles
        assert reduction.onto is not None
        (name,) = reduction.axes
        axis = tiles.kernel.axis(name)
        places = tiles.evaluate(reduction.onto) - tiles.evaluate(axis.first)
        counts = tiles.evaluate(reduction.where) & exists
        after = np.array(before, dtype=np.float64)
        flat = after.reshape(-1)
        lanes = np.broadcast_arrays(places, counts, tiles.evaluate(reduction.element))
        for place, is_counted, element in zip(*(lane.reshape(-1) for lane in lanes), strict=True):
            if is_counted and 0 <= place < flat.size:
                flat[place] += element
        tiles.values[reduction.name] = after
        return after

    def _repaired(
        self,
        reduction: Reduce,
        previous: Mapping[str, np.ndarray],
        m_old: np.ndarray,
        m_new: np.ndarray,
    ) -> np.ndarray:
        state = previous[reduction.name]
        if reduction.repair is None:
            raise ValueError(f"{reduction.name} follows {reduction.follows} and has no repair")
        names = {
            **self.tiles.values,
            **previous,  # what it was summed beside
            reduction.name: state,
            f"{reduction.follows}_old": m_old,
            f"{reduction.follows}_new": m_new,
        }
        repaired = evaluate(reduction.repair, Environment(names))
        return np.where(m_old == m_new, state, np.where(np.isneginf(m_old), 0.0, repaired))


def _anchor(maximum: np.ndarray) -> np.ndarray:
    return np.where(np.isneginf(maximum), 0.0, maximum)
