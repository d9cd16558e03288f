"""The values of one program instance, as numpy arrays, and how each kind of IR value is computed.

Every tile is a float64, int64 or bool array with one dimension for each axis of the kernel, in
the kernel's order; axes that a tile lacks have length 1, so that numpy's broadcasting is
broadcasting by axis name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from sympy import Basic

from attnc.ir.nodes import (
    Axis,
    Collapse,
    Contract,
    Dot,
    Fill,
    Formula,
    Kernel,
    Load,
    Pick,
    Store,
    Value,
)
from attnc.verify.evaluation import Array, Environment, evaluate

_DTYPES = {"i32": np.int64, "i64": np.int64, "i1": np.bool_}


class OutOfBounds(IndexError):
    """A program reads or writes outside of a buffer."""


@dataclass(slots=True)
class Tiles:
    """What one program instance has bound so far; buffers are shared by all instances."""

    kernel: Kernel
    buffers: Mapping[str, np.ndarray]
    values: dict[str, Array]

    def evaluate(self, expr: Basic) -> Array:
        """Evaluate a formula over the names that this instance knows."""
        return evaluate(expr, Environment(self.values, lookup=self._position))

    def _position(self, name: str) -> Array | None:
        """Positions of the tile, on the whole axis for its index symbol, or within the tile."""
        for axis in self.kernel.axes:
            if name in (axis.index.name, axis.within.name):
                within = self._along(axis, np.arange(self.tile(axis)))
                return within if name == axis.within.name else self.evaluate(axis.first) + within
        return None

    def tile(self, axis: Axis) -> int:
        """How many positions of an axis the instance holds."""
        return int(self.evaluate(axis.tile))

    def _along(self, axis: Axis, numbers: np.ndarray) -> np.ndarray:
        return numbers.reshape([-1 if other.name == axis.name else 1 for other in self.kernel.axes])

    def dimension(self, name: str) -> int:
        """The array dimension of an axis."""
        return next(number for number, axis in enumerate(self.kernel.axes) if axis.name == name)

    def spread(self, array: Array, axes: tuple[str, ...]) -> np.ndarray:
        """Broadcast to a tile over exactly `axes`."""
        shape = tuple(self.tile(axis) if axis.name in axes else 1 for axis in self.kernel.axes)
        return np.broadcast_to(array, shape)

    def value(self, value: Value, axes: tuple[str, ...], dtype: str) -> np.ndarray:
        """Compute an IR value as a tile over `axes`; without axes it is a number."""
        match value:
            case Load():
                result = self._load(value, axes)
            case Formula(expr) | Fill(expr):
                result = self.evaluate(expr)
            case Contract(left, right, over):
                result = self._product(left, right, over)
            case Dot(left, right, over, add_to):
                result = self._product(left, right, (over,))
                result = result + self.values[add_to] if add_to else result
            case Collapse(kind, name, over):
                result = collapse(kind, self.values[name], self.dimension(over))
            case Pick(name, over, slot):
                result = self._picked(name, over, slot)
        typed = np.asarray(result).astype(_DTYPES.get(dtype, np.float64))
        return self.spread(typed, axes) if axes else typed.reshape(())

    def _product(self, left: str, right: str, over: tuple[str, ...]) -> np.ndarray:
        a, b = np.asarray(self.values[left]), np.asarray(self.values[right])
        dims = list(range(len(self.kernel.axes)))
        summed = [self.dimension(name) for name in over]
        wide = [[dim for dim in dims if array.shape[dim] > 1] for array in (a, b)]
        kept = [dim for dim in dims if (dim in wide[0] or dim in wide[1]) and dim not in summed]
        with np.errstate(all="ignore"):
            result = np.einsum(a.squeeze(), wide[0], b.squeeze(), wide[1], kept, optimize=True)
        return np.expand_dims(result, [dim for dim in dims if dim not in kept])

    def _picked(self, name: str, over: str, slot: str) -> np.ndarray:
        """Elements along an axis, for each position of `slot`; it has length 1 afterwards."""
        tile, slots, dim = self.values[name], self.values[slot], self.dimension(over)
        size = np.asarray(tile).shape[dim]
        (new,) = (i for i, length in enumerate(slots.shape) if length > 1 and tile.shape[i] == 1)
        moved = np.moveaxis(tile, (dim, new), (-1, 0))[0]
        places = np.moveaxis(slots, (dim, new), (0, -1))[0]
        inside = (places >= 0) & (places < size)
        found = np.take_along_axis(moved, np.where(inside, places, 0), -1)
        return np.moveaxis(np.expand_dims(np.where(inside, found, 0.0), 0), (0, -1), (dim, new))

    def _access(
        self, node: Load | Store, axes: tuple[str, ...]
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """The lanes to touch and their indices, checked against the buffer's shape."""
        buffer = self.buffers[node.buffer]
        lanes = self.spread(self.evaluate(node.guard), axes)
        indices = tuple(self.spread(self.evaluate(index), axes) for index in node.index)
        if len(indices) != buffer.ndim:
            raise OutOfBounds(f"{node.buffer} has {buffer.ndim} dimensions, not {len(indices)}")
        for index, size in zip(indices, buffer.shape, strict=True):
            bad = lanes & ~((0 <= index) & (index < size))
            if np.any(bad):
                where = tuple(int(i[bad][0]) for i in indices)
                raise OutOfBounds(
                    f"{node.buffer}[{', '.join(map(str, where))}] of shape {buffer.shape}"
                )
        return lanes, indices

    def _load(self, load: Load, axes: tuple[str, ...]) -> np.ndarray:
        buffer = self.buffers[load.buffer]
        lanes, indices = self._access(load, axes)
        result = np.zeros(lanes.shape, buffer.dtype)
        result[lanes] = buffer[tuple(index[lanes] for index in indices)]
        return result

    def store(self, store: Store) -> None:
        """Write a value to its buffer."""
        value = np.asarray(self.values[store.value])
        parts = [value, *(np.asarray(self.evaluate(part)) for part in (*store.index, store.guard))]
        shape = np.broadcast_shapes(*(part.shape for part in parts))
        axes = tuple(
            axis.name for axis, length in zip(self.kernel.axes, shape, strict=False) if length > 1
        )
        lanes, indices = self._access(store, axes)
        buffer = self.buffers[store.buffer]
        buffer[tuple(index[lanes] for index in indices)] = np.broadcast_to(value, lanes.shape)[
            lanes
        ]


def collapse(kind: str, value: np.ndarray, dim: int) -> np.ndarray:
    """The max, sum or any along a dimension, which stays with length 1."""
    operation = {"max": np.max, "sum": np.sum, "any": np.any}[kind]
    with np.errstate(all="ignore"):
        return operation(value, axis=dim, keepdims=True)


def names_read(value: Value) -> set[str]:
    """Name what a value reads: other values, positions and scalars."""
    match value:
        case Load(_, index, guard):
            formulas = [*index, guard]
        case Formula(expr) | Fill(expr):
            formulas = [expr]
        case Contract(left, right, _):
            return {left, right}
        case Dot(left, right, _, add_to):
            return {left, right} | ({add_to} if add_to else set())
        case Collapse(_, name, _):
            return {name}
        case Pick(name, _, slot):
            return {name, slot}
    return reduce(set.union, [{str(s) for s in f.free_symbols} for f in formulas], set())
