"""Where gradients land: each way in which an operand is read gives it a gradient by these rules.

    in tiles      a pair (query, key) is read by one element alone: a program owns a tile of it
    by distance   the index is a formula of kv_idx - q_pos: a program owns a band of distances
    by row, key   what is read varies along one axis of the tile at most: shares of programs

Shares by row, key or distance are small, and are added to the tensor's elements afterwards,
wherever their indices say.  An index that neither pairs nor distances decide is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import networkx as nx
from sympy import Add, Basic, Expr, Symbol

from attnc import symbols
from attnc.graph.forward import DIM_INDEX, VARIES
from attnc.graph.operations import TILE, Dataflow, Gather, Input, Map, Scatter, is_cotangent
from attnc.notation import plain
from attnc.source import Span
from attnc.spec.mistakes import FlatGradient, NoGradient
from attnc.symbols import Read, names_in, replaced, symbols_in, tensor_symbol

ROWS, KEYS, HEAD_KEYS = ("b", "g", "r", "q"), ("b", "g", "k"), ("b", "g", "r", "k")
DISTANCES = ("b", "g", "r", "n")
KEY_AT = symbols.q_pos + symbols.distance


@dataclass(frozen=True, slots=True)
class Landing:
    """One way in which something reaches the gradient of an operand.

    buffer: what a kernel writes.  value: of the dataflow.  grid: the axes that programs own.
    places: an index for each dimension of the operand, written in positions (distance, where the
    grid has n); empty for shares whose own axes are the operand's dimensions.
    """

    operand: str
    buffer: str
    value: str
    grid: tuple[str, ...]
    places: tuple[Expr, ...] = ()


def landings(flow: Dataflow) -> tuple[Landing, ...]:
    """How each gradient comes about.

    Raises: NoGradient for a tensor whose index tells neither pairs nor distances, FlatGradient for
    one that no result follows.
    """
    for tensor in flow.spec.tensors:
        if tensor.grad and tensor.name not in flow.gradients:
            raise FlatGradient(_where(flow, tensor.name), name=tensor.name)
    return tuple(landing for leaf in flow.gradients for landing in _of(flow, leaf))


def _of(flow: Dataflow, leaf: str) -> Iterator[Landing]:
    name = flow.gradients[leaf]
    operation = flow.values[name]
    if isinstance(operation, Scatter):
        many = len(operation.parts) > 1
        for number, (value, indices) in enumerate(operation.parts, 1):
            buffer = f"grad_{leaf}__{number}" if many else f"grad_{leaf}"
            yield _landing(flow, leaf, buffer, value, indices)
    elif set(operation.axes) & TILE:
        places = _in_step(flow, leaf) if set(operation.axes) >= TILE else ()
        yield Landing(leaf, f"grad_{leaf}", name, _grid(flow, name), places)
    else:
        yield from _by_sums(flow, leaf, name)


def _by_sums(flow: Dataflow, leaf: str, name: str) -> Iterator[Landing]:
    """Of what no position decides: where the sums on its way belong, each summand for itself."""
    grid = _sum_grid(flow, name)
    parts = () if grid is not None else _summands(flow, name)
    grids = [_sum_grid(flow, part) for part in parts]
    if grid is not None:
        yield Landing(leaf, f"grad_{leaf}", name, grid)
    elif parts and None not in grids:
        for number, (part, one) in enumerate(zip(parts, grids, strict=True), 1):
            assert one is not None
            yield Landing(leaf, f"grad_{leaf}_{number}", part, one)


def _summands(flow: Dataflow, name: str) -> tuple[str, ...]:
    """The values whose plain sum a value is."""
    operation = flow.values[name]
    terms = Add.make_args(cast(Expr, operation.formula)) if isinstance(operation, Map) else ()
    named = tuple(str(term) for term in terms if isinstance(term, Symbol))
    return named if len(named) == len(terms) and {*named} <= {*flow.values} else ()


def _landing(
    flow: Dataflow, leaf: str, buffer: str, value: str, indices: tuple[Expr, ...]
) -> Landing:
    places = tuple(_spelled(flow, index) for index in indices)
    axes = frozenset(flow.values[value].axes)
    if not axes >= TILE or _tells(places) == axes:
        return Landing(leaf, buffer, value, _grid(flow, value), places)
    by_distance = tuple(map(_by_distance, places))
    if names_in(*by_distance) & {"q_idx", "q_pos", "kv_idx"}:
        read = f"{leaf}[{', '.join(map(plain, places))}]"
        raise NoGradient(_where(flow, leaf), name=leaf, read=read)
    return Landing(leaf, buffer, value, DISTANCES, by_distance)


def _grid(flow: Dataflow, value: str) -> tuple[str, ...]:
    """A pair's own axes; of what varies less, the kernel that it shares with q, or with k and v."""
    axes = flow.values[value].axes
    if set(axes) >= TILE:
        return axes
    if "k" not in axes:
        return ROWS
    return HEAD_KEYS if "r" in axes else KEYS


