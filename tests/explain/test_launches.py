"""What a launch does: tiles by hand, and the same work from both sides of the score matrix."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from attnc.driver import lower_spec
from attnc.explain.launches import Launch, launch_of
from attnc.explain.situation import situation_of
from attnc.ir.nodes import Program
from attnc.spec import parse_spec, read_spec
from attnc.spec.schema import AttentionSpec

SPECS = Path(__file__).parents[2] / "specs"
CAUSAL = """
heads: {q: 4, kv: 2}
head_dim: {qk: 64, v: 32}
mask: causal
outputs: [lse]
sizes: {batch: 3, q_len: 256, kv_len: 256}
"""


@cache
def lowered(text: str) -> tuple[AttentionSpec, Program]:
    spec = read_spec(SPECS / text) if text.endswith(".yaml") else parse_spec(text)
    return spec, lower_spec(spec)


def launch(text: str, name: str, block_q: int = 64, block_kv: int = 64) -> Launch:
    spec, program = lowered(text)
    kernel = next(kernel for kernel in program.kernels if kernel.name == name)
    return launch_of(kernel, situation_of(spec), block_q, block_kv, 2)


def test_a_causal_forward_by_hand() -> None:
    found = launch(CAUSAL, "forward")
    assert found.programs == ((0, 1), (1, 1), (2, 1), (3, 1))  # in the order of launch
    assert found.copies == 3 * 4
    assert found.tiles == 12 * (6 + 4)
    assert found.tile_flops == 2 * 64 * 64 * (64 + 32)
    assert found.tile_bytes == 64 * (64 + 32) * 2
    q, k, v, out, lse = 4 * 64 * 2, 2 * 64 * 2, 2 * 32 * 2, 4 * 32 * 2, 4 * 4
    assert found.bytes == 3 * 256 * (q + k + v + out + lse)


def test_the_last_tiles_first() -> None:
    spec, program = lowered(CAUSAL)
    found = launch_of(program.kernels[0], situation_of(spec), 64, 64, 2, last_first=True)
    assert found == replace(launch(CAUSAL, "forward"), programs=((3, 1), (2, 1), (1, 1), (0, 1)))


def test_the_backward_of_grouped_heads_walks_every_query_head() -> None:
    found = launch(CAUSAL, "backward_kv")
    assert found.programs == ((6, 2), (4, 2), (2, 2), (0, 2))
    assert found.copies == 3 * 2
    assert found.tile_flops == 2 * 64 * 64 * 2 * (64 + 32)
    # q, grad_out and two numbers for each row
    assert found.tile_bytes == 64 * (64 + 32) * 2 + 2 * 64 * 4


def test_products_are_counted_as_padded() -> None:
    found = launch("heads: 1\nhead_dim: 72\nbackward: false\n", "forward", 32, 16)
    assert found.tile_flops == 2 * 32 * 16 * 2 * (64 + 16)


@pytest.mark.parametrize(
    "name", ["llama3_gqa", "per_head_window", "gpt_oss", "documents_packed", "prefix_lm"]
)
def test_all_kernels_visit_the_same_tiles(name: str) -> None:
    """A tile has a visible pair, whichever way it is reached."""
    tiles = {launch(f"{name}.yaml", one).tiles for one in ("forward", "backward_q", "backward_kv")}
    assert len(tiles) == 1 and tiles != {0}


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_kernel_of_every_spec_can_be_counted(path: Path) -> None:
    for kernel in lowered(path.name)[1].kernels:
        found = launch(path.name, kernel.name, 128, 128)
        assert found.copies * len(found.programs) > 0 and found.bytes > 0
        assert (found.tile_flops > 0) == (found.tiles > 0)
