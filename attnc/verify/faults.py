"""Small deliberate faults in a READY kernel: the ways in which attention kernels go wrong.

Each generator yields (name, faulty kernel) for every place where its fault can be made.  They know
the IR, not the passes: a value is found by what it is, never by what a pass called it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import sympy
from sympy import And, Basic, Integer, Or, S, Symbol, true
from sympy.core.relational import Relational

from attnc.ir.functions import Anchor, Exp2, InverseOrZero, Log2
from attnc.ir.nodes import (
    BLOCK_KV,
    BLOCK_Q,
    Dot,
    Fill,
    Formula,
    Kernel,
    Let,
    Load,
    Loop,
    Start,
    Stmt,
    Store,
)
from attnc.symbols import FloorDiv, FloorMod, Where, h, kv_len, q_len

Fault = tuple[str, Kernel]


def all_faults(kernel: Kernel) -> Iterator[Fault]:
    """Every fault of the catalogue at every place of a kernel."""
    for generator in CATALOGUE:
        for name, faulty in generator(kernel):
            if faulty != kernel:
                yield name, faulty


# ---------------------------------------------------------------- walking


def statements(kernel: Kernel) -> Iterator[tuple[str, Stmt]]:
    """Every statement, those of loops included, with where it stands."""
    loops = 0
    for stmt in kernel.body:
        yield "", stmt
        if isinstance(stmt, Loop):
            lets = (*stmt.body, *(stmt.rounds.lets if stmt.rounds else ()))
            yield from ((f"loop {loops}: ", let) for let in lets)
            loops += 1


def swapped(kernel: Kernel, old: Stmt, new: Stmt) -> Kernel:
    """The kernel with one statement, found by identity, replaced."""

    def among(lets: tuple[Let, ...]) -> tuple[Let, ...]:
        return tuple(cast(Let, new) if let is old else let for let in lets)

    def at(stmt: Stmt) -> Stmt:
        if stmt is old:
            return new
        if isinstance(stmt, Loop):
            rounds = stmt.rounds and replace(stmt.rounds, lets=among(stmt.rounds.lets))
            return replace(stmt, body=among(stmt.body), rounds=rounds)
        return stmt

    return replace(kernel, body=tuple(at(stmt) for stmt in kernel.body))


def lets_of(kernel: Kernel) -> Iterator[tuple[str, Let, Any]]:
    """Every Let of a formula: where it stands, the Let, the formula."""
    for where, stmt in statements(kernel):
        if isinstance(stmt, Let) and isinstance(stmt.value, Formula):
            yield where, stmt, stmt.value.expr


def with_formula(kernel: Kernel, let: Let, formula: Any) -> Kernel:
    """The kernel with another formula in one Let."""
    return swapped(kernel, let, replace(let, value=replace(let.value, expr=formula)))


# ---------------------------------------------------------------- ranges


def scalars_off_by_one(kernel: Kernel) -> Iterator[Fault]:
    """Each integer scalar one more and one less."""
    for where, let, formula in lets_of(kernel):
        if not let.axes and let.dtype in ("i32", "i64"):
            for step in (1, -1):
                yield f"{where}{let.name} {step:+d}", with_formula(kernel, let, formula + step)


def pieces(kernel: Kernel) -> Iterator[Fault]:
    """Each piece dropped, each of its ends moved."""
    loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    for number, loop in enumerate(loops):
        for index, piece in enumerate(loop.pieces):
            name = f"loop {number}, piece {index}"
            fewer = (*loop.pieces[:index], *loop.pieces[index + 1 :])
            yield f"{name} dropped", swapped(kernel, loop, replace(loop, pieces=fewer))
            for step in (1, -1):
                for end in ("start", "stop"):
                    moved = replace(piece, **{end: getattr(piece, end) + step})
                    all_pieces = (*loop.pieces[:index], moved, *loop.pieces[index + 1 :])
                    changed = swapped(kernel, loop, replace(loop, pieces=all_pieces))
                    yield f"{name} {end} {step:+d}", changed


def lengths_swapped(kernel: Kernel) -> Iterator[Fault]:
    """kv_len for q_len and the block sizes for each other, formula by formula."""
    pairs = ((q_len, kv_len), (kv_len, q_len), (BLOCK_Q, BLOCK_KV), (BLOCK_KV, BLOCK_Q))
    for where, let, formula in lets_of(kernel):
        for one, other in pairs:
            names = {s: other for s in formula.free_symbols if str(s) == str(one)}
            changed = formula.xreplace(names)
            yield f"{where}{let.name} with {other} for {one}", with_formula(kernel, let, changed)


# ---------------------------------------------------------------- masks


def selects_dropped(kernel: Kernel) -> Iterator[Fault]:
    """A masked loop without its select."""
    for where, let, formula in lets_of(kernel):
        bare = formula.replace(_is_select, lambda part: part.args[1])
        yield f"{where}{let.name} selects nothing", with_formula(kernel, let, bare)


def selects_bypassed(kernel: Kernel) -> Iterator[Fault]:
    """A reader of the selected score that takes the score itself."""
    selected = {
        let.name: formula.args[1] for _, let, formula in lets_of(kernel) if _is_select(formula)
    }
    for where, let, formula in lets_of(kernel):
        known = {s: selected[str(s)] for s in formula.free_symbols if str(s) in selected}
        if known:
            yield (
                f"{where}{let.name} past the select",
                with_formula(kernel, let, formula.xreplace(known)),
            )


def _is_select(part: Basic) -> bool:
    return isinstance(part, Where) and part.args[2] is S.NegativeInfinity


def mask_terms(kernel: Kernel) -> Iterator[Fault]:
    """Each term of a condition dropped; each comparison shifted by one either way."""
    for where, let, formula in lets_of(kernel):
        if let.dtype == "i1":
            for what, changed in _weakened(formula):
                yield f"{where}{let.name} {what}", with_formula(kernel, let, changed)


def _weakened(condition: Any) -> Iterator[tuple[str, Any]]:
    for part in condition.atoms(And, Or) | ({condition} if condition.args else set()):
        for arg in part.args if isinstance(part, And | Or) else ():
            rest = part.func(*(other for other in part.args if other != arg))
            yield f"without {arg}", condition.xreplace({part: rest})
    for part in condition.atoms(Relational):
        for step in (1, -1):
            shifted = part.func(part.lhs + step, part.rhs)
            yield f"with {part.lhs} {step:+d} in {part}", condition.xreplace({part: shifted})


def positions(kernel: Kernel) -> Iterator[Fault]:
    """The query's position counted from the other end."""
    for where, let, formula in lets_of(kernel):
        if {"q_idx", "kv_len", "q_len"} == {str(s) for s in formula.free_symbols}:
            changed = Symbol("q_idx", integer=True, nonnegative=True)
            yield f"{where}{let.name} counted from the top", with_formula(kernel, let, changed)


