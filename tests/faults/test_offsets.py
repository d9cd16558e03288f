"""Kind E: offsets and index arithmetic past 32 bits, limits of the grid.

Memory that nobody touches costs nothing, so a buffer of many GB is fine here.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from attnc.verify.reference import Call
from tests.faults.judge import Build, Built, agree, answer, inputs

FAR = 2**31 // 30  # elements between rows: row 30 lies past 2**31


def lazy(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A view with huge strides; only its own elements are ever touched."""
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    return torch.empty(reach, dtype=dtype).as_strided(shape, strides)


def spread(call: Call, names: str, strides: tuple[int, ...]) -> Call:
    moved = {name: lazy(tuple(call.tensors[name].shape), strides, torch.float16) for name in names}
    for name, view in moved.items():
        view.copy_(call.tensors[name])
    return Call(call.spec, dict(call.tensors) | moved, call.params)


@pytest.mark.parametrize(
    "strides",
    [(1, 1, 2**31 // 15, 1), (1, 1, 16, 2**31 // 12), (1, 1, 2**31 // 40 + 1, 2**31 // 30)],
    ids=["rows", "features", "only both together"],
)
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_e02_offsets_within_a_tile(build: Build, name: str, strides: tuple[int, ...]) -> None:
    built = build("heads: 1")
    call = inputs(built.spec, 18, 18, dtype=torch.float16)
    assert torch.equal(agree(built, spread(call, name, strides)).out, agree(built, call).out)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_e02_offsets_between_tiles(build: Build, name: str) -> None:
    """Each tile lies within 2**31 elements, the second one beyond: the base must be 64 bits."""
    built = build("heads: 1")
    call = inputs(built.spec, 40, 40, dtype=torch.float16)
    far = spread(call, name, (1, 1, 2**31 // 32, 1))
    assert torch.equal(agree(built, far).out, agree(built, call).out)


@pytest.mark.parametrize(
    "strides", [(2**31 // 2, 16, 16, 1), (0, 2**31 // 2, 16, 1)], ids=["batch", "heads"]
)
def test_e02_offsets_between_heads_and_batch_entries(
    build: Build, strides: tuple[int, ...]
) -> None:
    built = build("heads: 3")
    call = inputs(built.spec, 1, 3, batch=3, dtype=torch.float16)
    if strides[0] == 0:
        call = Call(
            call.spec, {name: t[:1].expand(3, -1, -1, -1) for name, t in call.tensors.items()}, {}
        )
    else:
        call = Call(
            call.spec,
            {name: t[:, :1].expand(-1, 3, -1, -1) for name, t in call.tensors.items()},
            {},
        )
        strides = (strides[0], 0, 16, 1)
    far = {name: lazy(tuple(t.shape), strides, torch.float16) for name, t in call.tensors.items()}
    for name, view in far.items():
        if strides[0] == 0:
            view[:1].copy_(call.tensors[name][:1])
        else:
            view[:, :1].copy_(call.tensors[name][:, :1])
    assert torch.equal(agree(built, Call(call.spec, far, {})).out, agree(built, call).out)


def test_e03_arithmetic_of_a_mask(build: Build) -> None:
    built = build("mask: (q_pos + 50000) * 100003 - (kv_idx + 50000) * 100003 >= 0")
    causal = build("mask: causal")
    got, same = (agree(one, inputs(one.spec, 32, 32)) for one in (built, causal))
    assert torch.equal(got.out, same.out)


@pytest.mark.parametrize("stretch", [1, 100_003, 2**29, -(2**29)])
def test_e03_arithmetic_with_a_run_time_factor(build: Build, stretch: int) -> None:
    built = build(
        "params: {stretch: {type: int}}\nmask: q_pos * stretch - kv_idx * stretch >= 0\n"
        "check: [{stretch: 1}]"
    )
    agree(built, inputs(built.spec, 32, 40, stretch=stretch))


def test_e03_arithmetic_of_an_index(build: Build) -> None:
    """An index past 2**32 is outside of the tensor, and must not wrap to an element inside."""
    built = build(
        "params: {stretch: {type: int}}\ntensors: {bias: {shape: [heads, kv_len]}}\n"
        "score: score + bias[h, kv_idx * stretch]\ncheck: [{stretch: 1}]"
    )
    bias = torch.randn(2, 33, generator=torch.Generator().manual_seed(1))
    for stretch in (1, 3, 2**28, 2**29):
        agree(built, inputs(built.spec, 3, 33, bias=bias, stretch=stretch))


def test_e04_a_bias_with_rows_far_apart(build: Build) -> None:
    built = build(
        "tensors: {bias: {shape: [q_len, kv_len], dtype: fp16}}\nscore: score + bias[q_idx, kv_idx]"
    )
    bias = torch.randn(40, 20, generator=torch.Generator().manual_seed(1)).half()
    far = lazy((40, 20), (FAR, 1), torch.float16)
    far.copy_(bias)
    call = inputs(built.spec, 40, 20, bias=bias)
    same = Call(call.spec, dict(call.tensors) | {"bias": far}, {})
    for tiles in ((16, 16), (64, 32)):
        assert torch.equal(agree(built, same, tiles).out, agree(built, call, tiles).out)


def test_e04_a_gathered_row_far_away(build: Build) -> None:
    built = build(
        "tensors: {table: {shape: [40, kv_len], dtype: fp16}}\n"
        "score: score + table[39 - q_idx, kv_idx]"
    )
    table = torch.randn(40, 20, generator=torch.Generator().manual_seed(1)).half()
    far = lazy((40, 20), (FAR, 1), torch.float16)
    far.copy_(table)
    call = inputs(built.spec, 9, 20, table=table)
    same = Call(call.spec, dict(call.tensors) | {"table": far}, {})
    assert torch.equal(agree(built, same).out, agree(built, call).out)


class Recorder:
    """Stands in for the kernel: notes the grid and launches nothing."""

    def __init__(self) -> None:
        self.grids: list[tuple[int, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        self.grids.append(grid)
        return lambda *args, **kwargs: None


def _schedule(module: ModuleType, block_q: int) -> list[int]:
    tile = [block_q, 16, 4, 2]
    return [*tile, *[0] * (len(module.FIELDS) - len(tile))]


def launch(module: ModuleType, batch: int, heads: int, q_len: int, block_q: int = 16) -> None:
    q, k = (
        torch.empty(batch, heads, n, 16, device="meta", dtype=torch.float16) for n in (q_len, 4)
    )
    module.launch_forward(q, k, k, 1.0, _schedule(module, block_q))


@pytest.mark.parametrize(
    ("batch", "heads", "q_len"),
    [(65536, 8, 4), (65536, 1, 4), (1, 65536, 4), (70000, 1, 4), (1, 1, 2**30), (2**17, 2**10, 16)],
)
def test_e05_a_grid_is_one_axis(
    build: Build, monkeypatch: pytest.MonkeyPatch, batch: int, heads: int, q_len: int
) -> None:
    built, recorder = build("heads: 1"), Recorder()
    monkeypatch.setattr(built.module, "forward", recorder)
    launch(built.module, batch, heads, q_len)
    assert recorder.grids == [(-(-q_len // 16) * heads * batch,)]


def test_e05_a_grid_too_large_is_refused(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    built, recorder = build("heads: 1"), Recorder()
    monkeypatch.setattr(built.module, "forward", recorder)
    with pytest.raises(ValueError) as caught:
        launch(built.module, 2**16, 2**11, 16 * 2**4)
    assert str(caught.value) == (
        "sample: batch 65536 x heads 2048 x q_len 256 needs 2147483648 programs; a grid holds "
        "2**31 - 1"
    )
    assert recorder.grids == []


def test_e05_every_program_finds_its_place(build: Build) -> None:
    built = build("heads: 1")
    call = inputs(built.spec, 17, 2, batch=5, heads_kv=3)
    agree(built, call)


@pytest.mark.parametrize("first", [65530, 2**24, 2**30 - 20])
def test_e06_positions_past_65536(build: Build, first: int) -> None:
    """A few queries at the end of very many keys, of which the window shows the last."""
    built = build(
        "heads: 1\nhead_dim: 16\nmask: sliding_window(9)\nscore: score - 0.01 * (q_pos - kv_idx)"
    )
    kv_len = first + 12
    tail = inputs(built.spec, 12, 20, dtype=torch.float16)
    tail = Call(
        tail.spec, {name: t[..., :1].expand(t.shape) for name, t in tail.tensors.items()}, {}
    )
    far = {name: lazy((1, 1, kv_len, 16), (1, 1, 1, 0), torch.float16) for name in "kv"}
    for name, view in far.items():
        view[:, :, -20:, 0] = tail.tensors[name][..., 0]
    got = answer(built, Call(tail.spec, dict(tail.tensors) | far, {}))
    same = agree(built, tail)
    torch.testing.assert_close(
        got.out, same.out, rtol=5e-3, atol=2e-4
    )  # other tiles: fp16 weights round otherwise
    torch.testing.assert_close(got.lse, same.lse, rtol=1e-6, atol=1e-6)


def test_e06_a_mask_tensor_past_65536(build: Build) -> None:
    built = build(
        "heads: 1\ntensors: {ids: {shape: [batch, kv_len], dtype: int32}}\n"
        "mask: sliding_window(9) & documents(ids)"
    )
    tail_ids = torch.tensor([[0] * 9 + [1] * 11]).int()
    tail = inputs(built.spec, 12, 20, ids=tail_ids)
    ids = torch.zeros(1, 65542, dtype=torch.int32)
    ids[:, -20:] = tail_ids
    far = {name: torch.zeros(1, 1, 65542, 16) for name in "kv"}
    for name, view in far.items():
        view[:, :, -20:] = tail.tensors[name]
    got = answer(built, Call(tail.spec, dict(tail.tensors) | far | {"ids": ids}, {}))
    torch.testing.assert_close(got.out, agree(built, tail).out, rtol=1e-6, atol=1e-6)


def test_e_the_width_of_offsets_follows_the_tensors(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain tensors keep 32-bit offsets within a tile."""
    built: Built = build("heads: 1")
    widths: list[object] = []

    class Kernel:
        def __getitem__(self, grid: object) -> Any:
            return lambda *args, INDEX, **kwargs: widths.append(INDEX)

    monkeypatch.setattr(built.module, "forward", Kernel())
    q = torch.empty(1, 1, 64, 16, device="meta")
    for stride in (16, 2**31 // 15, 2**27):
        k = torch.empty_strided((1, 1, 64, 16), (1, 1, stride, 1), device="meta")
        built.module.launch_forward(q, k, k, 1.0, _schedule(built.module, 16))
    tl = built.module.tl
    assert widths == [tl.int32, tl.int64, tl.int32]
