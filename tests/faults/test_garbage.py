"""Kind F: what lies in padding, in hidden keys and in fresh memory never matters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attnc.verify.reference import Call
from attnc.verify.scan import scan_loads
from tests.faults.judge import Build, agree, answer, inputs

LENGTHS = "tensors: {lengths: {shape: [batch], dtype: int32}}\nmask: (kv_idx < lengths[b])"


@pytest.mark.parametrize("filling", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize(
    "extra", ["", " & (kv_idx % 3 != 1)", " & causal(top_left)"], ids=["prefix", "holes", "causal"]
)
def test_f01_a_cache_full_of_garbage_beyond_its_length(
    build: Build, filling: float, extra: str
) -> None:
    built = build(LENGTHS + extra)
    lengths = torch.tensor([8, 16, 27, 0]).int()
    call = inputs(built.spec, 20, 40, batch=4, lengths=lengths)
    dirty = {name: call.tensors[name].clone() for name in "kv"}
    for tensor in dirty.values():
        for entry, length in enumerate(lengths.tolist()):
            tensor[entry, :, length:] = filling
        if "%" in extra:
            tensor[:, :, 1::3] = filling
        if "causal" in extra:
            tensor[:, :, 20:] = filling
    got = agree(built, Call(call.spec, dict(call.tensors) | dirty, {}), clean=call)
    clean = answer(built, call)
    assert torch.equal(got.out, clean.out) and torch.equal(got.lse, clean.lse)


@pytest.mark.parametrize("mask", ["causal(top_left)", "sliding_window(3)", "prefix(7)"])
def test_f01_keys_that_no_query_sees(build: Build, mask: str) -> None:
    built = build(f"mask: {mask}")
    call = inputs(built.spec, 9, 37)
    hidden = {
        "causal(top_left)": slice(9, 37),
        "sliding_window(3)": slice(0, 26),
        "prefix(7)": slice(7, 37),
    }[mask]
    dirty = {name: call.tensors[name].clone() for name in "kv"}
    for tensor in dirty.values():
        tensor[:, :, hidden] = torch.nan
    got = agree(built, Call(call.spec, dict(call.tensors) | dirty, {}), clean=call)
    assert torch.equal(got.out, answer(built, call).out)


def test_f01_queries_that_see_no_key(build: Build) -> None:
    built = build("mask: causal")
    call = inputs(built.spec, 20, 9)
    dirty = call.tensors["q"].clone()
    dirty[:, :, :11] = torch.nan
    got = agree(built, Call(call.spec, dict(call.tensors) | {"q": dirty}, {}), clean=call)
    assert torch.equal(got.out, answer(built, call).out)


def test_f03_no_masked_load_leaves_its_lanes_undefined() -> None:
    generated = sorted((Path(__file__).parents[2] / "generated").glob("*.py"))
    assert generated
    assert {path.name: found for path in generated if (found := scan_loads(path.read_text()))} == {}


def test_f05_lengths_that_make_no_sense_read_nothing_outside(build: Build) -> None:
    """Lengths are data: below 0 is no key, beyond the buffer is all of it."""
    built = build(LENGTHS)
    lengths = torch.tensor([-3, -(2**31), 1000, 2**31 - 1]).int()
    got = agree(built, inputs(built.spec, 5, 20, batch=4, lengths=lengths))
    assert (got.out[:2] == 0).all() and (got.lse[2:] > -torch.inf).all()


def test_f05_indices_that_make_no_sense_read_zero(build: Build) -> None:
    built = build(
        "tensors: {row: {shape: [q_len], dtype: int64}, table: {shape: [7, kv_len]}}\n"
        "score: score + table[row[q_idx], kv_idx - 3]"
    )
    row = torch.tensor([0, 6, 7, -1, 2**40, -(2**62), 3, 2**32])
    table = torch.randn(7, 20, generator=torch.Generator().manual_seed(1))
    agree(built, inputs(built.spec, 8, 20, row=row, table=table))


@pytest.mark.parametrize("block_q", [16, 32, 64, 128])
def test_f07_short_sequences_in_tiles_of_any_size(build: Build, block_q: int) -> None:
    """answer() puts canaries around every allocation and NaN into it."""
    built = build("heads: 1\n" + LENGTHS)
    lengths = torch.arange(1, 21).int()
    agree(built, inputs(built.spec, 3, 20, batch=20, lengths=lengths), (block_q, 32))


def test_f_a_second_run_gives_the_same_bits(build: Build) -> None:
    built = build("mask: causal")
    call = inputs(built.spec, 33, 33)
    first, second = answer(built, call), answer(built, call)
    assert torch.equal(first.out, second.out) and torch.equal(first.lse, second.lse)