# ---------------------------------------------------------------- memory


def guards(kernel: Kernel) -> Iterator[Fault]:
    """Each guard dropped, weakened, or off by one."""
    for where, stmt in statements(kernel):
        node = stmt.value if isinstance(stmt, Let) else stmt
        if not isinstance(node, Load | Store) or node.guard == true:
            continue
        name = f"{where}{stmt.name if isinstance(stmt, Let) else 'store to ' + node.buffer}"
        options = [("unguarded", true), *_weakened(node.guard)]
        for what, guard in options:
            changed = replace(node, guard=guard)
            new = replace(stmt, value=changed) if isinstance(stmt, Let) else cast(Stmt, changed)
            yield f"{name} {what}", swapped(kernel, stmt, new)


def heads(kernel: Kernel) -> Iterator[Fault]:
    """A wrong key/value head, and the query head in its place."""
    for where, let, formula in lets_of(kernel):
        if {str(s) for s in formula.free_symbols} == {"h"} and not let.axes and let.dtype == "i32":
            shared = isinstance(formula, FloorDiv)
            wrong = FloorMod(h, formula.args[1]) if shared else FloorDiv(h, 2)
            yield f"{where}{let.name} is {wrong}", with_formula(kernel, let, wrong)
    for where, stmt in statements(kernel):
        if isinstance(stmt, Let) and isinstance(stmt.value, Load) and "k" in stmt.axes:
            index = tuple(Integer(0) if str(i) == "b" else i for i in stmt.value.index)
            changed = replace(stmt, value=replace(stmt.value, index=index))
            yield f"{where}{stmt.name} of the first batch entry", swapped(kernel, stmt, changed)


