"""Dense attention in PyTorch, straight from DESIGN section 2: it judges every kernel.

In float64 it is the reference.  In fp16, bf16 or fp32 it is the plain computation whose error a
kernel may reach twice: products of inputs in that dtype accumulate in float32, scores and softmax
are float32, the weights are rounded to the dtype before they meet v, and the output is rounded
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from attnc.spec.schema import AttentionSpec
from attnc.verify.philox import random_number
from attnc.verify.torch_formulas import Meanings, evaluate


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an attention function: its tensors by name (q, k, v, declared ones), its scalars.

    Tensors stand in the spec's layout.  `scale` None means the spec's own.  A float param or the
    scale may be a 0-d tensor, which can have a gradient.
    """

    spec: AttentionSpec
    tensors: Mapping[str, Tensor]
    params: Mapping[str, int | float | Tensor]
    scale: float | Tensor | None = None
    dropout_p: float = 0.0
    dropout_seed: int = 0  # of 64 bits, from -2**63 up


@dataclass(frozen=True, slots=True)
class Dense:
    """What a call must give: `out` in the spec's layout; `lse` [B, Hq, Sq], a natural logarithm.

    `extra`: max_score and entropy [B, Hq, Sq], key_mass [B, Hq, Sk], of the weights before dropout.
    `largest`: the largest size of anything that is summed up to a visible score: of the score, and
    of scale * sum |q| |k|.  Rounding errors grow with it.
    """

    out: Tensor
    lse: Tensor
    largest: float
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def results(self) -> dict[str, Tensor]:
        """All of them by name."""
        return {"out": self.out, "lse": self.lse, **self.extra}


def dense(call: Call, dtype: torch.dtype = torch.float64) -> Dense:
    """Compute attention densely.

    Shapes: out [B, Hq, Sq, Dv] (bshd: [B, Sq, Hq, Dv]), dtype `dtype`; lse [B, Hq, Sq], float64
    or float32.
    """
    real = torch.float64 if dtype is torch.float64 else torch.float32
    q, k, v = heads_first(call)
    visible = visible_pairs(call)
    scores = visible_scores(call, scaled_products(call, real), visible, real)
    scores = torch.cat((scores, _sink(call, scores)), -1)
    v = torch.cat((v, v.new_zeros((*v.shape[:2], 1, v.shape[3]))), 2)
    peak = scores.detach().amax(-1, keepdim=True)  # it cancels, so nothing has a gradient by it
    empty = peak == -torch.inf
    weights = torch.exp(scores - torch.where(empty, 0.0, peak))
    total = torch.where(empty, 1.0, weights.sum(-1, keepdim=True))
    share = torch.nn.functional.pad(weight_shares(call, real), (0, 1), value=1.0)
    extra = _extra(scores, torch.where(empty, 0.0, weights / total))
    weights = torch.where(empty, 0.0, weights / total * share).to(dtype).to(real)
    out = _gated(call, _weighted_sum(weights, scores > -torch.inf, by_query_head(call, v).to(real)))
    lse = torch.where(empty, -torch.inf, peak + torch.log(total)).squeeze(-1)
    out = out.to(dtype)
    largest = max(_peak(scores), _peak(torch.where(visible, _summed(call, q, k, real), 0.0)))
    out = out.transpose(1, 2) if call.spec.layout == "bshd" else out
    return Dense(out, lse, largest, extra)


