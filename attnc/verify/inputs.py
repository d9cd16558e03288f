"""Make the tensors of a case: random, strangely stored, and poisoned wherever nothing may look."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnc.spec.schema import AttentionSpec
from attnc.spec.schema import Tensor as DeclaredTensor
from attnc.verify.cases import Case, cases_for
from attnc.verify.far_memory import far_strides, spread, wide_strides
from attnc.verify.reference import Call, visible_pairs

DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
SPREAD = 0x9E3779B97F4A7C  # of seeds over 64 bits
MARGIN = 2**17  # elements of NaN before and after every tensor
WILD = (-(2**31), -7, -1, 2**20, 2**31 - 1)  # user integers that lie outside any tensor


def build_call(
    spec: AttentionSpec,
    case: Case,
    *,
    poisoned: bool = True,
    closed_too: bool = True,
    device: str = "cpu",
) -> Call:
    """Make the tensors and params of a case; equal arguments give equal bits.

    poisoned: NaN in keys that no query sees, in queries that see no key, and (closed_too) in the
    values of closed heads.
    """
    values = _values(spec, case)
    clean = Call(replace(spec, layout="bhsd"), values, dict(case.params), case.scale)
    shared = case.storage == "expanded"
    poison = _poison(clean, shared=shared, closed_too=closed_too)
    for name in "qkv":
        values[name] = values[name].masked_fill(poison[name], torch.nan if poisoned else 0.5)
    return _stored(spec, case, values, device)


def long_call(spec: AttentionSpec, case: Case, device: str) -> Call:
    """A call without NaN in what is hidden: no dense visibility is made, so that it may be long."""
    return _stored(spec, case, _values(spec, case), device)


def _values(spec: AttentionSpec, case: Case) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(case.seed)
    sizes = _sizes(spec, case)
    values = {tensor.name: _declared(tensor, sizes, case, draw) for tensor in spec.tensors}
    if spec.head_gate:
        values["head_gate"] = _gate(sizes["heads"], spec.group, draw)
    if spec.sink:
        values["sink"] = torch.randn(sizes["heads"], generator=draw)
        if case.twist == "absent sink":
            values["sink"][::2] = -torch.inf
    return values | _query_key_value(spec, case, sizes, draw)


def _stored(spec: AttentionSpec, case: Case, values: Mapping[str, Tensor], device: str) -> Call:
    stored = {}
    for name, tensor in values.items():
        view = on_device(store(tensor, case.storage, name), device)
        stored[name] = (
            view.transpose(1, 2) if spec.layout == "bshd" and name in ("q", "k", "v") else view
        )
    drops = (case.dropout_p, (case.seed + 1) * SPREAD % 2**64 - 2**63)
    return Call(spec, stored, dict(case.params), case.scale, *drops)


def crowded_call(spec: AttentionSpec) -> Call:
    """A call with more batch entries and heads than a grid has room for, on one element each.

    Nothing else may refuse it: params that a case has, and no default scale, which may have no
    value at such lengths.
    """
    heads_kv = spec.heads_kv if spec.fixes_heads else 1
    batch = 2**31 // (heads_kv * spec.group) + 1
    sizes = _sizes(spec, Case("crowd", batch, heads_kv, 1, 1, "fp16"))
    shapes = _shapes(spec, sizes)
    if spec.layout == "bshd":
        shapes = {name: (b, s, h, d) for name, (b, h, s, d) in shapes.items()}
    tensors = {name: torch.zeros((), dtype=torch.float16).expand(shapes[name]) for name in shapes}
    for tensor in spec.tensors:
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in tensor.shape]
        tensors[tensor.name] = torch.zeros((), dtype=DTYPES[tensor.dtype]).expand(shape)
    tensors |= {tensor.name: torch.ones(sizes["heads"]) for tensor in spec.by_head}
    return Call(spec, tensors, dict(cases_for(spec)[0].params), 1.0)


def store(values: Tensor, storage: str, name: str = "") -> Tensor:
    """Lay `values` out as `storage` says, in a buffer of NaN (integers: the largest)."""
    if storage == "far":
        return spread(values.shape, far_strides(values.shape), values.dtype).copy_(values)
    if storage == f"wide {name}":
        return spread(values.shape, wide_strides(values.shape), values.dtype).copy_(values)
    if storage == "expanded" and name in ("q", "k", "v"):
        return _inside_margin(values[:1, :1], (0, 1, 2, 3)).expand(values.shape)
    if storage == "sliced":
        return _every_other(values)
    order = tuple(range(values.dim()))
    if storage == "transposed":
        order = {"q": (0, 2, 1, 3), "k": (1, 0, 3, 2), "v": (3, 0, 1, 2)}.get(name, order[::-1])
    return _inside_margin(values, order)


def _inside_margin(values: Tensor, order: tuple[int, ...]) -> Tensor:
    """Contiguous in the order of axes given, between two margins."""
    turned = values.permute(order)
    buffer = _poison_buffer((turned.numel() + 2 * MARGIN,), values.dtype)
    inner = buffer[MARGIN : MARGIN + turned.numel()].view(turned.shape)
    inner.copy_(turned)
    back = sorted(range(len(order)), key=order.__getitem__)
    return inner.permute(back)


def _every_other(values: Tensor) -> Tensor:
    """Every other element of the last axis of a larger tensor, off its corner in every axis."""
    shape = [size + 3 for size in values.shape[:-1]] + [2 * values.shape[-1] + 5]
    buffer = _poison_buffer((math.prod(shape) + 2 * MARGIN,), values.dtype)
    whole = buffer[MARGIN : MARGIN + math.prod(shape)].view(shape)
    corner = tuple(slice(1, 1 + size) for size in values.shape[:-1])
    view = whole[(*corner, slice(2, 2 + 2 * values.shape[-1], 2))]
    view.copy_(values)
    return view


def _poison_buffer(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point:
        return torch.full(shape, torch.nan, dtype=dtype)
    if dtype is torch.bool:
        return torch.ones(shape, dtype=dtype)
    return torch.full(shape, torch.iinfo(dtype).max, dtype=dtype)


def on_device(view: Tensor, device: str) -> Tensor:
    """Move a view with the whole storage behind it, poison included."""
    if device == "cpu":
        return view
    storage = view.untyped_storage()
    base = torch.empty(0, dtype=view.dtype).set_(storage).to(device)
    return base.as_strided(view.shape, view.stride(), view.storage_offset())


def _sizes(spec: AttentionSpec, case: Case) -> dict[str, int]:
    return {
        "batch": case.batch,
        "heads": case.heads_kv * spec.group,
        "kv_heads": case.heads_kv,
        "q_len": case.q_len,
        "kv_len": case.kv_len,
    }


def _shapes(spec: AttentionSpec, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    queries = (sizes["batch"], sizes["heads"], sizes["q_len"])
    keys = (sizes["batch"], sizes["kv_heads"], sizes["kv_len"])
    dim = spec.head_dim_qk
    return {"q": (*queries, dim), "k": (*keys, dim), "v": (*keys, spec.head_dim_v)}


def _query_key_value(
    spec: AttentionSpec, case: Case, sizes: Mapping[str, int], draw: torch.Generator
) -> dict[str, Tensor]:
    shapes = _shapes(spec, sizes)
    values = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    values["q"] *= case.magnitude
    if case.storage == "expanded":
        values = {name: tensor[:1, :1].expand(tensor.shape) for name, tensor in values.items()}
    return {name: tensor.to(DTYPES[case.dtype]) for name, tensor in values.items()}


def _declared(
    tensor: DeclaredTensor, sizes: Mapping[str, int], case: Case, draw: torch.Generator
) -> Tensor:
    shape = [sizes[dim] if isinstance(dim, str) else dim for dim in tensor.shape]
    dtype = DTYPES[tensor.dtype]
    if dtype is torch.bool:
        return torch.rand(shape, generator=draw) < 0.7
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=draw)
        if case.twist == "infinite bias":
            values[torch.rand(shape, generator=draw) < 0.3] = -torch.inf
            for axis, dim in enumerate(tensor.shape):  # and rows whose scores are all -inf
                if dim in ("q_len", "heads"):
                    values.narrow(axis, 0, 1).fill_(-torch.inf)
        return values.to(dtype)
    # few different values are documents, many are positions and lengths
    values = torch.randint(0, 4 if case.seed % 2 else case.kv_len + 4, shape, generator=draw)
    if case.twist == "wild indices":
        wild = torch.tensor(WILD)[torch.randint(0, len(WILD), shape, generator=draw)]
        values = torch.where(torch.rand(shape, generator=draw) < 0.3, wild, values)
    return values.to(dtype)


def _gate(heads: int, group: int, draw: torch.Generator) -> Tensor:
    gate = torch.randn(heads, generator=draw)
    if heads > group:
        gate[:group] = 0.0
    return gate


@dataclass(frozen=True, slots=True)
class _Seen:
    keys: Tensor  # [B, Hkv, Sk]: some query of the group sees it
    queries: Tensor  # [B, Hq, Sq]: it sees some key


def _seen(call: Call) -> _Seen:
    visible = visible_pairs(call)
    batch, heads, q_len, kv_len = visible.shape
    group = call.spec.group
    keys = visible.reshape(batch, heads // group, group, q_len, kv_len).any(2).any(2)
    return _Seen(keys, visible.any(-1))


def _poison(call: Call, *, shared: bool, closed_too: bool) -> dict[str, Tensor]:
    """Where NaN may lie without any effect; `shared`: batch entries and heads are one memory."""
    seen = _seen(call)
    keys, queries = ~seen.keys, ~seen.queries
    if shared:
        keys = keys.all(0, keepdim=True).all(1, keepdim=True).expand(keys.shape)
        queries = queries.all(0, keepdim=True).all(1, keepdim=True).expand(queries.shape)
    values = keys
    if call.spec.head_gate and closed_too and not shared:
        gate = call.tensors["head_gate"].reshape(-1, call.spec.group)
        values = keys | (gate == 0).all(-1)[None, :, None]
    return {"q": queries[..., None], "k": keys[..., None], "v": values[..., None]}
