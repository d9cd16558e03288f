"""Walk and rebuild programs: what a node reads, renaming, and dropping what nothing reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sympy import Basic, Symbol

from attnc.ir.nodes import (
    Collapse,
    Contract,
    Dot,
    Fill,
    Formula,
    Kernel,
    Let,
    Load,
    Loop,
    Pick,
    Piece,
    Reduce,
    Start,
    Stmt,
    Store,
    Value,
)
from attnc.symbols import names_in, replaced, symbols_in

Rewrite = Callable[[Basic], Any]  # gives a formula of the kind that it was given


def reads_of_value(value: Value) -> set[str]:
    """Names of values, positions and scalars that a value reads."""
    match value:
        case Load(_, index, guard, described):
            return names_in(*index, guard, *(described or ()))
        case Formula(expr):
            return names_in(expr)
        case Contract(left, right):
            return {left, right}
        case Dot(left, right, _, add_to):
            return {left, right} | ({add_to} if add_to else set())
        case Collapse(_, tile, _):
            return {tile}
        case Pick(tile, _, slot):
            return {tile, slot}
        case Fill(number):
            return names_in(number)


def reads_of(stmt: Stmt) -> set[str]:
    """Names that a statement reads; for a loop, all that its parts read."""
    match stmt:
        case Let(_, value) | Start(_, value):
            return reads_of_value(value)
        case Store(_, index, value, guard):
            return {value} | names_in(*index, guard)
        case Loop(_, pieces, _, reductions, updates):
            found = {name for piece in pieces for name in names_in(piece.start, piece.stop)}
            found |= {name for let in lets_in(stmt) for name in reads_of(let)}
            found |= {update.value for update in updates}
            found |= names_in(stmt.rounds.count) if stmt.rounds else set()
            return found.union(*(reads_of_reduction(reduction) for reduction in reductions))


def lets_in(loop: Loop) -> tuple[Let, ...]:
    """What a loop binds: at the start of a round, and for each tile."""
    return (*(loop.rounds.lets if loop.rounds else ()), *loop.body)


def reads_of_reduction(reduction: Reduce) -> set[str]:
    """Names that a reduction reads."""
    own = (reduction.element, reduction.where, reduction.init, reduction.repair, reduction.onto)
    return names_in(*own)


def map_value(value: Value, rewrite: Rewrite) -> Value:
    """Rewrite every formula of a value, names of operands included."""

    def name(operand: str) -> str:
        return str(rewrite(Symbol(operand, real=True)))

    match value:
        case Load(_, index, guard, described):
            rows = described and (rewrite(described[0]), rewrite(described[1]))
            index = tuple(map(rewrite, index))
            return replace(value, index=index, guard=rewrite(guard), described=rows)
        case Formula(expr):
            return replace(value, expr=rewrite(expr))
        case Contract(left, right) | Dot(left, right):
            renamed = replace(value, left=name(left), right=name(right))
            return (
                replace(renamed, add_to=name(value.add_to))
                if isinstance(value, Dot) and value.add_to
                else renamed
            )
        case Collapse(_, tile, _):
            return replace(value, value=name(tile))
        case Pick(tile, _, slot):
            return replace(value, value=name(tile), slot=name(slot))
        case Fill(number):
            return replace(value, value=rewrite(number))


def map_reduction(reduction: Reduce, rewrite: Rewrite) -> Reduce:
    """Rewrite every formula of a reduction."""
    return replace(
        reduction,
        element=rewrite(reduction.element),
        where=rewrite(reduction.where),
        init=None if reduction.init is None else rewrite(reduction.init),
        repair=None if reduction.repair is None else rewrite(reduction.repair),
        onto=None if reduction.onto is None else rewrite(reduction.onto),
    )


def map_loop(loop: Loop, rewrite: Rewrite) -> Loop:
    """Rewrite every formula of a loop."""

    def in_let(let: Let) -> Let:
        return replace(let, value=map_value(let.value, rewrite))

    rounds = loop.rounds
    if rounds is not None:
        lets = tuple(map(in_let, rounds.lets))
        rounds = replace(rounds, count=rewrite(rounds.count), lets=lets)
    return replace(
        loop,
        pieces=tuple(Piece(rewrite(p.start), rewrite(p.stop), p.masked) for p in loop.pieces),
        rounds=rounds,
        body=tuple(map(in_let, loop.body)),
        reductions=tuple(map_reduction(reduction, rewrite) for reduction in loop.reductions),
    )


def map_stmt(stmt: Stmt, rewrite: Rewrite) -> Stmt:
    """Rewrite every formula of a statement."""
    match stmt:
        case Let() | Start():
            return replace(stmt, value=map_value(stmt.value, rewrite))
        case Loop():
            return map_loop(stmt, rewrite)
        case Store(_, index, value, guard):
            renamed = str(rewrite(Symbol(value, real=True)))
            return replace(
                stmt, index=tuple(map(rewrite, index)), value=renamed, guard=rewrite(guard)
            )


def substitution(by_name: Mapping[str, Basic]) -> Rewrite:
    """A rewrite that replaces symbols by name, whatever their assumptions."""

    def rewrite(formula: Basic) -> Basic:
        found = {
            symbol: by_name[symbol.name] for symbol in symbols_in(formula) if symbol.name in by_name
        }
        return replaced(formula, found) if found else formula

    return rewrite


def axes_by_name(stmts: Iterable[Stmt]) -> dict[str, tuple[str, ...]]:
    """Axes of every named value, in loops too."""
    found: dict[str, tuple[str, ...]] = {}
    for stmt in stmts:
        match stmt:
            case Let(name, _, axes) | Start(name, _, axes):
                found[name] = axes
            case Loop(_, _, _, reductions):
                found |= {let.name: let.axes for let in lets_in(stmt)}
                found |= {reduction.name: reduction.axes for reduction in reductions}
            case _:
                pass
    return found


def prune(kernel: Kernel) -> Kernel:
    """Drop values, scalars, axes and input buffers that nothing reads."""
    body: list[Stmt] = []
    # a loop carries values that its own body reads again; they stay if the loop stays
    wanted = {name for axis in kernel.axes for name in names_in(axis.first)}
    for stmt in reversed(kernel.body):
        if isinstance(stmt, Let) and stmt.name not in wanted:
            continue
        kept = _prune_loop(stmt, kernel) if isinstance(stmt, Loop) else stmt
        body.insert(0, kept)
        wanted |= reads_of(kept)
    loads = {let.value.buffer for let in lets_of(body) if isinstance(let.value, Load)}
    wanted |= {name for grid in kernel.grid[:-1] for name in names_in(grid.extent)}
    wanted |= {name for axis in kernel.axes for name in names_in(axis.size)}
    used = {axis for axes in axes_by_name(body).values() for axis in axes}
    return replace(
        kernel,
        axes=tuple(axis for axis in kernel.axes if axis.name in used),
        body=tuple(body),
        buffers=tuple(b for b in kernel.buffers if b.role == "output" or b.name in loads),
        scalars=tuple(s for s in kernel.scalars if s.name in wanted),
    )


def _prune_loop(loop: Loop, kernel: Kernel) -> Loop:
    wanted = {update.value for update in loop.updates}.union(
        *(reads_of_reduction(r) for r in loop.reductions)
    )
    body = _read(loop.body, wanted)
    if loop.rounds is None:
        return replace(loop, body=body)
    ends = [end for piece in loop.pieces for end in (piece.start, piece.stop)]
    places = [axis.first for axis in kernel.axes]
    lets = _read(loop.rounds.lets, wanted.union(names_in(*ends, *places), *map(reads_of, body)))
    return replace(loop, body=body, rounds=replace(loop.rounds, lets=lets))


def _read(lets: tuple[Let, ...], wanted: set[str]) -> tuple[Let, ...]:
    """The lets that are wanted, directly or by way of others."""
    wanted, kept = set(wanted), []
    for let in reversed(lets):
        if let.name in wanted:
            kept.insert(0, let)
            wanted |= reads_of(let)
    return tuple(kept)


def lets_of(stmts: Iterable[Stmt]) -> list[Let]:
    """Every Let of a body, in loops too."""
    found: list[Let] = []
    for stmt in stmts:
        if isinstance(stmt, Let):
            found.append(stmt)
        elif isinstance(stmt, Loop):
            found += lets_in(stmt)
    return found