def _extra(scores: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Of scores and weights whose last key is the sink."""
    keys = torch.cat((scores[..., :-1], torch.full_like(scores[..., :1], -torch.inf)), -1)
    positive = torch.where(weights > 0, weights, 1.0)  # 0 log 0 is 0
    return {
        "max_score": keys.detach().amax(-1),
        "entropy": -(positive * positive.log()).sum(-1),
        "key_mass": weights[..., :-1].sum(2),
    }


def heads_first(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v as [B, H, S, D], whatever the layout."""
    q, k, v = (call.tensors[name] for name in "qkv")
    if call.spec.layout == "bshd":
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return q, k, v


def visible_pairs(call: Call) -> Tensor:
    """The mask, [B, Hq, Sq, Sk], bool: which query sees which key."""
    q, k, _ = heads_first(call)
    meanings = _meanings(call, torch.float64)
    return evaluate(call.spec.mask, meanings).expand(*q.shape[:3], k.shape[2])


def default_scale(call: Call) -> float:
    """The spec's scale at this call's sizes and params."""
    return float(evaluate(call.spec.scale, _meanings(call, torch.float64)).to(torch.float64))


def _peak(tensor: Tensor) -> float:
    finite = tensor.detach()[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _summed(call: Call, q: Tensor, k: Tensor, real: torch.dtype) -> Tensor:
    q, k = q.detach().to(real), by_query_head(call, k).detach().to(real)
    return abs(float(torch.as_tensor(scale_of(call)).detach())) * (q.abs() @ k.abs().mT)


def scale_of(call: Call) -> float | Tensor:
    """The scale of a call: its own, or the spec's."""
    return default_scale(call) if call.scale is None else call.scale


def scaled_products(call: Call, real: torch.dtype) -> Tensor:
    """s = scale * q . k, [B, Hq, Sq, Sk]."""
    q, k, _ = heads_first(call)
    return q.to(real) @ by_query_head(call, k).to(real).mT * scale_of(call)


def visible_scores(call: Call, products: Tensor, visible: Tensor, real: torch.dtype) -> Tensor:
    """t = score(s), -inf where hidden; a hidden pair passes no gradient on."""
    meanings = _meanings(call, real, score=products).within(visible)
    scores = evaluate(call.spec.score, meanings)
    return torch.where(visible, scores.to(real).expand(products.shape), -torch.inf)


def _sink(call: Call, scores: Tensor) -> Tensor:
    """The score of one more key, whose value is 0: the sink, else -inf, a key that nobody sees."""
    sink = call.tensors["sink"] if call.spec.sink else torch.tensor([-torch.inf])
    return sink.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)


def weight_shares(call: Call, real: torch.dtype) -> Tensor:
    """What each weight is multiplied with by dropout, [B, Hq, Sq, Sk]: 0 or 1 / (1 - p)."""
    q, k, _ = heads_first(call)
    shape = (*q.shape[:3], k.shape[2])
    if not call.dropout_p:
        return torch.ones((), dtype=real, device=q.device).expand(shape)
    b, h, q_idx, kv_idx = np.ogrid[tuple(slice(n) for n in shape)]
    numbers = random_number(call.dropout_seed, b, h, q_idx, kv_idx)
    kept = torch.from_numpy(numbers >= dropout_cutoff(call.dropout_p)).to(q.device)
    return kept.to(real) / (1 - call.dropout_p)


def dropout_cutoff(p: float) -> int:
    """The least random number of a weight that is kept."""
    return min(round(p * 2**32), 2**32 - 1) - 2**31


def by_query_head(call: Call, tensor: Tensor) -> Tensor:
    """A tensor of key/value heads, each repeated for the query heads that share it."""
    return tensor.repeat_interleave(call.spec.group, dim=1)


def _weighted_sum(weights: Tensor, seen: Tensor, v: Tensor) -> Tensor:
    """sum_j weights_ij v_j over what row i sees: no weight of 0 ever meets a NaN (rule 4)."""
    strange = ~v.isfinite().all(-1)  # [B, H, Sk]
    out = weights @ torch.where(strange.unsqueeze(-1), 0.0, v)
    for key in strange.any(0).any(0).nonzero().flatten().tolist():
        term = weights[..., key, None] * v[:, :, None, key]
        hit = (seen[..., key] & strange[:, :, None, key]).unsqueeze(-1)
        out = out + torch.where(hit, term, 0.0)
    return out


def _gated(call: Call, out: Tensor) -> Tensor:
    if not call.spec.head_gate:
        return out
    gate = call.tensors["head_gate"].to(out.dtype)[None, :, None, None]
    if gate.requires_grad:
        return out * gate  # what a closed head would give decides about opening it
    return torch.where(gate == 0, 0.0, out * gate)  # a closed head gives 0, whatever its v holds


def _meanings(call: Call, real: torch.dtype, **values: Tensor) -> Meanings:
    q, k, _ = heads_first(call)
    batch, heads, q_len, d = q.shape
    kv_len = k.shape[2]
    h = torch.arange(heads)[:, None, None]
    q_idx = torch.arange(q_len)[:, None]
    names = {
        "b": torch.arange(batch)[:, None, None, None],
        "h": h,
        "h_kv": h // call.spec.group,
        "q_idx": q_idx,
        "kv_idx": torch.arange(kv_len),
        "q_pos": q_idx + kv_len - q_len,
        "q_len": torch.tensor(q_len),
        "kv_len": torch.tensor(kv_len),
        "d": torch.tensor(d),
    }
    kinds = {param.name: torch.int64 if param.kind == "int" else real for param in call.spec.params}
    params = {name: torch.as_tensor(call.params[name], dtype=kind) for name, kind in kinds.items()}
    return Meanings(names | params | values, call.tensors, real)
