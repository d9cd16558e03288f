"""Describe an attention variant in Python, compile it, run it.

    python examples/quickstart.py

On a CPU the kernel runs in Triton's interpreter, because of the variable that is set below.
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # before the first import of triton

import torch

import attnc


def main() -> None:
    spec = attnc.Spec(
        "windowed_softcap",
        heads={"q": 4, "kv": 2},
        head_dim=64,
        score="softcap(score, 30)",
        mask="causal & sliding_window(48)",
        outputs=["lse"],
    )
    kernel = attnc.compile(spec)

    torch.manual_seed(0)
    q = torch.randn(1, 4, 100, 64)
    k, v = torch.randn(1, 2, 100, 64), torch.randn(1, 2, 100, 64)
    out, aux = kernel.attention(q, k, v, return_aux=True)

    error = (out - kernel.reference(q, k, v)).abs().max().item()
    print(f"out {tuple(out.shape)}, lse {tuple(aux.lse.shape)}")
    print(f"largest difference from the dense reference: {error:.1e}")
    print(f"the kernel's own file: {kernel.__file__}")
    assert error < 1e-5


if __name__ == "__main__":
    main()
