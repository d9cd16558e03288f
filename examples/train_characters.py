"""Train a small character-level transformer whose attention is a generated kernel.

    python examples/train_characters.py

The same model is trained twice from the same weights: once through the kernels, forward and
backward, once through dense attention in plain PyTorch.  The two loss curves agree to rounding.  On
a GPU the kernels run compiled, at a size worth running; on a CPU in Triton's interpreter, at a tiny
one.
"""

import os
from dataclasses import dataclass

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before the first import of triton

import torch.nn.functional as F
from torch import Tensor, nn

import attnc

TEXT = """To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer
the slings and arrows of outrageous fortune, or to take arms against a sea of troubles and by
opposing end them. To die, to sleep, no more; and by a sleep to say we end the heart-ache and the
thousand natural shocks that flesh is heir to: 'tis a consummation devoutly to be wish'd."""


@dataclass(frozen=True)
class Size:
    """How large a model, on how much text at a time."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    batch: int
    steps: int


TINY = Size(layers=2, heads=2, kv_heads=1, head_dim=16, context=32, batch=2, steps=12)
FULL = Size(layers=6, heads=8, kv_heads=2, head_dim=64, context=256, batch=32, steps=300)


class Layer(nn.Module):
    """Attention over the characters so far, then two linear maps; both added to what came in."""

    def __init__(self, size: Size, attention) -> None:
        super().__init__()
        self.size, self.attention = size, attention
        width = size.heads * size.head_dim
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * size.kv_heads * size.head_dim)
        self.out = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        q = self.q(y).unflatten(-1, (self.size.heads, -1)).transpose(1, 2)
        k, v = self.kv(y).unflatten(-1, (2 * self.size.kv_heads, -1)).transpose(1, 2).chunk(2, 1)
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.second(x))))


class Characters(nn.Module):
    """From characters to the logits of each next one."""

    def __init__(self, size: Size, alphabet: int, attention) -> None:
        super().__init__()
        width = size.heads * size.head_dim
        self.embed = nn.Embedding(alphabet, width)
        self.place = nn.Embedding(size.context, width)
        self.layers = nn.Sequential(*(Layer(size, attention) for _ in range(size.layers)))
        self.predict = nn.Linear(width, alphabet)

    def forward(self, characters: Tensor) -> Tensor:
        places = torch.arange(characters.shape[1], device=characters.device)
        return self.predict(self.layers(self.embed(characters) + self.place(places)))


def dense_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What the spec says, in plain PyTorch."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    score = 30 * torch.tanh(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 / 30)
    hidden = torch.ones(score.shape[2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(score.masked_fill(hidden, float("-inf")), -1) @ v


def train(size: Size, attention, device: str) -> list[float]:
    """The loss at each step, from weights and batches that the seed decides."""
    torch.manual_seed(0)
    alphabet = sorted(set(TEXT))
    text = torch.tensor([alphabet.index(c) for c in TEXT], device=device)
    model = Characters(size, len(alphabet), attention).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(size.steps):
        starts = torch.randint(len(TEXT) - size.context, (size.batch,), generator=draw)
        batch = torch.stack([text[i : i + size.context + 1] for i in starts.tolist()])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    device, size = ("cuda", FULL) if torch.cuda.is_available() else ("cpu", TINY)
    torch.set_float32_matmul_precision("highest")
    spec = attnc.Spec(
        "characters",
        heads={"q": size.heads, "kv": size.kv_heads},
        head_dim=size.head_dim,
        dtype="fp32",
        score="softcap(score, 30)",
        mask="causal",
    )
    kernel = attnc.compile(spec)
    ours = train(size, kernel.attention, device)
    dense = train(size, dense_attention, device)

    every = max(1, size.steps // 6)
    for step in range(0, size.steps, every):
        print(f"step {step:>3}: loss {ours[step]:.6f} with the kernels, {dense[step]:.6f} dense")
    apart = max(abs(one - other) for one, other in zip(ours, dense, strict=True))
    print(f"largest difference of the two curves: {apart:.1e}")
    assert apart < (1e-4 if device == "cpu" else 5e-2)
    assert ours[-1] < ours[0] - 0.3


if __name__ == "__main__":
    main()
