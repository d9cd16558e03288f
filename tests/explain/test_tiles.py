"""Tile counts from the loop ranges against brute force."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnc.driver import lower_spec
from attnc.explain import tiles as tiles_module
from attnc.explain.situation import situation_of
from attnc.explain.tiles import count_tiles, needed_tiles
from attnc.spec import read_spec
from tests.explain.specs import lowered

MASKS = (
    "causal",
    "causal(top_left)",
    "causal & sliding_window(37)",
    "window(20, 11)",
    "causal | prefix(50)",
    "global_tokens(3) | window(16, 16)",
    "(q_idx // 40) == (kv_idx // 40)",
    "kv_idx < 0",
    "true",
)
SIZES = ((100, 100), (1, 77), (64, 200), (130, 90), (1, 1), (0, 5), (5, 0))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("q_len", "kv_len"), SIZES)
@pytest.mark.parametrize(("block_q", "block_kv"), [(16, 32), (64, 16)])
def test_visits_what_holds_a_visible_pair(
    mask: str, q_len: int, kv_len: int, block_q: int, block_kv: int
) -> None:
    spec, program = lowered(f"mask: {mask}\n" if mask != "true" else "")
    at = situation_of(spec, 2, q_len, kv_len)
    found = count_tiles(program.kernels[0], at, block_q, block_kv)
    needed = needed_tiles(spec, at, block_q, block_kv)
    assert needed is not None
    assert found.visited == needed.tiles
    assert found.unmasked_pairs <= needed.pairs <= found.visited_pairs


SPECS = sorted((Path(__file__).parent.parent.parent / "specs").glob("*.yaml"))
BEYOND_THE_ALGEBRA = {"documents_packed": "which keys are seen stands in a tensor"}


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_no_spec_visits_a_tile_in_vain(path: Path) -> None:
    spec = read_spec(path)
    program = lower_spec(spec)
    spare = 0
    for size in spec.check:
        at = situation_of(spec, 1, size.q_len, size.kv_len, dict(size.params))
        for block_q, block_kv in ((16, 32), (32, 16)):
            needed = needed_tiles(spec, at, block_q, block_kv)
            assert needed is not None
            found = count_tiles(program.kernels[0], at, block_q, block_kv)
            assert found.visited >= needed.tiles
            spare += found.visited - needed.tiles
    assert spec.check and (spare > 0) is (spec.name in BEYOND_THE_ALGEBRA)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("q_len", "kv_len"), [(100, 100), (1, 1), (0, 5)])
def test_densities_stay_between_nothing_and_all(mask: str, q_len: int, kv_len: int) -> None:
    spec, program = lowered(f"mask: {mask}\n" if mask != "true" else "")
    at = situation_of(spec, 1, q_len, kv_len)
    found = count_tiles(program.kernels[0], at, 128, 128)
    assert 0.0 <= found.density <= 1.0
    assert 0.0 <= found.visited_area <= 1.0


def test_density_counts_the_real_area_not_the_padding() -> None:
    """FAULTS B14: causal at 100 with tiles of 128 once gave a sparsity of -64%."""
    spec, program = lowered("mask: causal\n")
    at = situation_of(spec, 1, 100, 100)
    found = count_tiles(program.kernels[0], at, 128, 128)
    assert (found.total_pairs, found.visited_pairs) == (4 * 100 * 100, 4 * 100 * 100)
    needed = needed_tiles(spec, at, 128, 128)
    assert needed is not None and needed.pairs == 4 * 5050


def test_a_million_tokens_without_anything_dense() -> None:
    spec, program = lowered("mask: causal & sliding_window(4096)\n")
    at = situation_of(spec, 1, 2**20, 2**20)
    found = count_tiles(program.kernels[0], at, 128, 64)
    # a tile of 128 queries reaches 4095 keys back: 66 tiles of 64 keys, fewer for the first 32
    assert found.visited == 4 * sum(min(2 * i + 2, 66) for i in range(2**20 // 128))
    assert needed_tiles(spec, at, 128, 64) is None


@pytest.mark.parametrize("mask", MASKS)
def test_an_estimate_is_close_and_says_that_it_is_one(
    mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, program = lowered(f"mask: {mask}\n" if mask != "true" else "")
    at = situation_of(spec, 2, 5000, 5000)
    exact = count_tiles(program.kernels[0], at, 16, 16)
    monkeypatch.setattr(tiles_module, "MOST_VISITS", 128)
    found = count_tiles(program.kernels[0], at, 16, 16)
    assert len(exact.visits) == exact.differing == found.differing
    assert 64 < len(found.visits) <= 128
    assert found.visited == pytest.approx(exact.visited, rel=0.02)
    assert found.visited_pairs == pytest.approx(exact.visited_pairs, rel=0.02)


def test_an_estimate_keeps_step_with_no_number_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each head of this mask sees another width; head 0 alone would stand for few pairs."""
    spec, program = lowered(
        "tensors: {lengths: {shape: [batch], dtype: int32}}\n"
        "mask: causal & (q_pos - kv_idx < 16 + 64 * h) & (kv_idx < lengths[b])\n"
    )
    at = situation_of(spec, 64, 512, 512)
    exact = count_tiles(program.kernels[0], at, 16, 16)
    monkeypatch.setattr(tiles_module, "MOST_VISITS", 2048)
    found = count_tiles(program.kernels[0], at, 16, 16)
    assert len(found.visits) < len(exact.visits)
    assert found.visited == pytest.approx(exact.visited, rel=0.1)


def test_the_longest_call_of_many_heads_is_estimated_at_once() -> None:
    spec, program = lowered("mask: kv_idx <= q_idx + h\n")
    at = situation_of(spec, 2**30, 2**30, 2**30)
    found = count_tiles(program.kernels[0], at, 128, 64)
    assert len(found.visits) <= tiles_module.MOST_VISITS < found.differing
    assert found.visited_area == pytest.approx(0.5, abs=1e-6)
