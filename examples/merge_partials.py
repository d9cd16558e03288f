"""Attend to a long context in pieces and merge the results: what ring attention does.

    python examples/merge_partials.py

Each device holds a part of the keys.  Partial results carry their lse, a natural logarithm that
includes scale and score, so the whole is a weighted sum with weights exp(lse_part - lse_whole).
"""

import os
import warnings

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch

import attnc


def merge(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge (out, lse) pairs over disjoint keys; a part that sees nothing has lse -inf."""
    lse = torch.logsumexp(torch.stack([lse for _, lse in parts]), 0)
    anchor = torch.where(lse == float("-inf"), 0.0, lse)  # -inf - -inf would be NaN
    out = sum(out * (part - anchor).exp()[..., None] for out, part in parts)
    return out, lse


def main() -> None:
    # Where a part of the keys begins is a run-time number, so one kernel serves every device.
    spec = attnc.Spec(
        "ring_step",
        heads=2,
        head_dim=32,
        mask="kv_idx + start <= q_idx",
        params={"start": {"type": "int", "default": 0}},
        outputs=["lse"],
    )
    kernel = attnc.compile(spec)

    # A device early in the sequence holds queries that see none of a later device's keys.  Their
    # lse is log(0) = -inf, as it should be; numpy, under Triton's interpreter, remarks on it.
    warnings.filterwarnings("ignore", "divide by zero encountered in log2", RuntimeWarning)

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 96, 32) for _ in range(3))
    parts = []
    for start in range(0, 96, 24):
        part = slice(start, start + 24)
        out, aux = kernel.attention(q, k[:, :, part], v[:, :, part], start=start, return_aux=True)
        parts.append((out, aux.lse))
    out, lse = merge(parts)

    whole, aux = kernel.attention(q, k, v, return_aux=True)
    print(f"out differs by {(out - whole).abs().max().item():.1e} from a single pass")
    print(f"lse differs by {(lse - aux.lse).abs().max().item():.1e}")
    torch.testing.assert_close(out, whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, aux.lse, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    main()
