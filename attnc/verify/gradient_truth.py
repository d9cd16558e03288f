"""Gradients of a call: by autograd through the dense reference, and as plain PyTorch makes them.

In float64 autograd differentiates `reference.dense`: nothing of the derivative is written down.
The plain computation keeps {out, lse} and recomputes the rest in PyTorch: elements are rounded once
to the inputs' dtype for each product that they enter, and the outcome on these very inputs is the
measure of a kernel's.

`sizes` are those of everything that is added up to an element of a gradient, before anything
cancels: p (|dP| + |delta| + |d lse|) |ds/dt| |k| for a query.  Rounding errors grow with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnc.verify.output_gradients import output_terms
from attnc.verify.reference import (
    Call,
    by_query_head,
    dense,
    heads_first,
    scale_of,
    scaled_products,
    visible_pairs,
    visible_scores,
    weight_shares,
)
from attnc.verify.rounded import Rounded

Gradients = dict[str, Tensor]
Cotangents = Mapping[str, Tensor]  # by output, where given: out in the spec's layout


@dataclass(frozen=True, slots=True)
class GradientTruth:
    """What a backward must give, by the names of what the gradients are of.

    exact: in float64.  plain: in the dtypes they must have.  sizes: see the module.
    unreached: rows of q without a visible key, keys that no query sees: exactly 0.
    dtype: of the inputs.  rows, features: of the output.
    """

    exact: Gradients
    plain: Gradients
    sizes: Gradients
    unreached: dict[str, Tensor]
    largest: float
    dtype: torch.dtype
    rows: int
    features: int


def differentiable(call: Call) -> tuple[str, ...]:
    """Names of everything that a gradient can be asked of."""
    spec = call.spec
    declared = [tensor.name for tensor in spec.tensors if tensor.grad]
    declared += [name for name in ("head_gate", "sink") if name in call.tensors]
    params = [param.name for param in spec.params if param.kind == "float"]
    return ("q", "k", "v", *declared, *params, "scale")


def true_gradients(call: Call, cotangents: Cotangents, names: tuple[str, ...]) -> GradientTruth:
    """Differentiate a call, whose float params and scale must be numbers of float32.

    What rules 1 and 4 hide is taken out first: no NaN there is in any gradient.
    """
    seen = visible_pairs(call)
    unreached = _unreached(call, seen)
    clean = _cleaned(call, unreached)
    forward = dense(clean)
    given = _cleaned_cotangents(call, cotangents, silent_rows(clean, forward.lse))
    exact = _by_autograd(clean, given, names)
    plain = _recomputing(clean, given, names, seen)
    sizes = _sizes(clean, given, names, seen)
    facts = (forward.largest, call.tensors["q"].dtype, forward.lse.numel(), call.spec.head_dim_v)
    return GradientTruth(exact, plain, sizes, unreached, *facts)


def _unreached(call: Call, seen: Tensor) -> dict[str, Tensor]:
    batch, heads, _, kv_len = seen.shape
    keys = seen.any(2).reshape(batch, heads // call.spec.group, call.spec.group, kv_len).any(2)
    hidden = {"q": ~seen.any(-1), "k": ~keys, "v": ~keys}
    if call.spec.layout == "bshd":
        hidden = {name: rows.transpose(1, 2) for name, rows in hidden.items()}
    return hidden


def _cleaned(call: Call, unreached: Mapping[str, Tensor]) -> Call:
    clean = {n: call.tensors[n].masked_fill(unreached[n][..., None], 0.0) for n in "qkv"}
    return replace(call, tensors={**call.tensors, **clean})


def silent_rows(call: Call, lse: Tensor) -> dict[str, Tensor]:
    """Rows of each output whose cotangents mean nothing, by rule 1: [B, H, S].

    With a sink, lse says something where no key is visible, and out does not.
    """
    real = torch.float64
    scores = visible_scores(call, scaled_products(call, real), visible_pairs(call), real)
    seen, empty = scores > -torch.inf, lse == -torch.inf
    mute = torch.zeros_like(seen.any(-2))  # the mass of a key has a cotangent, seen or not
    return {"out": ~seen.any(-1), "lse": empty, "entropy": empty, "key_mass": mute}


def _cleaned_cotangents(
    call: Call, cotangents: Cotangents, silent: Mapping[str, Tensor]
) -> Gradients:
    """[B, H, S, ...] in the dtype they came in, 0 in the rows that give nothing."""
    given: Gradients = {}
    for name, tensor in cotangents.items():
        is_turned = name == "out" and call.spec.layout == "bshd"
        turned = tensor.transpose(1, 2) if is_turned else tensor
        rows = silent[name][(..., *[None] * (turned.dim() - silent[name].dim()))]
        given[name] = turned.masked_fill(rows, 0.0)
    return given


def _with_leaves(call: Call, names: tuple[str, ...], **made: Any) -> tuple[Call, Gradients]:
    """The call with fresh leaves in place of what gradients are wanted of."""
    leaves: Gradients = {}
    for name in names:
        leaf = _value(call, name).detach().to(**made) if made else _value(call, name).detach()
        leaves[name] = leaf.requires_grad_() if not leaf.requires_grad else leaf
    return _replaced(call, leaves), leaves


def _value(call: Call, name: str) -> Tensor:
    if name == "scale":
        return torch.as_tensor(scale_of(call))
    return torch.as_tensor(call.tensors[name] if name in call.tensors else call.params[name])


def _replaced(call: Call, values: Mapping[str, Tensor]) -> Call:
    tensors = {name: values.get(name, tensor) for name, tensor in call.tensors.items()}
    params = {name: values.get(name, number) for name, number in call.params.items()}
    return replace(call, tensors=tensors, params=params, scale=values.get("scale", call.scale))


def _pulled(results: list[Tensor], given: list[Tensor], leaves: Gradients) -> Gradients:
    """Vector-Jacobian products; what nothing depends on has gradient 0."""
    known = [pair for pair in zip(results, given, strict=True) if pair[0].requires_grad]
    if not known:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    outputs, cotangents = zip(*known, strict=True)
    found = torch.autograd.grad(outputs, [*leaves.values()], cotangents, allow_unused=True)
    pairs = zip(leaves.items(), found, strict=True)
    return {name: torch.zeros_like(leaf) if g is None else g for (name, leaf), g in pairs}


def _by_autograd(call: Call, given: Gradients, names: tuple[str, ...]) -> Gradients:
    varied, leaves = _with_leaves(call, names, dtype=torch.float64)
    forward = dense(varied)
    out = forward.out.transpose(1, 2) if call.spec.layout == "bshd" else forward.out
    results = {**forward.results, "out": out}
    cotangents = [tensor.to(torch.float64) for tensor in given.values()]
    return _pulled([results[name] for name in given], cotangents, leaves)


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a backward knows of each row before it meets a key, [B, H, S, ...]."""

    ungated: Tensor  # the output before a gate
    lse: Tensor
    pulled: Tensor  # gradient of the ungated output
    delta: Tensor
    d_lse: Tensor
    share: Tensor  # of each pair: what dropout leaves of its weight, [B, H, Sq, Sk]


