"""A module as codegen writes them, cut down to what the tuner reads: a kernel and its launcher."""

import contextlib

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["q_len", "kv_len"])
def forward(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    q_stride_h,
    q_stride_q,
    q_stride_d,
    k_stride_h,
    k_stride_k,
    k_stride_d,
    v_stride_h,
    v_stride_k,
    v_stride_e,
    q_len,
    kv_len,
    scale,
    BLOCK_Q: tl.constexpr,
    BLOCK_KV: tl.constexpr,
    WIDTH: tl.constexpr,
    INDEX: tl.constexpr,
):
    h = tl.program_id(0) % 8
    q_first = tl.program_id(0) // 8 * BLOCK_Q
    row = tl.arange(0, BLOCK_Q).to(INDEX)
    column = tl.arange(0, BLOCK_KV).to(INDEX)
    feature = tl.arange(0, WIDTH).to(INDEX)
    q_idx = q_first + row
    q_offsets = (row * q_stride_q)[:, None] + (feature * q_stride_d)[None, :]
    q_base = tl.cast(h, tl.int64) * q_stride_h + tl.cast(q_first, tl.int64) * q_stride_q
    q = tl.load(q_ptr + q_base + q_offsets, mask=(q_idx < q_len)[:, None], other=0.0)
    k_offsets = (column * k_stride_k)[None, :] + (feature * k_stride_d)[:, None]
    v_offsets = (column * v_stride_k)[:, None] + (feature * v_stride_e)[None, :]
    k_base = k_ptr + tl.cast(h, tl.int64) * k_stride_h
    v_base = v_ptr + tl.cast(h, tl.int64) * v_stride_h
    k_step = tl.cast(BLOCK_KV, tl.int64) * k_stride_k
    v_step = tl.cast(BLOCK_KV, tl.int64) * v_stride_k
    m = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    l = tl.full([BLOCK_Q], 0.0, tl.float32)  # noqa: E741
    acc = tl.full([BLOCK_Q, WIDTH], 0.0, tl.float32)
    whole = q_first // BLOCK_KV
    for tile in range(0, whole):
        k = tl.load(k_base + tile * k_step + k_offsets)
        s = tl.dot(q, k, input_precision="ieee") * scale
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        rescale = tl.exp2(m - m_new)
        l = l * rescale + tl.sum(p, 1)  # noqa: E741
        v = tl.load(v_base + tile * v_step + v_offsets)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        m = m_new
    for tile in range(whole, (tl.minimum(q_first + BLOCK_Q, kv_len) + BLOCK_KV - 1) // BLOCK_KV):
        kv_idx = tile * BLOCK_KV + column
        exists = column < kv_len - tile * BLOCK_KV
        k = tl.load(k_base + tile * k_step + k_offsets, mask=exists[None, :], other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * scale
        s = tl.where(kv_idx[None, :] <= q_idx[:, None], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        rescale = tl.exp2(m - m_new)
        l = l * rescale + tl.sum(p, 1)  # noqa: E741
        v = tl.load(v_base + tile * v_step + v_offsets, mask=exists[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        m = m_new
    out = acc / l[:, None]
    tl.store(
        out_ptr + q_base + q_offsets,
        out.to(out_ptr.dtype.element_ty),
        mask=(q_idx < q_len)[:, None],
    )


def launch_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, schedule: list[int]
):
    """Launch the kernel, whatever the device."""
    block_q, block_kv, warps, stages = schedule
    out = torch.empty_like(q)
    with contextlib.nullcontext():
        forward[(triton.cdiv(q.shape[2], block_q) * 8,)](
            q,
            k,
            v,
            out,
            *q.stride()[1:],
            *k.stride()[1:],
            *v.stride()[1:],
            q.shape[2],
            k.shape[2],
            scale,
            BLOCK_Q=block_q,
            BLOCK_KV=block_kv,
            WIDTH=q.shape[3],
            INDEX=tl.int32,
            num_warps=warps,
            num_stages=stages,
        )
    return out


def launch_nothing(q: torch.Tensor, scale: float):
    """Return without a launch."""
    return q
