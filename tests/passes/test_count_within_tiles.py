"""Guards of loads, compared within the tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import And, Float, Min, Or, Symbol, true
from sympy.logic.boolalg import Boolean

from attnc.ir.nodes import (
    Collapse,
    Fill,
    Formula,
    Kernel,
    Let,
    Level,
    Load,
    Loop,
    Program,
    Start,
    Store,
    Update,
)
from attnc.ir.verifier import verify
from attnc.passes.count_within_tiles import CountWithinTiles
from attnc.symbols import b, kv_idx, kv_len, q_idx, q_len, value_symbol
from attnc.verify.interpreter import run
from tests.ir import programs
from tests.verify.kernels import interface

HI, LO = value_symbol("hi", "i32"), value_symbol("lo", "i32")
WITHIN = Symbol("kv_in_tile", integer=True, nonnegative=True)
END = Min(HI, kv_len)
GUARDS = {
    "end": kv_idx < END,
    "end and a scalar": And(kv_idx < END, LO > 3),
    "end of each row": kv_idx < Min(END, q_idx + 1),
    "both ends": And(kv_idx < END, kv_idx >= LO),
    "two ranges": And(kv_idx < kv_len, Or(kv_idx < HI, kv_idx >= LO)),
}


def sums(guard: Boolean) -> Kernel:
    """Each row sums the elements of the keys that the guard lets in."""
    total, rows = value_symbol("total"), q_idx < q_len
    along = ("q", "k", "d") if q_idx in guard.free_symbols else ("k", "d")
    lets = (
        Let("k_tile", Load("k", (b, kv_idx, programs.D_IDX), guard), along, "element"),
        Let("by_feature", Collapse("sum", "k_tile", "k"), tuple(a for a in along if a != "k")),
        Let("of_tile", Collapse("sum", "by_feature", "d"), along[:-2]),
        Let("more", Formula(total + value_symbol("of_tile")), ("q",)),
    )
    loop = replace(programs.loop(), body=lets, reductions=(), updates=(Update("total", "more"),))
    start = Start("total", Fill(Float(0)), ("q",))
    kernel = programs.kernel(
        (programs.body()[0], start, loop, Store("out", (b, q_idx), "total", rows))
    )
    ends = tuple(replace(kernel.scalars[0], name=name) for name in ("hi", "lo"))
    return replace(kernel, scalars=(*kernel.scalars, *ends))


def changed(guard: Boolean) -> Kernel:
    kernel = CountWithinTiles().run(sums(guard))
    verify(kernel, Level.READY)
    return kernel


def guard_after(guard: Boolean) -> Boolean:
    (loop,) = (stmt for stmt in changed(guard).body if isinstance(stmt, Loop))
    load = loop.body[0].value
    assert isinstance(load, Load)
    return load.guard


@pytest.mark.parametrize("beside", [true, LO > 3])
def test_a_single_bound_is_compared_within_the_tile(beside: Boolean) -> None:
    bound = WITHIN < HI - programs.KV_FIRST
    assert guard_after(And(kv_idx < HI, beside)) == And(bound, beside)


@pytest.mark.parametrize("guard", [true, kv_idx >= LO, GUARDS["both ends"], GUARDS["two ranges"]])
def test_other_guards_stay(guard: Boolean) -> None:
    assert guard_after(guard) == guard


@settings(deadline=None)
@given(
    st.sampled_from(sorted(GUARDS)),
    st.sampled_from([16, 32]),
    st.integers(0, 70),
    st.integers(-5, 75),
    st.integers(-5, 75),
)
def test_keeps_the_meaning(guard: str, block: int, keys: int, hi: int, lo: int) -> None:
    draw = np.random.default_rng(keys)
    tensors = {"q": np.zeros((2, 19, 16)), "k": draw.normal(size=(2, keys, 16))}
    before, after = (
        run(
            Program(interface(true), (kernel,), Level.READY),
            tensors,
            {"hi": hi, "lo": lo},
            (16, block),
        )
        for kernel in (sums(GUARDS[guard]), changed(GUARDS[guard]))
    )
    np.testing.assert_array_equal(after["out"], before["out"])