def _rows(call: Call, given: Gradients, dtype: torch.dtype, real: torch.dtype) -> _Rows:
    found = dense(replace(call, spec=replace(call.spec, head_gate=False)), dtype)
    out = found.out.transpose(1, 2) if call.spec.layout == "bshd" else found.out
    pulled = given["out"].to(real) if "out" in given else torch.zeros_like(out, dtype=real)
    if call.spec.head_gate:
        pulled = pulled * call.tensors["head_gate"].to(real)[None, :, None, None]
    delta = (pulled * out.to(real)).sum(-1)
    d_lse = given["lse"].to(real) if "lse" in given else torch.zeros_like(delta)
    return _Rows(out.to(real), found.lse.to(real), pulled, delta, d_lse, weight_shares(call, real))


def _weights(scores: Tensor, lse: Tensor) -> Tensor:
    return torch.where(scores == -torch.inf, 0.0, torch.exp(scores - lse[..., None]))


def _recomputing(call: Call, given: Gradients, names: tuple[str, ...], seen: Tensor) -> Gradients:
    """The backward of plain PyTorch in the inputs' dtype, from out and lse."""
    dtype, real = call.tensors["q"].dtype, torch.float32
    varied, leaves = _with_leaves(call, names)
    rows = _rows(call, given, dtype, real)
    products = Rounded.apply(scaled_products(varied, real), dtype)
    scores = visible_scores(varied, products, seen, real)
    weights = _weights(scores.detach(), rows.lse)
    v = by_query_head(call, heads_first(call)[2]).to(real)
    pulled = rows.pulled.to(dtype).to(real) @ v.mT * rows.share
    more = output_terms(call, given, scores.detach(), rows.lse)
    of_row = rows.d_lse - rows.delta + more.rows
    change = pulled + of_row[..., None] + more.pairs
    scored = {n: leaf for n, leaf in leaves.items() if n not in ("v", "head_gate", "sink")}
    found = _pulled([scores], [torch.where(weights == 0, 0.0, weights * change)], scored)
    if "v" in leaves:
        summed = (weights * rows.share).to(dtype).to(real).mT @ rows.pulled
        found["v"] = _of_kv_heads(call, summed).to(dtype)
    if "head_gate" in leaves:
        found["head_gate"] = _of_gate(call, given, rows.ungated, torch.mul)
    if "sink" in leaves:
        found["sink"] = _of_sink(call, rows, of_row + more.sink)
    return {name: found[name] for name in names}


