"""What the forward keeps for the backward, and what the backward makes again: a minimum cut.

Each forward value v has two bits: need(v), the backward reads it, and made(v), it is made again.

    source -> need(v)          no limit    the backward reads v
    need(v) -> made(v)         save(v)     cut: v is kept
    made(v) -> sink            make(v)     cut: v is made
    made(v) -> need(u)         no limit    and then its operands u are needed
    made(v) -> need(v)         no limit

The cut is the cheapest choice, exactly.  Time alone would keep the weights at many sizes; the limit
finds FlashAttention: what is kept takes no more bytes than q, k, v and the outputs together, at the
nominal sizes.  It enters as a price for each byte, the least that meets it.

At short nominal lengths it might also keep a tile of q and k, or sum over keys a second time.  The
kernels do neither, whatever it costs: the lengths of a call are free, a sum that streams has no
such tile to store, and a sum made again would be a pass of its own.
Source: Chen et al. 2016, arXiv:1604.06174, for the question; the cut is project selection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import networkx as nx

from attnc.graph.costs import budget, is_tile, making_price, moving_price, stored_bytes
from attnc.graph.operations import Contract, Dataflow, Gather, Input, LogSumExp, is_cotangent

ROUNDS = 40  # of doubling, then of bisection: a price is known to one part in a million
DEAREST = 1e12  # ps of a byte: whatever can be made again is


@dataclass(frozen=True, slots=True)
class Choice:
    """One forward value that the backward needs: kept or made again, and what each would cost.

    size: bytes if kept.  keeping, making: picoseconds, before the price of bytes.  may_keep,
    may_make: what the kernels can do.
    """

    name: str
    kept: bool
    size: int
    keeping: int
    making: int
    may_keep: bool
    may_make: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What is kept, what is made again, and the price of a byte (ps) that made it fit the limit."""

    choices: tuple[Choice, ...]
    limit: int
    price: float

    @property
    def kept(self) -> tuple[str, ...]:
        """The values that the forward writes for the backward, in order."""
        return tuple(choice.name for choice in self.choices if choice.kept)


def choose_kept(flow: Dataflow) -> Dataflow:
    """Decide what the forward of a differentiated dataflow writes for its backward."""
    return replace(flow, kept=plan_keeping(flow).kept)


def plan_keeping(flow: Dataflow) -> Plan:
    """Choose what to keep so that the whole costs least within the limit.

    Where heads are so narrow that what nothing can make again takes more, that is the limit.
    """
    problem = _Problem.of(flow)
    limit = max(sum(budget(flow).values()), problem.bytes_of(problem.cut(DEAREST)))
    low, high = 0.0, 0.0
    kept = problem.cut(high)
    while problem.bytes_of(kept) > limit:
        low, high = high, max(2 * high, 1e-3)
        kept = problem.cut(high)
    for _ in range(ROUNDS if high else 0):
        middle = (low + high) / 2
        cheaper = problem.cut(middle)
        if problem.bytes_of(cheaper) > limit:
            low = middle
        else:
            high, kept = middle, cheaper
    return Plan(problem.choices(kept), limit, high)


def may_keep(flow: Dataflow, name: str) -> bool:
    """Whether the forward can write a value: an output, or what it reduces and that is no tile."""
    operation = flow.values[name]
    is_reduced = isinstance(operation, Contract | LogSumExp)
    return not is_tile(flow, name) and (is_reduced or name in flow.outputs.values())


def may_make(flow: Dataflow, name: str) -> bool:
    """Whether the backward can make a value again: no sum of tiles of q and k."""
    return is_tile(flow, name) or not any(is_tile(flow, one) for one in flow.operands(name))


@dataclass(frozen=True, slots=True)
class _Problem:
    flow: Dataflow
    primal: tuple[str, ...]  # forward values that are computed
    read: frozenset[str]  # those that the gradients read
    outputs: frozenset[str]

    @classmethod
    def of(cls, flow: Dataflow) -> _Problem:
        graph = flow.graph()
        cotangents = {n for n, op in flow.values.items() if is_cotangent(op)}
        later = {name for root in cotangents for name in nx.descendants(graph, root)}
        wanted = set(flow.gradients.values())
        wanted |= {name for value in wanted for name in nx.ancestors(graph, value)}
        primal = tuple(
            name
            for name, operation in flow.values.items()
            if name not in later and not isinstance(operation, Input | Gather)
        )
        read = {u for v in later & wanted for u in flow.operands(v)} & set(primal)
        return cls(flow, primal, frozenset(read), frozenset(flow.outputs.values()))

    def bytes_of(self, kept: frozenset[str]) -> int:
        """What keeping these takes beyond the outputs, which are there anyway."""
        return sum(stored_bytes(self.flow, name) for name in kept - self.outputs)

    def cut(self, price: float) -> frozenset[str]:
        """What is kept when each byte kept costs `price` picoseconds more."""
        network = nx.DiGraph()
        network.add_nodes_from(("source", "sink"))
        for name in self.primal:
            need, made = ("need", name), ("made", name)
            extra = 0 if name in self.outputs else round(price * stored_bytes(self.flow, name))
            network.add_edge(need, made)
            network.add_edge(made, "sink")
            if may_keep(self.flow, name):
                network.edges[need, made]["capacity"] = self.keeping(name) + extra
            if may_make(self.flow, name):
                network.edges[made, "sink"]["capacity"] = making_price(self.flow, name)
            network.add_edge(made, need)
            for operand in self.flow.operands(name):
                if operand in self.primal:
                    network.add_edge(made, ("need", operand))
            if name in self.read:
                network.add_edge("source", need)
        _, (needed, _) = nx.minimum_cut(network, "source", "sink")
        return frozenset(
            name
            for name in self.primal
            if ("need", name) in needed and ("made", name) not in needed
        )

    def keeping(self, name: str) -> int:
        """One write and two reads (dq, and dk with dv), of an output the reads alone."""
        passes = 2 if name in self.outputs else 3
        return moving_price(passes * stored_bytes(self.flow, name))

    def choices(self, kept: frozenset[str]) -> tuple[Choice, ...]:
        """Every forward value that the backward needs, when these are kept."""
        needed = set(self.read)
        for name in reversed(self.primal):
            if name in needed and name not in kept:
                needed |= set(self.flow.operands(name)) & set(self.primal)
        return tuple(
            Choice(
                name,
                name in kept,
                stored_bytes(self.flow, name),
                self.keeping(name),
                making_price(self.flow, name),
                may_keep(self.flow, name),
                may_make(self.flow, name),
            )
            for name in self.primal
            if name in needed
        )
