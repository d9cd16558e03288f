# attnc: a hand-made module in the form of a generated one; verify's tests judge it and its mutants.
# SPEC_PATH = tests/verify/handmade.yaml
# --- spec
#   name: handmade
#   heads: {q: 4, kv: 2}
#   head_dim: {qk: 32, v: 16}
#   dtype: fp16
#   mask: causal
#   score: score - abs(q_pos - kv_idx) / 16
#   backward: false
#   outputs: [lse]
#   check: [{batch: 1, q_len: 40, kv_len: 100}]
# --- end of spec
"""Causal grouped attention with a penalty on distance, written by hand.  lse is always stored."""

import os
from typing import NamedTuple

import torch
import triton
import triton.language as tl

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
INTERPRETER_UPCASTS_BF16 = True
GROUP = 2
D_QK = 32
D_V = 16
# --- schedules
SCHEDULES = {("any", 2): (32, 32, 4, 2), ("any", 4): (32, 32, 4, 2)}
# --- end of schedules


class Aux(NamedTuple):
    lse: torch.Tensor


@triton.jit
def forward_kernel(
    q,
    k,
    v,
    out,
    lse,
    q_stride_b,
    q_stride_h,
    q_stride_q,
    q_stride_d,
    k_stride_b,
    k_stride_h,
    k_stride_k,
    k_stride_d,
    v_stride_b,
    v_stride_h,
    v_stride_k,
    v_stride_e,
    out_stride_b,
    out_stride_h,
    out_stride_q,
    out_stride_e,
    lse_stride_b,
    lse_stride_h,
    lse_stride_q,
    heads,
    q_len,
    kv_len,
    scale,
    GROUP: tl.constexpr,
    D_QK: tl.constexpr,
    D_V: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_KV: tl.constexpr,
):
    q_tiles = tl.cdiv(q_len, BLOCK_Q)
    program = tl.program_id(0)
    tile_q = program % q_tiles
    h = (program // q_tiles) % heads
    b = (program // q_tiles // heads).to(tl.int64)
    h_kv = h // GROUP
    q_idx = tile_q * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d_idx = tl.arange(0, D_QK)
    e_idx = tl.arange(0, D_V)
    q_pos = q_idx + kv_len - q_len
    q_at = q + b * q_stride_b + h * q_stride_h
    q_tile = tl.load(
        q_at + q_idx[:, None].to(tl.int64) * q_stride_q + d_idx[None, :] * q_stride_d,
        mask=q_idx[:, None] < q_len,
        other=0.0,
    )
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D_V], tl.float32)
    reach = tl.minimum(kv_len, tile_q * BLOCK_Q + BLOCK_Q + kv_len - q_len)
    for tile in range(0, tl.cdiv(tl.maximum(reach, 0), BLOCK_KV)):
        kv_idx = tile * BLOCK_KV + tl.arange(0, BLOCK_KV)
        inside = kv_idx < reach
        k_tile = tl.load(
            k
            + b * k_stride_b
            + h_kv * k_stride_h
            + kv_idx[None, :].to(tl.int64) * k_stride_k
            + d_idx[:, None] * k_stride_d,
            mask=inside[None, :],
            other=0.0,
        )
        v_tile = tl.load(
            v
            + b * v_stride_b
            + h_kv * v_stride_h
            + kv_idx[:, None].to(tl.int64) * v_stride_k
            + e_idx[None, :] * v_stride_e,
            mask=inside[:, None],
            other=0.0,
        )
        s = tl.dot(q_tile, k_tile, input_precision="ieee") * scale
        distance = tl.abs(q_pos[:, None] - kv_idx[None, :])
        s = s - 0.0625 * distance
        visible = (kv_idx[None, :] <= q_pos[:, None]) & (kv_idx[None, :] < kv_len)
        s = tl.where(visible, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        anchor = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2((s - anchor[:, None]) * 1.4426950408889634)
        rescale = tl.exp2((m - anchor) * 1.4426950408889634)
        l = l * rescale + tl.sum(p, 1)
        acc = acc * rescale[:, None] + tl.dot(p.to(v_tile.dtype), v_tile, input_precision="ieee")
        m = m_new
    inverse = tl.where(l == 0.0, 0.0, 1.0 / l)
    acc = acc * inverse[:, None]
    tl.store(
        out
        + b * out_stride_b
        + h * out_stride_h
        + q_idx[:, None].to(tl.int64) * out_stride_q
        + e_idx[None, :] * out_stride_e,
        acc.to(out.dtype.element_ty),
        mask=q_idx[:, None] < q_len,
    )
    tl.store(
        lse + b * lse_stride_b + h * lse_stride_h + q_idx.to(tl.int64) * lse_stride_q,
        m + tl.log2(l) / 1.4426950408889634,
        mask=q_idx < q_len,
    )


def attention(q, k, v, *, scale=None, return_aux=False, schedule=None):
    """Attend.  q [B, Hq, Sq, 32], k [B, Hkv, Sk, 32], v [B, Hkv, Sk, 16] -> out [B, Hq, Sq, 16]."""
    dtype = q.dtype
    if INTERPRETED and INTERPRETER_UPCASTS_BF16 and dtype is torch.bfloat16:
        q, k, v = q.float(), k.float(), v.float()
    batch, heads, q_len, _ = q.shape
    out = torch.empty([batch, heads, q_len, D_V], dtype=q.dtype, device=q.device)
    lse = torch.empty([batch, heads, q_len], dtype=torch.float32, device=q.device)
    chosen = dict(block_q=32, block_kv=32, warps=4, stages=2) | dict(schedule or {})
    grid = (triton.cdiv(q_len, chosen["block_q"]) * heads * batch,)
    if grid[0]:
        forward_kernel[grid](
            q,
            k,
            v,
            out,
            lse,
            *q.stride(),
            *k.stride(),
            *v.stride(),
            *out.stride(),
            *lse.stride(),
            heads,
            q_len,
            k.shape[2],
            D_QK**-0.5 if scale is None else scale,
            GROUP,
            D_QK,
            D_V,
            chosen["block_q"],
            chosen["block_kv"],
            num_warps=chosen["warps"],
            num_stages=chosen["stages"],
        )
    out = out.to(dtype)
    return (out, Aux(lse=lse)) if return_aux else out