# ---------------------------------------------------------------- streaming


def rescales(kernel: Kernel) -> Iterator[Fault]:
    """A carried sum that is not rescaled; an update that forgets what was summed."""
    carried = {stmt.name for stmt in kernel.body if isinstance(stmt, Start)}
    for where, let, formula in lets_of(kernel):
        for symbol in formula.free_symbols:
            factors = [
                part
                for part in formula.atoms(sympy.Mul) | {formula}
                if isinstance(part, sympy.Mul) and symbol in part.args and str(symbol) in carried
            ]
            for part in factors:
                changed = formula.xreplace({part: symbol})
                yield f"{where}{let.name} not rescaled", with_formula(kernel, let, changed)
    for where, stmt in statements(kernel):
        if isinstance(stmt, Let) and isinstance(stmt.value, Dot) and stmt.value.add_to:
            changed = replace(stmt, value=replace(stmt.value, add_to=None))
            yield f"{where}{stmt.name} forgets {stmt.value.add_to}", swapped(kernel, stmt, changed)


def starts(kernel: Kernel) -> Iterator[Fault]:
    """A wrong first content."""
    for stmt in kernel.body:
        if isinstance(stmt, Start) and isinstance(stmt.value, Fill):
            value = Integer(0) if stmt.value.value is S.NegativeInfinity else Integer(1)
            changed = replace(stmt, value=Fill(value))
            yield f"{stmt.name} starts at {value}", swapped(kernel, stmt, changed)


def functions(kernel: Kernel) -> Iterator[Fault]:
    """Functions left out or taken for others, wherever they stand."""
    exchanges: tuple[tuple[str, type, Callable[..., Basic]], ...] = (
        ("without its anchor", Anchor, lambda x: x),
        ("with a bare inverse", InverseOrZero, lambda x: 1 / x),
        ("without its logarithm", Log2, lambda x: x),
        ("without its logarithm", sympy.log, lambda x: x),
        ("with exp for exp2", Exp2, sympy.exp),
        ("without the absolute value", sympy.Abs, lambda x: x),
        ("with min for max", sympy.Max, sympy.Min),
    )
    for where, let, formula in lets_of(kernel):
        for what, function, other in exchanges:
            changed = formula.replace(lambda part, f=function: _applies(part, f), _apply(other))
            if changed != formula:
                yield f"{where}{let.name} {what}", with_formula(kernel, let, changed)


def _applies(part: Basic, function: type) -> bool:
    return isinstance(part, function) and bool(part.free_symbols)


def _apply(function: Callable[..., Basic]) -> Callable[[Basic], Basic]:
    return lambda part: function(*part.args)


def factors(kernel: Kernel) -> Iterator[Fault]:
    """A real factor doubled or left out: a scale, a unit, a sign."""
    for where, let, formula in lets_of(kernel):
        if let.dtype != "f32" or isinstance(formula, Where):
            continue
        yield f"{where}{let.name} doubled", with_formula(kernel, let, 2 * formula)
        for part in formula.atoms(sympy.Mul):
            for factor in part.args if len(part.args) > 1 else ():
                changed = formula.xreplace({part: part / factor})
                yield f"{where}{let.name} without {factor}", with_formula(kernel, let, changed)


CATALOGUE: tuple[Callable[[Kernel], Iterator[Fault]], ...] = (
    scalars_off_by_one,
    pieces,
    lengths_swapped,
    selects_dropped,
    selects_bypassed,
    mask_terms,
    positions,
    guards,
    heads,
    rescales,
    starts,
    functions,
    factors,
)
