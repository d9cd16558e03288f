from __future__ import annotations

from dataclasses import replace

import pytest
from sympy import Integer, Symbol

from attnc.ir.nodes import (
    Axis,
    Collapse,
    Contract,
    Dot,
    Fill,
    Formula,
    Kernel,
    Let,
    Level,
    Load,
    Piece,
    Rounds,
    Start,
    Store,
    Update,
)
from attnc.ir.verifier import IRError, verify
from attnc.symbols import b, kv_idx, kv_len, q_idx
from tests.ir import programs
from tests.ir.programs import D_IDX, body, kernel, lets, reductions, with_loop


def test_the_kernel_itself_is_well_formed() -> None:
    verify(kernel(), Level.STREAMED)


def loop_with(*more: Let) -> Kernel:
    return with_loop(body=(*lets(), *more))


def last(statement: object) -> Kernel:
    return kernel((*body(), statement))  # type: ignore[arg-type]


m, ell = reductions()
S = programs.S
BROKEN = [
    (last(Let("s2", Formula(S), ("q",))), "s2 uses s before it is bound"),
    (loop_with(Let("s", Formula(S), ("q", "k"))), "s is bound twice"),
    (
        last(Let("kv_len", Formula(Integer(3)), dtype="i32")),
        "kv_len is bound, but it is a scalar of the call",
    ),
    (loop_with(Let("x", Formula(S), ("q",))), "x['q'] varies along k too"),
    (last(Let("x", Formula(kv_idx), ("k",), "i32")), "x has axis k outside its loop"),
    (last(Let("x", Load("v", (b,)))), "x touches v, which is no buffer of row_sum"),
    (last(Let("x", Load("q", (b, q_idx)), ("q",))), "x gives q 2 indices for 3 dims"),
    (
        last(Let("x", Load("q", (b, q_idx, D_IDX)), ("q", "d", "k"))),
        "x['q', 'd', 'k'] cannot vary along k",
    ),
    (
        loop_with(Let("x", Contract("s", "k_tile", ("d",)), ("q", "k"))),
        "x sums over d, which s or k_tile lacks",
    ),
    (last(Let("x", Fill(Integer(0)))), "Fill cannot stand in a streamed kernel"),
    (last(Let("x", Collapse("max", "l", "k"))), "x collapses k, which l lacks"),
    (with_loop(updates=(Update("l", "m"),)), "Update cannot stand in a streamed kernel"),
    (with_loop(axis="z"), "a loop runs over z, which is no axis of row_sum"),
    (with_loop(pieces=(Piece(Integer(0), q_idx),)), "the range of the loop over k varies within"),
    (with_loop(reductions=(ell, m)), "l uses m before it is bound"),
    (with_loop(reductions=(m, m)), "m is bound twice"),
    (with_loop(reductions=(replace(m, over="q"),)), "m reduces over q in a loop over k"),
    (with_loop(reductions=(m, replace(ell, repair=None))), "l needs both follows and repair"),
    (
        with_loop(reductions=(replace(m, kind="sum"), ell)),
        "l follows m, which is no maximum of its loop",
    ),
    (with_loop(reductions=(replace(m, init=None), ell)), "m continues a reduction that no loop"),
    (with_loop(reductions=(replace(m, axes=()), ell)), "m[] varies along q too"),
    (last(Store("q", (b, q_idx, D_IDX), "l")), "a store writes q, which is an input"),
    (last(Store("out", (b, kv_len), "l")), "a store of l to out drops axis q"),
    (last(Store("out", (b, q_idx), "ghost")), "a store uses ghost before it is bound"),
    (last(Let("x", Formula(Symbol("ghost")))), "x uses ghost before it is bound"),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN, ids=[text for _, text in BROKEN])
def test_refuses(broken: Kernel, message: str) -> None:
    with pytest.raises(IRError) as caught:
        verify(broken, Level.STREAMED)
    assert message in str(caught.value)


def test_refuses_two_axes_of_one_name() -> None:
    axis = Axis("q", "rows", kv_len, Integer(16), q_idx, Integer(0))
    twice = replace(kernel(), axes=(*kernel().axes, axis))
    with pytest.raises(IRError, match="axis q is declared twice"):
        verify(twice, Level.STREAMED)


def ready(*body_of_loop: Let, updates: tuple[Update, ...]) -> Kernel:
    first, second, loop, store = body()
    start = Start("l", Fill(Integer(0)), ("q",))
    lowered = replace(loop, body=(*_dots(), *body_of_loop), reductions=(), updates=updates)
    return kernel((first, second, start, lowered, store))  # type: ignore[arg-type]


def _dots() -> tuple[Let, ...]:
    load, _ = lets()
    return load, Let("s", Dot("q_tile", "k_tile", "d"), ("q", "k"))


def test_ready_kernels_carry_values() -> None:
    row = Let("row", Collapse("sum", "s", "k"), ("q",))
    grown = Let("grown", Formula(Symbol("l") + Symbol("row")), ("q",))
    verify(ready(row, grown, updates=(Update("l", "grown"),)), Level.READY)


def test_refuses_an_update_of_another_shape() -> None:
    with pytest.raises(IRError, match="l becomes s, whose axes differ"):
        verify(ready(updates=(Update("l", "s"),)), Level.READY)


def test_refuses_an_update_of_what_was_never_started() -> None:
    with pytest.raises(IRError, match="q_tile is updated but was never started"):
        verify(ready(updates=(Update("q_tile", "s"),)), Level.READY)


def test_refuses_a_sum_onto_another_shape() -> None:
    onto = Let("x", Dot("q_tile", "k_tile", "d", "l"), ("q", "k"))
    with pytest.raises(IRError, match="x adds a product over k, q to l"):
        verify(ready(onto, updates=()), Level.READY)


def test_refuses_declared_reductions_in_a_ready_kernel() -> None:
    with pytest.raises(IRError, match="cannot stand in a ready kernel"):
        verify(kernel(), Level.READY)


def test_joined_rounds_have_the_same_tiles() -> None:
    member = Symbol("member", integer=True)
    rounds = Rounds(member, Integer(4), (), joined=True)
    whole = with_loop(rounds=rounds)
    verify(whole, Level.STREAMED)
    with pytest.raises(IRError, match="joined rounds of member have different tiles"):
        verify(with_loop(rounds=rounds, pieces=(Piece(Integer(0), member),)), Level.STREAMED)