def _sum_grid(flow: Dataflow, name: str) -> tuple[str, ...] | None:
    """The programs that own the sums on the way to a gradient; None where they differ."""
    graph = flow.graph()
    left: set[str] = set()
    for value in nx.ancestors(graph, name) if name in graph else ():
        over = {axis for other in flow.operands(value) for axis in flow.values[other].axes}
        axes = set(flow.values[value].axes)
        moves = any(is_cotangent(flow.values[other]) for other in nx.ancestors(graph, value))
        if over >= TILE and not axes >= TILE and moves and not _is_kept_by_rows(flow, graph, value):
            left |= axes & {"q", "k", "r"}
    if "k" not in left:
        return ROWS
    return None if "q" in left else HEAD_KEYS if "r" in left else KEYS


def _is_kept_by_rows(flow: Dataflow, graph: nx.DiGraph, name: str) -> bool:
    """Whether a sum serves tiles again, as d_lse does: another kernel has made it before."""
    return any(TILE <= set(flow.values[later].axes) for later in nx.descendants(graph, name))


def _tells(places: tuple[Expr, ...]) -> frozenset[str]:
    """The axes whose position an index tells, by itself or with a constant added."""
    told: frozenset[str] = frozenset()
    for place in places:
        moving = names_in(place) & set(VARIES)
        if len(moving) == 1 and not place.atoms(Read):
            (name,) = moving
            position = next(s for s in symbols_in(place) if s.name == name)
            if not (place - position).has(position):
                told |= VARIES[name]
    return told


def _by_distance(place: Expr) -> Expr:
    """A formula of kv_idx - q_pos, written so; others keep a position."""
    in_step = {symbols.q_idx: symbols.q_pos + symbols.q_len - symbols.kv_len}
    return replaced(replaced(place, in_step), {symbols.kv_idx: KEY_AT})


def _spelled(flow: Dataflow, formula: Expr) -> Expr:
    """A formula of positions, params and reads: values written out."""
    changes: dict[Basic, Basic] = {}
    for symbol in symbols_in(formula):
        match flow.values.get(symbol.name):
            case Map(value):
                changes[symbol] = _spelled(flow, cast(Expr, value))
            case Gather(tensor, indices):
                changes[symbol] = _read(flow, tensor, indices)
            case Input(tensor):
                changes[symbol] = _read(flow, tensor, _in_step(flow, tensor))
            case _:
                pass
    return replaced(formula, changes) if changes else formula


def _read(flow: Dataflow, tensor: str, indices: tuple[Expr, ...]) -> Expr:
    dtype = next(one.dtype for one in flow.spec.tensors if one.name == tensor)
    return Read(tensor_symbol(tensor, dtype), *(_spelled(flow, index) for index in indices))


def _in_step(flow: Dataflow, tensor: str) -> tuple[Expr, ...]:
    shape = next(one.shape for one in flow.spec.tensors if one.name == tensor)
    return tuple(DIM_INDEX[str(dim)] for dim in shape)


def _where(flow: Dataflow, tensor: str) -> Span:
    spans = flow.spec.spans
    return next(spans[key] for key in (f"tensors.{tensor}", "tensors", "score") if key in spans)
