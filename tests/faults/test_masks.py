"""Kind B: windows, causal alignment, composed masks, mask tensors, state between calls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attnc.driver import lower_spec
from attnc.errors import SpecErrors
from attnc.explain.situation import situation_of
from attnc.explain.tiles import count_tiles
from attnc.verify.reference import Call
from tests.faults.judge import Build, Built, agree, answer, inputs, same_bits, visible_counts

WIDE = "head_dim: {qk: 16, v: 48}\n"  # room for a one-hot v
IDS = "tensors: {ids: {shape: [batch, kv_len], dtype: int32}}\n"


def equal(built: Built, other: Built, q_len: int, kv_len: int) -> None:
    """Two ways to write a mask: the same values within rounding."""
    first, second = (agree(one, inputs(one.spec, q_len, kv_len)) for one in (built, other))
    torch.testing.assert_close(first.out, second.out, rtol=1e-6, atol=1e-6)


def keys_of(call: Call, start: int, stop: int, queries: slice) -> Call:
    """Some queries against some keys."""
    tensors = {name: call.tensors[name][:, :, start:stop] for name in "kv"}
    return Call(
        call.spec, dict(call.tensors) | tensors | {"q": call.tensors["q"][:, :, queries]}, {}
    )


def test_b01_a_window_counts_the_querys_own_key(build: Build) -> None:
    built = build(f"{WIDE}mask: sliding_window(4)")
    assert visible_counts(built, 12, 12) == [1, 2, 3] + [4] * 9
    assert visible_counts(build(f"{WIDE}mask: window(4, 0)"), 12, 12) == [1, 2, 3, 4] + [5] * 8


def test_b03_chunked_prefill_is_one_pass(build: Build) -> None:
    built = build("mask: sliding_window(8)")
    call = inputs(built.spec, 40, 40)
    whole = agree(built, call)
    for start, stop in ((0, 12), (12, 24), (24, 36), (36, 40)):
        chunk = agree(built, keys_of(call, 0, stop, slice(start, stop)))
        torch.testing.assert_close(chunk.out, whole.out[:, :, start:stop], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("left", [32, 33, 1000])
def test_b04_a_window_as_long_as_the_keys_is_causal(build: Build, left: int) -> None:
    equal(build(f"mask: window({left}, 0)"), build("mask: causal"), 33, 33)


def test_b04_a_window_of_one_gives_v(build: Build) -> None:
    built = build("mask: sliding_window(1)")
    call = inputs(built.spec, 33, 33)
    assert same_bits(agree(built, call).out, call.tensors["v"].repeat_interleave(2, 1))


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ("window(-1, -3)", "left of window must be a whole number of at least 0, or inf, not -1"),
        ("window(0, -3)", "right of window must be a whole number of at least 0, or inf, not -3"),
        ("window(-4, 0)", "left of window must be a whole number of at least 0, or inf, not -4"),
        ("sliding_window(-128)",
            "n of sliding_window must be a whole number of at least 1, or inf, not -128"),
        ("sliding_window(0)",
            "n of sliding_window must be a whole number of at least 1, or inf, not 0"),
        ("sliding_window(none)", "nothing is called 'none' in a mask"),
    ],
)  # fmt: skip
def test_b05_b09_a_window_is_a_positive_number_or_left_out(
    build: Build, mask: str, problem: str
) -> None:
    with pytest.raises(SpecErrors) as caught:
        build(f"mask: {mask}")
    assert str(caught.value).splitlines()[0].split(" ", 2)[2] == problem


def test_b05_b09_unlimited_is_written_inf_or_nothing(build: Build) -> None:
    assert visible_counts(build(WIDE), 3, 3) == [3, 3, 3]
    assert visible_counts(build(f"{WIDE}mask: window(inf, inf)"), 3, 3) == [3, 3, 3]


@pytest.mark.parametrize(
    ("mask", "same"),
    [
        ("window(inf, 0)", "causal"),
        ("causal & window(inf, 0)", "causal"),
        ("causal & window(inf, inf)", "causal"),
        ("causal & window(5, inf)", "window(5, 0)"),
        ("causal & window(5, 0)", "window(5, 0)"),
    ],
)
def test_b06_no_limit_on_one_side(build: Build, mask: str, same: str) -> None:
    equal(build(f"mask: {mask}"), build(f"mask: {same}"), 33, 33)
    assert (
        agree(build(f"mask: {mask}"), inputs(build(f"mask: {mask}").spec, 33, 33))
        .lse.isfinite()
        .all()
    )


@pytest.mark.parametrize("length", [100, 1])
def test_b07_a_window_longer_than_the_context_stays_causal(build: Build, length: int) -> None:
    equal(build("mask: sliding_window(128)"), build("mask: causal"), length, length)


def test_b08_two_sided_windows(build: Build) -> None:
    assert visible_counts(build(f"{WIDE}mask: window(3, 3)"), 20, 20) == [
        min(i + 3, 19) - max(i - 3, 0) + 1 for i in range(20)
    ]
    left, right = (
        visible_counts(build(f"{WIDE}mask: window({sides})"), 20, 20) for sides in ("4, 1", "1, 4")
    )
    assert left == right[::-1]


@pytest.mark.parametrize(
    ("mask", "q_len", "kv_len", "counts"),
    [
        ("causal", 2, 5, [4, 5]),
        ("causal", 5, 2, [0, 0, 0, 1, 2]),
        ("causal(top_left)", 2, 5, [1, 2]),
        ("causal(top_left)", 5, 2, [1, 2, 2, 2, 2]),
    ],
)
def test_b10_alignment_is_a_choice(
    build: Build, mask: str, q_len: int, kv_len: int, counts: list[int]
) -> None:
    assert visible_counts(build(f"{WIDE}mask: {mask}"), q_len, kv_len) == counts


def test_b11_a_decode_step_stands_at_its_absolute_position(build: Build) -> None:
    built = build(f"{IDS}mask: causal & sliding_window(8) & documents(ids)")
    ids = torch.tensor([[0] * 33 + [1] * 31]).int()
    call = inputs(built.spec, 64, 64, ids=ids)
    whole = agree(built, call).out[:, :, 37]
    cache = {name: call.tensors[name].clone() for name in "kv"}
    for tensor in cache.values():
        tensor[:, :, 38:] = 1e4
    step = keys_of(Call(call.spec, dict(call.tensors) | cache, {}), 0, 38, slice(37, 38))
    got = agree(built, Call(step.spec, dict(step.tensors) | {"ids": ids[:, :38]}, {}))
    torch.testing.assert_close(got.out[:, :, 0], whole, rtol=1e-6, atol=1e-6)


def test_b12_b24_a_module_keeps_nothing_from_one_length_to_the_next(build: Build) -> None:
    built = build(
        "tensors: {shown: {shape: [batch, q_len, kv_len], dtype: bool}}\n"
        "mask: causal & shown[b, q_idx, kv_idx]"
    )
    draw = torch.Generator().manual_seed(3)
    for length, batch, share in ((40, 1, 0.5), (23, 2, 1.0), (52, 1, 0.2)):
        seen = torch.rand(batch, length, length, generator=draw) <= share
        call = inputs(built.spec, length, length, batch=batch, shown=seen)
        first, second = agree(built, call), answer(built, call)
        assert same_bits(first.out, second.out) and same_bits(first.lse, second.lse)


@pytest.mark.parametrize("mask", ["causal", "true", "kv_idx < 0", "sliding_window(9)"])
@pytest.mark.parametrize("length", [100, 1])
def test_b14_densities_are_shares(build: Build, mask: str, length: int) -> None:
    spec = build(f"mask: {mask}").spec
    at = situation_of(spec, q_len=length, kv_len=length)
    tiles = count_tiles(lower_spec(spec).kernels[0], at, 128, 128)
    rows = [sum(answer_row) for answer_row in _brute(mask, length)]
    assert 0 <= sum(rows) / length**2 <= 1
    assert 0 <= tiles.visited <= tiles.total and (tiles.visited > 0) == (sum(rows) > 0)


def _brute(mask: str, length: int) -> list[list[bool]]:
    tests = {
        "causal": lambda i, j: j <= i,
        "true": lambda i, j: True,
        "kv_idx < 0": lambda i, j: False,
        "sliding_window(9)": lambda i, j: i - 9 < j <= i,
    }
    return [[tests[mask](i, j) for j in range(length)] for i in range(length)]


@pytest.mark.parametrize("tiles", [(16, 32), (32, 16), (64, 64)], ids=str)
def test_b15_block_diffusion_whatever_the_tile(build: Build, tiles: tuple[int, int]) -> None:
    built = build("mask: kv_idx // 12 <= q_pos // 12")
    agree(built, inputs(built.spec, 72, 72), tiles)
    noisy = build("mask: (kv_idx // 12 == q_pos // 12) | (kv_idx // 12 + 3 < q_pos // 12)")
    agree(noisy, inputs(noisy.spec, 72, 72), tiles)


@pytest.mark.parametrize(("q_len", "kv_len"), [(64, 64), (48, 80)])
def test_b18_a_block_mask_that_spells_out_causal(build: Build, q_len: int, kv_len: int) -> None:
    rows, columns = -(-q_len // 16), -(-kv_len // 16)
    built = build(
        f"tensors: {{blocks: {{shape: [batch, heads, {rows}, {columns}], dtype: int32}}}}\n"
        "mask: causal & (blocks[b, h, q_idx // 16, kv_idx // 16] != 0)"
    )
    shift = (kv_len - q_len) // 16
    some = torch.arange(columns)[None] <= torch.arange(rows)[:, None] + shift
    blocks = some.expand(3, 2, rows, columns).int().clone()
    got = agree(built, inputs(built.spec, q_len, kv_len, batch=3, blocks=blocks), (32, 32))
    plain = build("mask: causal")
    same = agree(plain, inputs(plain.spec, q_len, kv_len, batch=3), (32, 32))
    torch.testing.assert_close(got.out, same.out, rtol=1e-6, atol=1e-6)
    blocks[1, 1, :, 0] = 0  # each batch entry and head on its own
    agree(built, inputs(built.spec, q_len, kv_len, batch=3, blocks=blocks), (32, 32))


def test_b20_prefixes_of_every_length(build: Build) -> None:
    built = build(
        "tensors: {prefixes: {shape: [batch], dtype: int32}}\nmask: causal | (kv_idx < prefixes[b])"
    )
    lengths = [0, 1, 7, 16, 23, 24]
    call = inputs(built.spec, 24, 24, batch=len(lengths), prefixes=torch.tensor(lengths).int())
    got = agree(built, call)
    for mask, entries in (("causal", [0, 1]), ("true", [5])):
        plain = build(f"mask: {mask}")
        same = agree(plain, Call(plain.spec, {name: call.tensors[name] for name in "qkv"}, {}))
        torch.testing.assert_close(got.out[entries], same.out[entries], rtol=1e-6, atol=1e-6)
    for prefix in (0, 1, 7, 16, 24):
        counts = visible_counts(build(f"{WIDE}mask: causal | prefix({prefix})"), 24, 24)
        assert counts == [max(i + 1, prefix) for i in range(24)]


def test_b21_chunked_local_decodes_as_it_prefills(build: Build) -> None:
    built = build(f"{WIDE}mask: causal & (q_pos // 8 == kv_idx // 8)")
    assert visible_counts(built, 27, 27) == [i % 8 + 1 for i in range(27)]
    call = inputs(built.spec, 27, 27)
    whole = agree(built, call)
    for row in (7, 8, 9, 15, 16):
        step = agree(built, keys_of(call, 0, row + 1, slice(row, row + 1)))
        torch.testing.assert_close(step.out[:, :, 0], whole.out[:, :, row], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "mask", ["documents(ids)", "causal & documents(ids)", "documents(ids) & sliding_window(4)"]
)
def test_b22_documents_are_independent_to_the_bit(build: Build, mask: str) -> None:
    built = build(f"{IDS}mask: {mask}")
    ids = torch.tensor([[0] * 5 + [1] * 11]).int()
    call = inputs(built.spec, 16, 16, ids=ids)
    other = {name: call.tensors[name].clone() for name in "qkv"}
    for tensor in other.values():
        tensor[:, :, :5] = 3 - 2 * tensor[:, :, :5]
    got, changed = agree(built, call), agree(built, Call(call.spec, dict(call.tensors) | other, {}))
    assert same_bits(got.out[:, :, 5:], changed.out[:, :, 5:])
    assert same_bits(got.lse[:, :, 5:], changed.lse[:, :, 5:])
    assert not torch.equal(got.out[:, :, :5], changed.out[:, :, :5])


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (
            torch.ones(2, 4, 10, 15, dtype=torch.bool),
            "shown must have shape (2, 4, 10, 20), not (2, 4, 10, 15)",
        ),
        (
            torch.ones(2, 4, 11, 20, dtype=torch.bool),
            "shown must have shape (2, 4, 10, 20), not (2, 4, 11, 20)",
        ),
        (
            torch.ones(2, 1, 10, 20, dtype=torch.bool),
            "shown must have shape (2, 4, 10, 20), not (2, 1, 10, 20)",
        ),
        (
            torch.ones(2, 4, 20, 10, dtype=torch.bool),
            "shown must have shape (2, 4, 10, 20), not (2, 4, 20, 10)",
        ),
        (
            torch.ones(10, 20, dtype=torch.bool),
            "shown must have shape (2, 4, 10, 20), not (10, 20)",
        ),
        (torch.ones(2, 4, 10, 20), "shown must be torch.bool, not torch.float32"),
        (torch.ones(2, 4, 10, 20, dtype=torch.uint8), "shown must be torch.bool, not torch.uint8"),
    ],
    ids=["kv", "q", "heads", "transposed", "rank", "dtype", "bytes"],
)
def test_b23_a_mask_tensor_that_does_not_fit(build: Build, seen: Tensor, message: str) -> None:
    built = build(
        "heads: {q: 4, kv: 2}\n"
        "tensors: {shown: {shape: [batch, heads, q_len, kv_len], dtype: bool}}\n"
        "mask: shown[b, h, q_idx, kv_idx]"
    )
    call = inputs(built.spec, 10, 20, batch=2, shown=seen)
    with pytest.raises((TypeError, ValueError)) as caught:
        answer(built, call)
    assert str(caught.value) == f"sample: {message}"


def test_b25_causal_is_done_when_asked_and_only_then(build: Build) -> None:
    full, causal = build("mask: true"), build("mask: causal")
    first, second = (agree(one, inputs(one.spec, 64, 64)) for one in (full, causal))
    assert (first.out != second.out)[:, :, :-1].any(-1).all()


def test_b26_alibi_holds_far_keys_down(build: Build) -> None:
    built = build("score: alibi\nhead_dim: {qk: 16, v: 48}")
    call = inputs(built.spec, 1, 20)
    tensors = dict(call.tensors) | {
        "q": torch.zeros(1, 2, 1, 16),
        "v": torch.eye(20, 48).expand(1, 1, -1, -1),
    }
    weights = agree(built, Call(call.spec, tensors, {})).out[0, :, 0, :20]
    assert (
        weights.diff(dim=-1) > 0
    ).all()  # keys nearer to the query, which stands last, weigh more


def test_b27_a_window_with_eight_heads_on_one(build: Build) -> None:
    built = build("heads: {q: 8, kv: 1}\nmask: sliding_window(12)")
    agree(built, inputs(built.spec, 20, 50))


def test_b28_a_fixed_prefix_and_the_current_block(build: Build) -> None:
    built = build("head_dim: {qk: 16, v: 64}\nmask: (kv_idx < 4) | (q_pos // 16 == kv_idx // 16)")
    counts = visible_counts(built, 50, 50)
    assert counts == [16 if i < 16 else 20 if i < 48 else 6 for i in range(50)]
