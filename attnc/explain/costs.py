"""What a call costs: work, memory traffic, and the memory that a fused kernel does not need.

Units: FLOPs count a multiply-add as two; bytes are bytes; sizes in text are binary (1 KB = 1024 B).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from attnc.explain.situation import Situation
from attnc.explain.tiles import TileCount
from attnc.ir.nodes import Dot, Kernel, Loop
from attnc.spec.schema import AttentionSpec

BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "int32": 4, "int64": 8, "bool": 1}
MATRIX_TOKENS = (2048, 8192, 32768, 131072, 1048576)


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one forward call.

    flops: both matrix products over the pairs of visited tiles; dense_flops: over all pairs.
    bytes: every input read once and every output written once, the least any kernel can move.
    attention_matrix_bytes: what scores of every head would take, which the kernel never stores.
    """

    flops: int
    dense_flops: int
    bytes: int
    attention_matrix_bytes: int
    output_bytes: int

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.bytes if self.bytes else 0.0

    def as_json(self) -> dict[str, Any]:
        """All numbers by name."""
        return asdict(self) | {"flops_per_byte": round(self.intensity, 2)}


def costs_of(spec: AttentionSpec, at: Situation, tiles: TileCount) -> Costs:
    """Price one forward call."""
    width = BYTES[spec.dtype]
    per_pair = 2 * (spec.head_dim_qk + spec.head_dim_v)
    rows = at.batch * at.heads * at.q_len
    keys = at.batch * at.kv_heads * at.kv_len
    outputs = width * rows * spec.head_dim_v + 4 * rows * len(spec.outputs)
    inputs = width * (rows * spec.head_dim_qk + keys * (spec.head_dim_qk + spec.head_dim_v))
    inputs += sum(
        BYTES[tensor.dtype] * prod(at.extent(dim) for dim in tensor.shape)
        for tensor in spec.tensors
    )
    inputs += 4 * at.heads * len(spec.by_head)
    return Costs(
        flops=per_pair * tiles.visited_pairs,
        dense_flops=per_pair * tiles.total_pairs,
        bytes=inputs + outputs,
        attention_matrix_bytes=attention_matrix_bytes(at.q_len, at.kv_len, width)
        * at.batch
        * at.heads,
        output_bytes=outputs,
    )


def flops_per_pair(kernel: Kernel) -> int:
    """The matrix products of a kernel's loops, for each pair that they visit."""
    extents = {
        axis.name: int(min(axis.size - axis.first, axis.tile))
        for axis in kernel.axes
        if axis.role == "feature"
    }
    return max(
        (_loop_flops(stmt, extents) for stmt in kernel.body if isinstance(stmt, Loop)), default=0
    )


def _loop_flops(loop: Loop, extents: Mapping[str, int]) -> int:
    """A product multiplies and adds along one feature axis, summed over or left standing."""
    return sum(
        2 * extents[axis]
        for let in loop.body
        if isinstance(let.value, Dot)
        for axis in {*let.axes, let.value.over} & set(extents)
    )


def attention_matrix_bytes(q_len: int, kv_len: int, element_bytes: int = 2) -> int:
    """Size the matrix of scores of one head."""
    return q_len * kv_len * element_bytes


def attention_matrix_table(element_bytes: int = 2) -> list[tuple[str, str]]:
    """List (tokens, size of one head's attention matrix) for well-known lengths."""
    return [(count(n), size(attention_matrix_bytes(n, n, element_bytes))) for n in MATRIX_TOKENS]


@dataclass(frozen=True, slots=True)
class Cache:
    """The key/value cache of one layer: for one token, and for batch x kv_len tokens."""

    grouping: str
    kv_heads: int
    bytes_per_token: int
    bytes_total: int


def caches_of(spec: AttentionSpec, at: Situation) -> list[Cache]:
    """Size the cache for the spec's head grouping, next to MHA's and MQA's."""
    group = spec.group
    own = "MHA" if group == 1 else "MQA" if spec.heads_kv == 1 else f"GQA {group}:1"
    heads = {own: spec.heads_kv, "MHA": spec.heads_q, "MQA": 1}
    each = BYTES[spec.dtype] * (spec.head_dim_qk + spec.head_dim_v)
    return [Cache(name, n, n * each, n * each * at.batch * at.kv_len) for name, n in heads.items()]


def size(count_of_bytes: int) -> str:
    """Write bytes in the largest binary unit that leaves at least one."""
    value, unit = float(count_of_bytes), "B"
    for larger in ("KB", "MB", "GB", "TB", "PB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def count(n: int) -> str:
    """Write a number of tokens as people do: 8192 is 8K."""
    for step, letter in ((1024**2, "M"), (1024, "K")):
        if n and n % step == 0:
            return f"{n // step}{letter}"
    return str(n)


def flops(n: int) -> str:
    """Write FLOPs in the largest decimal unit that leaves at least one."""
    value, unit = float(n), ""
    for larger in ("k", "M", "G", "T", "P", "E"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.4g} {unit}FLOP"
