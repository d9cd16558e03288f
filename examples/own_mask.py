"""Bring a mask and a score written for FlexAttention; attnc traces them into formulas.

    python examples/own_mask.py

The functions run once, on stand-ins that write down what is done to them.  What comes out is a
formula like any other: tile ranges are derived from it, and `attnc verify` can prove them.
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch

import attnc


def chunked_causal(b, h, q_idx, kv_idx):
    """Each query sees its own chunk of 32, up to itself."""
    return (kv_idx // 32 == q_idx // 32) & (kv_idx <= q_idx)


def recency(score, b, h, q_idx, kv_idx):
    """Keys far away count a little less."""
    return score - 0.05 * (q_idx - kv_idx)


def main() -> None:
    spec = attnc.Spec("chunked_recency", heads=2, head_dim=32, mask=chunked_causal, score=recency)
    print(f"mask:  {spec.mask_text}")
    print(f"score: {spec.score_text}")
    kernel = attnc.compile(spec)

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 128, 32) for _ in range(3))
    i, j = torch.arange(128)[:, None], torch.arange(128)[None, :]
    scores = recency(q @ k.transpose(-1, -2) / 32**0.5, 0, 0, i, j)
    scores = scores.masked_fill(~chunked_causal(0, 0, i, j), float("-inf"))
    error = (kernel.attention(q, k, v) - scores.softmax(-1) @ v).abs().max().item()
    print(f"largest difference from the same functions on dense tensors: {error:.1e}")
    assert error < 1e-5


if __name__ == "__main__":
    main()
