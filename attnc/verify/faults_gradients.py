"""Small deliberate faults of a backward kernel: the ways in which gradients go wrong.

Like those of `faults`, each generator yields (name, faulty kernel) for every place that it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sympy import Add, Expr, Integer, S

from attnc.ir.nodes import BLOCK_KV, BLOCK_Q, Formula, Kernel, Let, Load, Loop, Start, Store
from attnc.symbols import Random, Where, kv_idx, q_idx
from attnc.verify.faults import Fault, lets_of, statements, swapped, with_formula

EXCHANGED: dict[Expr, Expr] = {BLOCK_Q: BLOCK_KV, BLOCK_KV: BLOCK_Q}
TURNED: dict[str, Expr] = {"q_idx": kv_idx, "kv_idx": q_idx}


def gradient_faults(kernel: Kernel) -> Iterator[Fault]:
    """Every fault of this catalogue at every place of a kernel."""
    for generator in GRADIENT_CATALOGUE:
        for name, faulty in generator(kernel):
            if faulty != kernel:
                yield name, faulty


def terms(kernel: Kernel) -> Iterator[Fault]:
    """A term left out, or with the wrong sign: delta, the cap's derivative, an exponent's part."""
    for where, let, formula in lets_of(kernel):
        for part in formula.atoms(Add) if let.dtype == "f32" else ():
            for term in part.args:
                for what, changed in (("without", part - term), ("with minus", part - 2 * term)):
                    new = formula.xreplace({part: changed})
                    yield f"{where}{let.name} {what} {term}", with_formula(kernel, let, new)


def rounds(kernel: Kernel) -> Iterator[Fault]:
    """A round too few or too many; all of them about the same head, batch entry or tile."""
    loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    for number, loop in enumerate(loops):
        if loop.rounds is None:
            continue
        name, count = f"loop {number}: rounds", loop.rounds.count
        for what, other in (("too few", count - 1), ("too many", count + 1), ("dropped", 1)):
            changed = replace(loop.rounds, count=Integer(other) if other == 1 else other)
            yield f"{name} {what}", swapped(kernel, loop, replace(loop, rounds=changed))
        for let in loop.rounds.lets:
            if isinstance(let.value, Formula) and let.value.expr.has(loop.rounds.index):
                still: Any = let.value.expr.xreplace({loop.rounds.index: S.Zero})
                yield f"{name} with one {let.name}", with_formula(kernel, let, still)


def sums_unselected(kernel: Kernel) -> Iterator[Fault]:
    """A mask that one of the sums of a loop does without."""
    for where, let, formula in lets_of(kernel):
        bare = formula.replace(_is_select, lambda part: part.args[1])
        yield f"{where}{let.name} counts what is hidden", with_formula(kernel, let, bare)


def _is_select(part: Any) -> bool:
    return isinstance(part, Where) and part.args[2] == 0 and not part.args[0].has(Random)


def positions_moved(kernel: Kernel) -> Iterator[Fault]:
    """Positions and indices of a tile, one too far or one too few."""
    for where, let, formula in lets_of(kernel):
        for step in (1, -1) if let.axes and let.dtype == "i32" else ():
            yield f"{where}{let.name} {step:+d}", with_formula(kernel, let, formula + step)


def loads_exchanged(kernel: Kernel) -> Iterator[Fault]:
    """Another tensor of the same shape; query and key taken for each other; another row."""
    for where, stmt in statements(kernel):
        if not (isinstance(stmt, Let) and isinstance(stmt.value, Load)):
            continue
        load, buffer = stmt.value, kernel.buffer(stmt.value.buffer)
        options = [
            (f"from {b.name}", replace(load, buffer=b.name))
            for b in kernel.buffers
            if b.role == "input" and (b.sizes, b.dtype) == (buffer.sizes, buffer.dtype)
        ]
        if {"q_idx", "kv_idx"} <= {str(index) for index in load.index}:
            index = tuple(TURNED.get(str(index), index) for index in load.index)
            options.append(("transposed", replace(load, index=index)))
        options += [
            (f"with 0 for {i}", replace(load, index=_with_zero(load.index, n)))
            for n, i in enumerate(load.index)
            if str(i) in ("b", "h", "h_kv")
        ]
        for what, changed in options:
            yield f"{where}{stmt.name} {what}", swapped(kernel, stmt, replace(stmt, value=changed))


def _with_zero(index: tuple[Expr, ...], number: int) -> tuple[Expr, ...]:
    return (*index[:number], S.Zero, *index[number + 1 :])


def stores(kernel: Kernel) -> Iterator[Fault]:
    """A result never written, written to the place of another, or one for another."""
    kept = [stmt for stmt in kernel.body if isinstance(stmt, Store)]
    axes = {s.name: s.axes for s in kernel.body if isinstance(s, Let | Start)}
    for store in kept:
        name = f"store to {store.buffer}"
        body = tuple(stmt for stmt in kernel.body if stmt is not store)
        yield f"{name} dropped", replace(kernel, body=body)
        for number, index in enumerate(store.index):
            if str(index) in ("b", "h", "h_kv", "q_block", "kv_block"):
                moved = replace(store, index=_with_zero(store.index, number))
                yield f"{name} with 0 for {index}", swapped(kernel, store, moved)
        for value in {other.value for other in kept} - {store.value}:
            if axes.get(value) == axes.get(store.value):
                yield f"{name} of {value}", swapped(kernel, store, replace(store, value=value))


def blocks(kernel: Kernel) -> Iterator[Fault]:
    """The block sizes of queries and keys taken for each other; a program too few."""
    for number, axis in enumerate(kernel.axes):
        if axis.tile in EXCHANGED:
            changed = replace(axis, tile=EXCHANGED[axis.tile])
            axes = (*kernel.axes[:number], changed, *kernel.axes[number + 1 :])
            yield f"tiles of {axis.name} with {changed.tile}", replace(kernel, axes=axes)
    for number, dim in enumerate(kernel.grid):
        for what, extent in (
            ("with the other block size", dim.extent.xreplace(EXCHANGED)),
            ("one short", dim.extent - 1),
        ):
            grid = list(kernel.grid)
            grid[number] = replace(dim, extent=extent)
            yield f"grid of {dim.index} {what}", replace(kernel, grid=tuple(grid))


def random_words(kernel: Kernel) -> Iterator[Fault]:
    """Other random numbers than those of the forward."""
    for where, let, formula in lets_of(kernel):
        for number in formula.atoms(Random):
            seed, b, h, q, k = number.args
            for what, words in (("transposed", (b, h, k, q)), ("of one batch entry", (0, h, q, k))):
                new = formula.xreplace({number: Random(seed, *words)})
                yield f"{where}{let.name} {what}", with_formula(kernel, let, new)


GRADIENT_CATALOGUE: tuple[Callable[[Kernel], Iterator[Fault]], ...] = (
    terms,
    rounds,
    sums_unselected,
    positions_moved,
    loads_exchanged,
    stores,
    blocks,
    random_words,
)
