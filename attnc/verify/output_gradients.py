"""What cotangents of entropy and key_mass change of each weight, as plain PyTorch makes it.

With H the entropy of a row, p = exp(t - lse) and g the cotangents, the gradient of t gains
p (g_mass[j] - sum_j p g_mass[j]) and -p g_H (t - lse + H): terms of a row, and of each pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.verify.reference import Call


@dataclass(frozen=True, slots=True)
class OutputTerms:
    """rows: [B, H, Sq], what joins the gradient of lse; pairs: [B, H, Sq, Sk], what else moves t.

    sink: [B, H, Sq], what else moves a sink.  sizes: of the terms of a row, before they cancel.
    """

    rows: Tensor
    pairs: Tensor
    sink: Tensor
    sizes: Tensor


def output_terms(
    call: Call, given: Mapping[str, Tensor], scores: Tensor, lse: Tensor
) -> OutputTerms:
    """The terms of a call with scores t, -inf where hidden."""
    none = torch.zeros_like(lse)
    terms = OutputTerms(none, torch.zeros_like(scores), none, none)
    seen = scores > -torch.inf
    logs = torch.where(seen, scores - torch.where(lse == -torch.inf, 0.0, lse)[..., None], 0.0)
    p = torch.where(seen, logs.exp(), 0.0)
    if "entropy" in given:
        g = given["entropy"].to(scores.dtype)
        of_sink = torch.zeros_like(lse)
        if call.spec.sink:
            sink = call.tensors["sink"].to(scores.dtype)[None, :, None]
            of_sink = torch.where(lse == -torch.inf, 0.0, sink - lse)
        entropy = -(p * logs).sum(-1) - of_sink.exp() * of_sink * (1.0 if call.spec.sink else 0.0)
        rows, pairs = -g * entropy, -g[..., None] * logs
        terms = OutputTerms(rows, pairs, -g * of_sink, rows.abs())
    if "key_mass" in given:
        g = given["key_mass"].to(scores.dtype)[:, :, None]
        rows = terms.rows - (p * g).sum(-1)
        sizes = terms.sizes + (p * g.abs()).sum(-1)
        terms = OutputTerms(rows, terms.pairs + g, terms.sink, sizes)
    return terms
