"""Which rounds are counted together with their tiles."""

from __future__ import annotations

import pytest

from attnc.driver import compile_spec
from attnc.ir.nodes import Loop, Program, Rounds
from attnc.passes.join_rounds import MOST
from attnc.spec import parse_spec
from attnc.symbols import MAX_LENGTH

KERNEL = "backward_kv"


def rounds_of(text: str) -> list[Rounds | None]:
    program: Program = compile_spec(parse_spec(f"head_dim: 16\n{text}")).program
    (kernel,) = (one for one in program.kernels if one.name == KERNEL)
    return [stmt.rounds for stmt in kernel.body if isinstance(stmt, Loop)]


def are_joined(text: str) -> set[bool]:
    return {rounds is not None and rounds.joined for rounds in rounds_of(text)}


def test_heads_of_a_group_and_their_tiles_take_one_loop() -> None:
    unmasked, masked = rounds_of("heads: {q: 8, kv: 2}\nmask: causal")
    assert unmasked is not None and masked is not None
    assert unmasked.joined and masked.joined
    assert str(unmasked.count) == str(masked.count) == "4"


def test_a_head_without_a_group_takes_no_rounds() -> None:
    assert rounds_of("heads: 8\nmask: causal") == [None, None]


WIDTH = "tensors:\n  width: {shape: [heads], dtype: int32}\n"
SLOPE = "tensors:\n  slope: {shape: [heads]}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{WIDTH}mask: causal & (q_pos - kv_idx < width[h])",  # each head has its own tiles
        f"{SLOPE}score: score - slope[h] * abs(q_pos - kv_idx)",  # a number read once a round
    ],
)
def test_what_differs_by_head_keeps_its_rounds(text: str) -> None:
    assert are_joined(f"heads: {{q: 8, kv: 2}}\n{text}") == {False}


@pytest.mark.parametrize(("group", "joined"), [(MOST, True), (MOST + 1, False)])
def test_steps_of_all_rounds_can_be_counted_in_32_bits(group: int, joined: bool) -> None:
    assert are_joined(f"heads: {{q: {group}, kv: 1}}\nmask: causal") == {joined}
    assert (group * MAX_LENGTH // 16 < 2**31) == joined
