# attnc: a hand-made module in the form of a generated one; verify's tests judge it and its mutants.
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

SPEC_PATH = "tests/verify/handmade.yaml"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
INTERPRETER_UPCASTS_BF16 = True
D_QK = 32
D_V = 16
# --- schedules
SCHEDULES = {("sm_80", 2, "forward"): {"block_q": 32, "block_kv": 32, "warps": 4, "stages": 2}}
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
    SCALE_SIGN: tl.constexpr,
    D_QK: tl.constexpr,
    D_V: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_KV: tl.constexpr,
):
    q_tiles = tl.cdiv(q_len, BLOCK_Q)
    program = tl.program_id(0)
    tile_q = program % q_tiles
    h = ((program // q_tiles) % heads).to(tl.int64)
    b = (program // q_tiles // heads).to(tl.int64)
    h_kv = h // 2
    q_idx = tile_q * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d_idx = tl.arange(0, D_QK)
    e_idx = tl.arange(0, D_V)
    q_pos = q_idx + kv_len - q_len
    q_at = q + b * q_stride_b + h * q_stride_h
    k_at = k + b * k_stride_b + h_kv * k_stride_h
    v_at = v + b * v_stride_b + h_kv * v_stride_h
    out_at = out + b * out_stride_b + h * out_stride_h
    lse_at = lse + b * lse_stride_b + h * lse_stride_h
    q_rows = q_idx[:, None].to(tl.int64) * q_stride_q + d_idx[None, :] * q_stride_d
    q_tile = tl.load(q_at + q_rows, mask=(q_idx < q_len)[:, None], other=0.0)
    row_max = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    row_sum = tl.full([BLOCK_Q], 0.0, tl.float32)
    acc = tl.full([BLOCK_Q, D_V], 0.0, tl.float32)
    factor = tl.maximum(tl.abs(scale) * 1.4426950408889634, 2e-38)
    kv_hi = tl.minimum(kv_len, tl.maximum(tile_q * BLOCK_Q + BLOCK_Q + kv_len - q_len, 0))
    tile_hi = tl.cdiv(kv_hi, BLOCK_KV)
    for tile in range(0, tile_hi):
        kv_idx = tile * BLOCK_KV + tl.arange(0, BLOCK_KV)
        k_rows = kv_idx[None, :].to(tl.int64) * k_stride_k + d_idx[:, None] * k_stride_d
        k_tile = tl.load(k_at + k_rows, mask=(kv_idx < kv_hi)[None, :], other=0.0)
        qk = tl.dot(q_tile, k_tile, input_precision="ieee")
        distance = tl.abs(q_pos[:, None] - kv_idx[None, :])
        logits = qk * SCALE_SIGN * factor - distance * 0.09016844005556021  # log2(e) / 16
        visible = kv_idx[None, :] <= q_pos[:, None]
        logits = tl.where(visible, logits, float("-inf"))
        row_max_new = tl.maximum(row_max, tl.max(logits, 1))
        anchor = tl.where(row_max_new == float("-inf"), 0.0, row_max_new)
        rescale = tl.exp2(row_max - anchor)
        p = tl.exp2(logits - anchor[:, None])
        row_sum = rescale * row_sum + tl.sum(p, 1)
        v_rows = kv_idx[:, None].to(tl.int64) * v_stride_k + e_idx[None, :] * v_stride_e
        v_tile = tl.load(v_at + v_rows, mask=(kv_idx < kv_hi)[:, None], other=0.0)
        acc = acc * rescale[:, None]
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc, input_precision="ieee")
        row_max = row_max_new
    natural = (row_max + tl.log2(row_sum)) * 0.6931471805599453
    inverse = 1.0 / tl.where(row_sum == 0.0, 1.0, row_sum)
    acc = acc * inverse[:, None]
    out_rows = q_idx[:, None].to(tl.int64) * out_stride_q + e_idx[None, :] * out_stride_e
    tl.store(out_at + out_rows, acc.to(out.dtype.element_ty), mask=(q_idx < q_len)[:, None])
    tl.store(lse_at + q_idx.to(tl.int64) * lse_stride_q, natural, mask=q_idx < q_len)


def attention(q, k, v, *, scale=None, return_aux=False, schedule=None):
    """Attend.  q [B, Hq, Sq, 32], k [B, Hkv, Sk, 32], v [B, Hkv, Sk, 16] -> out [B, Hq, Sq, 16]."""
    if not INTERPRETED and not q.is_cuda:
        return reference(q, k, v, scale=scale, return_aux=return_aux)
    dtype = q.dtype
    if INTERPRETED and INTERPRETER_UPCASTS_BF16 and dtype is torch.bfloat16:
        q, k, v = q.float(), k.float(), v.float()
    batch, heads, q_len, _ = q.shape
    out = torch.empty([batch, heads, q_len, D_V], dtype=q.dtype, device=q.device)
    lse = torch.empty([batch, heads, q_len], dtype=torch.float32, device=q.device)
    chosen = SCHEDULES["sm_80", 2, "forward"] | dict(schedule or {})
    scale = D_QK**-0.5 if scale is None else scale
    grid = (triton.cdiv(q_len, chosen["block_q"]) * heads * batch,)
    if grid[0] >= 2**31:
        raise ValueError(f"handmade: {grid[0]} programs are more than a grid holds")
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
            scale,
            -1 if scale < 0 else 1,
            D_QK,
            D_V,
            chosen["block_q"],
            chosen["block_kv"],
            num_warps=chosen["warps"],
            num_stages=chosen["stages"],
        )
    out = out.to(dtype)
    return (out, Aux(lse=lse)) if return_aux else out


def reference(q, k, v, *, scale=None, return_aux=False):
    """The same in dense PyTorch."""
    scale = D_QK**-0.5 if scale is None else scale
    q_len, kv_len = q.shape[2], k.shape[2]
    if not kv_len:  # a key that nobody sees
        k, v = (x.new_zeros((*x.shape[:2], 1, x.shape[3])) for x in (k, v))
    keys, values = (x.float().repeat_interleave(2, dim=1) for x in (k, v))
    q_pos = torch.arange(q_len)[:, None] + kv_len - q_len
    kv_idx = torch.arange(k.shape[2])
    score = q.float() @ keys.transpose(2, 3) * scale - (q_pos - kv_idx).abs() / 16
    visible = ((kv_idx <= q_pos) & (kv_idx < kv_len)).expand(score.shape)
    logits = torch.where(visible, score, float("-inf"))
    lse = torch.logsumexp(logits, -1)
    empty = (lse == float("-inf"))[..., None]
    weights = torch.where(empty, 0.0, torch.softmax(torch.where(empty, 0.0, logits), -1))
    out = weights @ torch.where(visible.any(2)[..., None], values, 0.0)
    out = out.to(q.dtype)
    return (out, Aux(lse=lse)) if return_aux else out
