"""Derive how a spec's formulas align queries with keys, where q_len and kv_len differ.

The last query stands at the last key exactly when q_idx enters as q_idx + kv_len - q_len: written
in that position, the formula is free of both lengths.  The first query stands at the first key when
q_idx enters and no length does.  A formula that compares no positions aligns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import sympy
from sympy import Basic, Expr, Symbol
from sympy.core.relational import Relational

from attnc import symbols
from attnc.spec.schema import AttentionSpec
from attnc.symbols import Read, names_in, replaced

TOP_LEFT, BOTTOM_RIGHT, MIXED = "top-left", "bottom-right", "mixed"
_POSITION = Symbol("position", integer=True)
_FROM_THE_END = {symbols.q_idx: _POSITION - symbols.kv_len + symbols.q_len}
_LENGTHS = {str(symbols.q_len), str(symbols.kv_len)}


def alignment(spec: AttentionSpec) -> str:
    """Say how the mask and the score align query and key positions."""
    uses = [use for formula in (spec.mask, spec.score) for use in _uses(formula)]
    kinds = {_kind(use) for use in uses}
    if not kinds:
        return "none needed: no formula compares query and key positions"
    if len(kinds) > 1 or None in kinds:
        return f"{MIXED}: the formulas use q_idx, q_len and kv_len in more than one way"
    kind = kinds.pop() or MIXED
    compared = [use for use in uses if _names_outside_reads(use) >= _PAIR or _reads_both(use)]
    if not compared:
        return f"{kind}: a query's position is {_COUNTED[kind]}"
    if any(_is_even(use, kind) for use in compared):
        return f"{kind}: {_MEANS[kind]}"
    others = sorted(set().union(*map(names_in, compared)) - _LENGTHS - _POSITIONS)
    up_to = f", up to {', '.join(others)}" if others else ""
    return f"{kind}: kv_idx is compared with {_COUNTED[kind]}{up_to}"


_PAIR = {"q_idx", "kv_idx"}
_POSITIONS = {"b", "h", "h_kv", "q_idx", "kv_idx", "score"}
_COUNTED = {TOP_LEFT: "q_idx", BOTTOM_RIGHT: "q_pos = q_idx + kv_len - q_len"}
_MEANS = {
    TOP_LEFT: "query 0 stands at key 0",
    BOTTOM_RIGHT: "q_pos = q_idx + kv_len - q_len, so the last query stands at the last key",
}


def _uses(formula: Basic) -> Iterator[Expr]:
    """The comparisons and sums, as large as can be, that speak of a query's position."""
    yield from _uses_in(formula.xreplace({symbols.q_pos: symbols.Q_POS}))


def _uses_in(formula: Basic) -> Iterator[Expr]:
    if isinstance(formula, Relational):
        left, right = symbols.arguments(formula)
        whole = sympy.expand(left - right)
    elif isinstance(formula, sympy.Add):
        whole = _of_positions(formula)
    else:
        whole = formula
    if isinstance(whole, Expr) and _is_use(formula, whole):
        yield whole
        return
    for arg in formula.args:
        if not (isinstance(formula, Read) and isinstance(arg, Symbol)):
            yield from _uses_in(arg)


def _is_use(formula: Basic, whole: Basic) -> bool:
    """Whether what a part of a formula says of positions is to be seen as one."""
    if not isinstance(formula, Relational | sympy.Add | Symbol):
        return False
    if isinstance(formula, Relational) and _reads_both(whole):
        return True
    return "q_idx" in _names_outside_reads(whole)


def _of_positions(total: sympy.Add) -> Expr:
    """A sum of integers as it is; of a sum of scores, the terms that are made of one position."""
    if total.is_integer:
        return total
    known = _PAIR | _LENGTHS
    named = {term: _names_outside_reads(term) & (known | {"score"}) for term in total.args}
    return sympy.Add(*(t for t, names in named.items() if len(names) == 1 and names <= known))


def _names_outside_reads(formula: Basic) -> set[str]:
    if isinstance(formula, Read):
        return set()
    if isinstance(formula, Symbol):
        return {formula.name}
    return set().union(*map(_names_outside_reads, formula.args))


def _reads_both(formula: Basic) -> bool:
    """Whether elements of one tensor at a query and at a key are compared, as documents are."""
    reads = formula.atoms(Read)
    at_query = {read.args[0] for read in reads if _only(read, "q_idx", "kv_idx")}
    return bool(at_query & {read.args[0] for read in reads if _only(read, "kv_idx", "q_idx")})


def _only(read: Basic, name: str, other: str) -> bool:
    return name in names_in(read) and other not in names_in(read)


def _kind(use: Basic) -> str | None:
    if not names_in(use) & _LENGTHS:
        return TOP_LEFT
    from_the_end = sympy.expand(use.xreplace(_FROM_THE_END))
    return None if names_in(from_the_end) & _LENGTHS else BOTTOM_RIGHT


def _is_even(use: Expr, kind: str | None) -> bool:
    """Whether a comparison treats position and key alike, so that nothing shifts them."""
    position = _FROM_THE_END if kind == BOTTOM_RIGHT else {symbols.q_idx: _POSITION}
    at = sympy.expand(replaced(use, position))
    swapped = replaced(at, {_POSITION: symbols.kv_idx, symbols.kv_idx: _POSITION})
    return sympy.expand(at - swapped) == 0 or sympy.expand(at + swapped) == 0
