"""Say in sentences what a kernel promises: what people ask after something went wrong."""

from __future__ import annotations

from sympy import Abs, Expr

from attnc import symbols
from attnc.explain.alignment import alignment
from attnc.explain.evaluate import compile_formula, names_in
from attnc.explain.situation import Situation
from attnc.spec.schema import AttentionSpec

_FP32_DOT = {
    "ieee": "IEEE float32 products",
    "tf32": "TF32 products (about 1e-3 relative)",
    "tf32x3": "three TF32 products (near float32)",
}

_DROPOUT = (
    "after the softmax, of out alone; a seed drops the same weights in both passes and in every "
    "schedule; dropout_p 0 compiles kernels without it"
)


def contracts(spec: AttentionSpec) -> dict[str, str]:
    """List what holds for every call of this kernel, by topic."""
    group = spec.group
    found = {
        "polarity": "the mask is true where a query sees a key; q_idx counts queries, kv_idx keys",
        "alignment": alignment(spec),
        "order": "scale, then score, then the mask by selection (it never adds), then softmax",
        "empty rows": "a query that sees no key gives out 0 and lse -inf, never NaN",
        "lse": "natural logarithm, float32, scale and score included; partial results merge",
        "hidden keys": "what lies in a key that no query of the tile sees never reaches a result, "
        "NaN and inf included",
        "heads": f"query head h reads key/value head h // {group}" if group > 1 else "one to one",
        "layout": _layout(spec),
        "scale": f"default {spec.scale_text}, with d = {spec.head_dim_qk}, the true q/k head dim",
        "precision": f"float32 accumulation; float32 inputs mean {_FP32_DOT[spec.fp32_dot]}",
        "lengths": "any q_len and kv_len from 0 to 2**30, any strides; no recompilation by length",
        "repeatability": "no atomics: a second run gives the same bits",
    }
    if spec.dropout:
        found["dropout"] = _DROPOUT
    return found


def _layout(spec: AttentionSpec) -> str:
    d, v = spec.head_dim_qk, spec.head_dim_v
    if spec.layout == "bhsd":
        return f"q [B, Hq, Sq, {d}], k [B, Hkv, Sk, {d}], v [B, Hkv, Sk, {v}], out [B, Hq, Sq, {v}]"
    return f"q [B, Sq, Hq, {d}], k [B, Sk, Hkv, {d}], v [B, Sk, Hkv, {v}], out [B, Sq, Hq, {v}]"


def lints(spec: AttentionSpec, situation: Situation) -> list[str]:
    """Warn of what is allowed and rarely meant."""
    found = []
    if _favours_far_keys(spec, situation):
        found.append(
            "the score grows with the distance abs(q_pos - kv_idx): far keys are favoured; "
            "ALiBi subtracts a positive slope"
        )
    return found


def _favours_far_keys(spec: AttentionSpec, situation: Situation) -> bool:
    distance = Abs(symbols.q_pos - symbols.kv_idx)
    if not spec.score.has(distance):
        return False
    slope = spec.score.coeff(distance)
    names = ["h", *situation.names()]
    if not isinstance(slope, Expr) or slope == 0 or not names_in(slope) <= set(names):
        return False
    if slope.has(symbols.Read):  # nobody knows what it holds
        return False
    at = compile_formula(slope, names, situation.read)
    return any(at(h, *situation.names().values()) > 0 for h in range(spec.heads_q))
