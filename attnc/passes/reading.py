"""What a kernel's statements say of names and formulas, as far as the mask passes ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sympy import Basic, Integer, Symbol
from sympy.logic.boolalg import And, Boolean

from attnc.ir.nodes import Axis, Formula, Kernel, Let, Load, Loop, Piece, Stmt
from attnc.ir.rebuild import lets_in
from attnc.symbols import FloorDiv, names_in, replaced, symbols_in


def is_whole(loop: Loop, axis: Axis) -> bool:
    """Whether a loop visits every tile of its axis."""
    stop = FloorDiv(axis.size + axis.tile - 1, axis.tile)
    return loop.pieces == (Piece(Integer(0), stop),)


def lets_of(kernel: Kernel, loop: Loop) -> dict[str, Let]:
    """Every let of the kernel's body and of the loop, by name."""
    return {s.name: s for s in (*kernel.body, *lets_in(loop)) if isinstance(s, Let)}


def varying_names(kernel: Kernel, loop: Loop) -> frozenset[str]:
    """What differs from element to element of a tile: positions, and values with an axis."""
    positions = {axis.index.name for axis in kernel.axes}
    values = {name for name, let in lets_of(kernel, loop).items() if let.axes}
    return frozenset(positions | values)


def inline(condition: Boolean, kernel: Kernel, loop: Loop) -> Boolean:
    """Write formulas that have an axis out, and call each symbol by one Symbol.

    Names are matched by text, so that symbols of other assumptions mean the same thing.
    """
    lets = lets_of(kernel, loop)
    known = {symbol.name: symbol for symbol in _vocabulary(kernel)}
    while True:
        changes: dict[Basic, Basic] = {}
        for symbol in symbols_in(condition):
            let = lets.get(symbol.name)
            if let is not None and let.axes and isinstance(let.value, Formula):
                changes[symbol] = let.value.expr
            elif known.setdefault(symbol.name, symbol) != symbol:
                changes[symbol] = known[symbol.name]
        if not changes:
            return condition
        condition = replaced(condition, changes)


def _vocabulary(kernel: Kernel) -> Iterator[Symbol]:
    for axis in kernel.axes:
        yield axis.index
        for expr in (axis.size, axis.first, axis.tile):
            yield from sorted(symbols_in(expr), key=str)


def names_taken(kernel: Kernel) -> set[str]:
    """Every name that means something in a kernel."""
    found = {axis.index.name for axis in kernel.axes} | {dim.index.name for dim in kernel.grid}
    found |= {buffer.name for buffer in kernel.buffers} | {s.name for s in kernel.scalars}
    for axis in kernel.axes:
        found |= names_in(axis.size, axis.first, axis.tile)
    for statement in kernel.body:
        found |= _names_bound(statement)
    return found


def _names_bound(statement: Stmt) -> set[str]:
    if isinstance(statement, Loop):
        return {part.name for part in (*lets_in(statement), *statement.reductions)}
    return {statement.name} if isinstance(statement, Let) else set()


def before_walking(lets: Iterable[Let], loop: Loop) -> list[Stmt]:
    """A loop with new lets before it: in its rounds, where they differ from round to round."""
    if loop.rounds is None:
        return [*lets, loop]
    own = {loop.rounds.index.name, *(let.name for let in loop.rounds.lets)}
    outside: list[Stmt] = []
    inside: list[Let] = []
    for let in lets:
        if operands(let) & own:
            own.add(let.name)
            inside.append(let)
        else:
            outside.append(let)
    rounds = replace(loop.rounds, lets=(*loop.rounds.lets, *inside))
    return [*outside, replace(loop, rounds=rounds)]


def conjuncts(condition: Boolean) -> tuple[Boolean, ...]:
    """The parts of a conjunction."""
    return tuple(condition.args) if isinstance(condition, And) else (condition,)


def is_tail_test(condition: Boolean, axis: Axis) -> bool:
    """Whether a condition says no more than that an index lies on its axis."""
    return str(condition) in (str(axis.index < axis.size), str(axis.index >= 0))


def operands(let: Let) -> set[str]:
    """The names that a let is made of."""
    value = let.value
    if isinstance(value, Load):
        return names_in(value.guard, *value.index)
    if isinstance(value, Formula):
        return names_in(value.expr)
    names = (getattr(value, part, None) for part in ("left", "right", "add_to", "value", "slot"))
    return {name for name in names if isinstance(name, str)}


def is_read_along(let: Let, axis: str) -> bool:
    """Whether a let reads a buffer along an axis."""
    return isinstance(let.value, Load) and axis in let.axes


def reached(names: set[str], body: Mapping[str, Let], having: set[str] | None = None) -> set[str]:
    """The lets that names stand for, and those that these are made of (of the given axes only)."""
    found: set[str] = set()
    waiting = [name for name in names if name in body]
    while waiting:
        let = body[waiting.pop()]
        if let.name in found or (having is not None and not having & set(let.axes)):
            continue
        found.add(let.name)
        waiting += [name for name in operands(let) if name in body]
    return found