def _of_kv_heads(call: Call, by_head: Tensor) -> Tensor:
    """Sum over the query heads that share a key/value head; in the spec's layout."""
    summed = by_head.unflatten(1, (-1, call.spec.group)).sum(2)
    return summed.transpose(1, 2) if call.spec.layout == "bshd" else summed


def _of_gate(call: Call, given: Gradients, ungated: Tensor, times: Any) -> Tensor:
    gate = call.tensors["head_gate"]
    if "out" not in given:
        return torch.zeros_like(gate)
    return times(given["out"].to(ungated.dtype), ungated).sum((0, 2, 3)).to(gate.dtype)


def _of_sink(call: Call, rows: _Rows, change: Tensor) -> Tensor:
    """The sink's weight in each row times what that weight changes."""
    sink = call.tensors["sink"]
    scores = sink.to(rows.lse.dtype)[None, :, None, None].expand(*rows.lse.shape, 1)
    weights = _weights(scores, rows.lse)[..., 0]
    return (weights * change).sum((0, 2)).to(sink.dtype)


def _sizes(call: Call, given: Gradients, names: tuple[str, ...], seen: Tensor) -> Gradients:
    """The sum of sizes behind each element of a gradient, in float64."""
    real = torch.float64
    rows = _rows(call, given, real, real)
    products = scaled_products(call, real).requires_grad_()
    scores = visible_scores(call, products, seen, real)
    weights = _weights(scores.detach(), rows.lse)
    q, k, v = (tensor.to(real).abs() for tensor in heads_first(call))
    k, v = by_query_head(call, k), by_query_head(call, v)
    more = output_terms(call, given, scores.detach(), rows.lse)
    row_size = (rows.pulled.abs() * rows.ungated.abs()).sum(-1) + rows.d_lse.abs() + more.sizes
    pair_size = rows.pulled.abs() @ v.mT * rows.share + more.pairs.abs()
    change = weights * (pair_size + row_size[..., None])
    # a partial is itself rounded, as a number of size 1 at least
    slope = _slope(scores, products, change).abs().clamp(min=1.0)
    steep = change * slope * abs(float(scale_of(call)))
    found = {
        "q": steep @ k,
        "k": _of_kv_heads(replace(call, spec=replace(call.spec, layout="bhsd")), steep.mT @ q),
        "v": _of_kv_heads(call, (weights * rows.share).mT @ rows.pulled.abs()),
    }
    if call.spec.layout == "bshd":
        found |= {name: found[name].transpose(1, 2) for name in "qk"}
    if "head_gate" in names:
        found["head_gate"] = _of_gate(call, given, rows.ungated, lambda a, b: (a * b).abs())
    if "sink" in names:
        found["sink"] = _of_sink(call, rows, row_size + more.sink.abs())
    found |= {n: _size_behind(call, n, seen, change) for n in names if n not in found}
    return {name: found[name] for name in names}


def _slope(scores: Tensor, products: Tensor, like: Tensor) -> Tensor:
    """dt/ds of each pair."""
    if not scores.requires_grad:
        return torch.zeros_like(like)
    finite = torch.where(scores > -torch.inf, scores, 0.0)
    return torch.autograd.grad(finite.sum(), products, allow_unused=True)[0]


def _size_behind(call: Call, name: str, seen: Tensor, change: Tensor) -> Tensor:
    """Sum |change| |dt/dx| over what reads each element of x: signs turned so that none cancel."""
    real = torch.float64
    varied, leaves = _with_leaves(call, (name,), dtype=real)
    scores = visible_scores(varied, scaled_products(varied, real), seen, real)
    if not scores.requires_grad:
        return torch.zeros_like(leaves[name]).detach()
    tangent = _moved(scores, leaves[name])
    signed = torch.where(seen, change * tangent.sign(), 0.0)
    return _pulled([scores], [signed], leaves)[name].abs()


def _moved(results: Tensor, leaf: Tensor) -> Tensor:
    """How results move when all elements of a leaf move by one: the derivative of a derivative."""
    weights = torch.zeros_like(results).requires_grad_()
    (pulled,) = torch.autograd.grad(results, leaf, weights, create_graph=True)
    ones = torch.ones_like(pulled)
    (moved,) = torch.autograd.grad(pulled, weights, ones, allow_unused=True, retain_graph=True)
    return torch.zeros_like(results) if moved is None else moved
