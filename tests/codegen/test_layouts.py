"""Tensors as they come: both layouts, any strides, offsets past 2**31 in either layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attnc.verify.reference import Call
from tests.faults.judge import Build, Built, agree, buried, inputs
from tests.faults.test_offsets import lazy

Storage = Callable[[Tensor], Tensor]
LAYOUTS = pytest.mark.parametrize("layout", ["bhsd", "bshd"])


def nan(like: Tensor) -> Tensor:
    return torch.full_like(like, torch.nan)


STORAGES: dict[str, Storage] = {
    "packed": lambda t: t.contiguous(),
    "axes 1 and 2 swapped": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "axes 2 and 3 swapped": lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
    "all axes reversed": lambda t: t.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "in a buffer of NaN": lambda t: buried(t, torch.nan),
    "every second element": lambda t: torch.stack([t, nan(t)], -1).flatten(3)[..., ::2],
    "every third row": lambda t: torch.stack([t, nan(t), nan(t)], 3).flatten(2, 3)[:, :, ::3],
}  # fmt: skip
CONSTANT: dict[str, Storage] = {
    "one batch entry": lambda t: t[:1].expand(t.shape),
    "one head": lambda t: t[:, :1].expand(t.shape),
    "one row": lambda t: t[:, :, :1].expand(t.shape),
    "one feature": lambda t: t[..., :1].expand(t.shape),
    "one value": lambda t: t[:1, :1, :1, :1].expand(t.shape),
    "overlapping rows": lambda t: t.contiguous().as_strided(t.shape, (t.stride(0), 3, 1, 2)),
}


def case(build: Build, layout: str, dtype: torch.dtype = torch.float32) -> tuple[Built, Call]:
    built = build(
        f"layout: {layout}\nheads: {{q: 4, kv: 2}}\nhead_dim: {{qk: 16, v: 24}}\nmask: causal"
    )
    return built, inputs(built.spec, 9, 20, batch=2, dtype=dtype)


def stored(call: Call, name: str, storage: Storage) -> Call:
    return Call(call.spec, dict(call.tensors) | {name: storage(call.tensors[name])}, {})


def test_the_layouts_agree(build: Build) -> None:
    (first, call), (second, other) = case(build, "bhsd"), case(build, "bshd")
    got, swapped = agree(first, call), agree(second, other)
    assert swapped.out.shape == (2, 9, 4, 24) and swapped.lse.shape == (2, 4, 9)
    assert torch.equal(got.out, swapped.out.transpose(1, 2)) and torch.equal(got.lse, swapped.lse)
    assert got.out.is_contiguous() and swapped.out.is_contiguous()


@LAYOUTS
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_strides_change_nothing(build: Build, layout: str, storage: str, name: str) -> None:
    built, call = case(build, layout)
    moved = stored(call, name, STORAGES[storage])
    assert torch.equal(moved.tensors[name], call.tensors[name])
    assert torch.equal(agree(built, moved).out, agree(built, call).out)


@LAYOUTS
@pytest.mark.parametrize("storage", CONSTANT)
def test_strides_of_zero_and_overlaps(build: Build, layout: str, storage: str) -> None:
    built, call = case(build, layout)
    for name in "qkv":
        call = stored(call, name, CONSTANT[storage])
    packed = Call(call.spec, {name: t.contiguous() for name, t in call.tensors.items()}, {})
    assert torch.equal(agree(built, call).out, agree(built, packed).out)


def test_each_operand_its_own_strides(build: Build) -> None:
    built, call = case(build, "bhsd")
    mixed = call
    for name, storage in zip("qkv", list(STORAGES.values())[1:4], strict=True):
        mixed = stored(mixed, name, storage)
    assert torch.equal(agree(built, mixed).out, agree(built, call).out)


@LAYOUTS
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_offsets_past_two_to_the_31(build: Build, layout: str, axis: int, name: str) -> None:
    """Along one axis the elements lie so far apart that the last one passes 2**31."""
    built, call = case(build, layout, torch.float16)
    tensor = call.tensors[name]
    steps = [1] * 4
    rest = [other for other in (3, 2, 1, 0) if other != axis]
    for at, other in enumerate(rest):
        steps[other] = 1 if at == 0 else steps[rest[at - 1]] * tensor.shape[rest[at - 1]]
    steps[axis] = 2**31 // (tensor.shape[axis] - 1) + 1
    far = lazy(tuple(tensor.shape), tuple(steps), torch.float16)
    far.copy_(tensor)
    moved = Call(call.spec, dict(call.tensors) | {name: far}, {})
    assert torch.equal(agree(built, moved).out, agree(built, call).out)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@LAYOUTS
def test_every_element_type(build: Build, layout: str, dtype: torch.dtype) -> None:
    built, call = case(build, layout, dtype)
    assert agree(built, call).out.dtype == dtype


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int32", "int64", "bool"])
def test_every_type_of_a_declared_tensor(build: Build, dtype: str) -> None:
    read = "where(extra[h, kv_idx], 0.5, -1)" if dtype == "bool" else "extra[h, kv_idx]"
    built = build(
        f"tensors: {{extra: {{shape: [heads, kv_len], dtype: {dtype}}}}}\n"
        f"score: score + {read}\nmask: causal"
    )
    kinds = {
        "fp32": torch.float32,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "int32": torch.int32,
        "int64": torch.int64,
        "bool": torch.bool,
    }
    values = torch.randn(2, 20, generator=torch.Generator().manual_seed(1)) * 2
    extra = (values > 0) if dtype == "bool" else values.to(kinds[dtype])
    wide = torch.stack([extra, extra], -1).flatten(1)[:, ::2]
    for tensor in (extra, wide):
        agree(built, inputs(built.spec, 9, 20, extra=tensor))
    agree(built, inputs(built.spec, 9, 20, extra=extra, dtype=torch.bfloat16))
