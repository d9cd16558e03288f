"""Feature axes in powers of two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnc.driver import lower_spec
from attnc.ir.nodes import Loop
from attnc.passes.split_axis import piece_widths
from attnc.spec import parse_spec


@pytest.mark.parametrize(
    ("size", "widths"),
    [
        (1, (16,)),
        (16, (16,)),
        (24, (32,)),
        (40, (32, 16)),
        (100, (64, 32, 16)),
        (120, (128,)),
        (72, (64, 16)),
        (80, (64, 16)),
        (96, (64, 32)),
        (112, (64, 32, 16)),
        (128, (128,)),
        (192, (128, 64)),
        (256, (128, 128)),
        (576, (128,) * 4 + (64,)),
    ],
)
def test_known_sizes(size: int, widths: tuple[int, ...]) -> None:
    assert piece_widths(size, 128) == widths


@given(st.integers(1, 1024), st.sampled_from([16, 32, 64, 128, 256]))
def test_pieces_cover_the_axis_with_less_than_one_smallest_tile_to_spare(
    size: int, widest: int
) -> None:
    widths = piece_widths(size, widest)
    assert size <= sum(widths) < size + 16
    assert all(width & (width - 1) == 0 and 16 <= width <= widest for width in widths)
    assert list(widths) == sorted(widths, reverse=True)


def test_what_a_round_begins_with_is_split_too() -> None:
    """Found by `make fuzz`: a dense bias with a gradient, at a head dim of two pieces."""
    spec = parse_spec(
        "heads: 2\nhead_dim: 48\nscore: score + bias[q_idx, kv_idx]\n"
        "tensors: {bias: {shape: [q_len, kv_len], grad: true}}\n"
    )
    (kernel,) = (k for k in lower_spec(spec).kernels if k.name == "backward_bias")
    (loop, *_) = (stmt for stmt in kernel.body if isinstance(stmt, Loop))
    assert loop.rounds is not None
    names = {let.name for let in loop.rounds.lets} | {let.name for let in loop.body}
    assert {"q_tile_0", "q_tile_1"} <= names and "q_tile" not in names
