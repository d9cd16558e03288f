"""What is known of the size of positions, lengths and scalars.

The launcher's limits (lengths, params, programs of a grid), and what follows from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from sympy import Expr, Symbol

from attnc import symbols
from attnc.ir.nodes import Formula, Kernel, Let
from attnc.ranges import bounds

Range = tuple[int | None, int | None]

LEAST, MOST = -(2**31), 2**31 - 1  # of 32 bits

LENGTH: Range = (0, symbols.MAX_LENGTH)
POSITION: Range = (0, symbols.MAX_LENGTH - 1)
KNOWN: Mapping[str, Range] = {
    "q_len": LENGTH,
    "kv_len": LENGTH,
    "q_idx": POSITION,
    "kv_idx": POSITION,
    "q_pos": (-symbols.MAX_LENGTH, symbols.MAX_LENGTH - 1),
    "q_first": POSITION,
    "q_end": LENGTH,
    "q_block": POSITION,
    "tile": POSITION,
    "kv_first": POSITION,
    "kv_block": POSITION,
    "own_first": POSITION,
    "n_block": POSITION,
    "n_first": (0, 2 * symbols.MAX_LENGTH - 2),  # distances, counted from the least
    "n_idx": (0, 2 * symbols.MAX_LENGTH - 2),
    "member": (0, MOST - 1),
    "turn": (0, MOST - 1),
    "b": (0, MOST - 1),
    "h": (0, MOST - 1),
    "h_kv": (0, MOST - 1),
    "batch": (0, MOST),  # no limit of its own, nor have heads: the grid holds their product
    "heads": (1, MOST),
    "kv_heads": (1, MOST),
    "BLOCK_Q": (16, 256),
    "BLOCK_KV": (16, 256),
}
LOADED: Mapping[str, Range] = {"i32": (LEAST, MOST), "i64": (None, None), "i1": (0, 1)}

_Q_LEN = Symbol("q_len", integer=True, nonnegative=True)
_BEFORE_END = {  # a row of the tile lies before q_len, so q_len cancels where it is subtracted
    name: _Q_LEN + Symbol(f"{name} - q_len", integer=True) for name in ("q_first", "q_idx", "q_end")
}
_BEHIND: Mapping[str, Range] = {
    f"{name} - q_len": (-symbols.MAX_LENGTH, 0 if name == "q_end" else -1) for name in _BEFORE_END
}


def scalar_ranges(kernel: Kernel) -> dict[str, Range]:
    """Ranges of positions and of the kernel's int params."""
    ranges = dict(KNOWN)
    for scalar in kernel.scalars:
        if scalar.kind == "i32" and scalar.name not in ranges:
            ranges[scalar.name] = (-symbols.MAX_PARAM, symbols.MAX_PARAM)
    return ranges


def learn(let: Let, ranges: dict[str, Range]) -> None:
    """Add the range of an integer value."""
    if let.name in KNOWN:
        return
    if let.dtype in ("i32", "i64") and isinstance(let.value, Formula):
        ranges[let.name] = tightest(cast(Expr, let.value.expr), ranges)
    elif let.dtype in LOADED:
        ranges[let.name] = LOADED[let.dtype]


def tightest(formula: Expr, ranges: Mapping[str, Range]) -> Range:
    """Bound a formula: the better of as it stands and with rows counted back from q_len."""
    low, high = bounds(formula, ranges)
    if low is not None and high is not None and low >= LEAST and high <= MOST:
        return low, high
    rows = [symbol for symbol in symbols.symbols_in(formula) if symbol.name in _BEFORE_END]
    if not rows or _Q_LEN not in formula.free_symbols:
        return low, high
    back = symbols.replaced(formula, {symbol: _BEFORE_END[symbol.name] for symbol in rows})
    other_low, other_high = bounds(back, {**ranges, **_BEHIND})
    lows = [end for end in (low, other_low) if end is not None]
    highs = [end for end in (high, other_high) if end is not None]
    return max(lows, default=None), min(highs, default=None)
