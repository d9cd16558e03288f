"""Write the kernels of gradients of pairs as plain loops.

    by pairs:     a program owns a tile of queries and keys, and sums over heads and batch entries
    by distance:  a program owns a band of distances kv_idx - q_pos, and sums over all queries

Both walk the keys, as all kernels that hold queries do; which of them a program owns is a condition
of its sum like the mask, so that the same passes find the tiles.  Gradients are linear in what is
summed: a sum over heads or batch entries on the way stands for the share of one.
"""

from __future__ import annotations

from typing import cast

import networkx as nx
from sympy import Expr, Integer, Le, Lt, true
from sympy.logic.boolalg import And, Boolean

from attnc import symbols
from attnc.graph.landings import Landing
from attnc.graph.operations import TILE, Contract, Dataflow, KernelGraph, Map
from attnc.ir.nodes import BLOCK_KV, Buffer, Formula, Kernel, Let, Reduce, Store
from attnc.ir.rebuild import prune, substitution
from attnc.plan import buffers
from attnc.plan.programs import OWN_FIRST
from attnc.plan.tiles import TilePlan
from attnc.plan.walks import anchor_rows, walk
from attnc.symbols import value_symbol

DISTANCE_AT = symbols.kv_idx - symbols.q_idx + symbols.q_len - 1  # its position on the axis n


def plan_pairs(
    flow: Dataflow, graph: KernelGraph, landing: Landing, stored: frozenset[str]
) -> Kernel:
    """The kernel of one gradient of pairs."""
    return _PairPlan(flow, graph, landing, stored).kernel()


class _PairPlan:
    def __init__(
        self, flow: Dataflow, graph: KernelGraph, landing: Landing, stored: frozenset[str]
    ) -> None:
        self.flow, self.graph, self.landing = flow, graph, landing
        self.tiles = TilePlan(flow, graph, stored)
        self._share_sums()
        anchor_rows(self.tiles)

    def kernel(self) -> Kernel:
        tiles = self.tiles
        tiles.buffers[self.landing.buffer] = buffer = self._buffer()
        total = self._total()
        body = [*tiles.positions(), *walk(tiles, [total]), self._store(buffer, total.name)]
        made, grid = tuple(tiles.buffers.values()), tiles.programs.dims()
        return prune(Kernel(self.graph.name, tiles.axes, grid, made, tiles.scalars(), tuple(body)))

    def _share_sums(self) -> None:
        """Make in the loop what a sum over heads or batch entries gets from one of them."""
        values = self.flow.values
        needed = nx.ancestors(self.flow.graph(), self.landing.value) | {self.landing.value}
        lets = self.tiles.lets
        made = [name for name in values if name in lets or name in needed]
        for name in made:
            operation = values[name]
            if name in lets:
                continue
            if isinstance(operation, Contract) and set(operation.axes) >= TILE:
                product: Expr = Integer(1)
                for operand in operation.operands:
                    product *= value_symbol(operand)
                lets[name] = Let(name, Formula(product), self.tiles.along(name, operation.axes))
            elif (let := self.tiles.let(name)) is not None:  # a map that had to wait for a sum
                lets[name] = let
        self.tiles.lets = {name: lets[name] for name in ("q_pos", *made) if name in lets} | lets

    def _total(self) -> Reduce:
        """The sum of the value over all pairs and rounds that an element of the result gets."""
        tiles, name = self.tiles, self.landing.value
        own, axes = self._own()
        where = And(tiles.in_range(self._where()), own)
        element, note = value_symbol(name), tiles.mask_note()
        onto = DISTANCE_AT if tiles.programs.is_by_distance else None
        called = f"{name}_total" if f"{name}_sum" in self.flow.values else f"{name}_sum"
        return Reduce(called, "sum", "k", element, axes, Integer(0), where, note=note, onto=onto)

    def _own(self) -> tuple[Boolean, tuple[str, ...]]:
        """Which pairs a program owns, and the axes of its result."""
        if self.tiles.programs.is_by_distance:
            first, at, axes = buffers.N_FIRST, DISTANCE_AT, ("n",)
            exists: Boolean = symbols.q_idx < symbols.q_len
        else:
            first, at, axes = OWN_FIRST, symbols.kv_idx, ("q", "k")
            exists = true  # rows past the end are not stored
        return cast(Boolean, And(exists, Le(first, at), Lt(at, first + BLOCK_KV))), axes

    def _where(self) -> Boolean:
        """Where the pairs count: the conditions of all maps of cotangents on the way."""
        values = self.flow.values
        needed = nx.ancestors(self.flow.graph(), self.landing.value) | {self.landing.value}
        maps = (values[name] for name in values if name in needed)
        conditions = (one.where for one in maps if isinstance(one, Map) and set(one.axes) >= TILE)
        return cast(Boolean, And(*dict.fromkeys(conditions)))

    def _buffer(self) -> Buffer:
        """What the kernel writes: the gradient itself, or a share for each distance and head."""
        name, operand = self.landing.buffer, self.landing.operand
        if self.tiles.programs.is_by_distance:
            meaning, dims = "sum of the pairs at each distance", ("b", "h", "n")
            sizes = (buffers.BATCH, buffers.HEADS, buffers.DISTANCES)
            return Buffer(name, dims, sizes, "f32", "output", meaning, optional=True)
        like = self.tiles.buffers[operand]
        meaning = f"gradient of {operand}"
        return Buffer(name, like.dims, like.sizes, like.dtype, "output", meaning, optional=True)

    def _store(self, buffer: Buffer, value: str) -> Store:
        if self.tiles.programs.is_by_distance:
            return self.tiles.store(buffer.name, value)
        own = OWN_FIRST + self.tiles.axis("k").within
        index = tuple(substitution({"kv_idx": own})(place) for place in self.landing.places)
        return Store(buffer.name, index, value, self.tiles.inside(buffer, index))
