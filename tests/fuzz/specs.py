"""Random specs (masks, scores, tensors, params, heads, dims, layouts) and calls to try them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from attnc.verify.cases import Case

TENSORS = {
    "bias": "{shape: [heads, q_len, kv_len]}",
    "row_bias": "{shape: [batch, q_len], dtype: fp16}",
    "pair": "{shape: [q_len, kv_len], dtype: bf16}",
    "table": "{shape: [heads, 17]}",
    "slopes": "{shape: [heads]}",
    "ids": "{shape: [batch, kv_len], dtype: int32}",
    "shown": "{shape: [batch, kv_len], dtype: bool}",
    "width": "{shape: [heads], dtype: int32}",
    "lengths": "{shape: [batch], dtype: int64}",
}
PARAMS = {
    "n": "{type: int, default: 5}",
    "far": "{type: int, default: 40}",
    "w": "{type: float, default: 0.3}",
}

MASKS = st.sampled_from(
    [
        "causal", "causal(top_left)", "window(7, 3)", "window(inf, 4)", "window(n, 0)",
        "sliding_window(9)", "sliding_window(n)", "prefix(11)", "prefix(n)", "global_tokens(3)",
        "global_tokens(n)", "dilated(4, 5)", "documents(ids)", "shown[b, kv_idx]",
        "(kv_idx < lengths[b])", "(q_pos - kv_idx < width[h])", "(q_idx // 8 == kv_idx // 8)",
        "(q_pos // 16 >= kv_idx // 16)", "((q_pos - kv_idx) % 5 == 0)",
        "(abs(q_pos - kv_idx) <= far)", "(2 * kv_idx <= q_pos + 3)", "(kv_idx != 6)",
        "(kv_idx == 4)", "(h < 1)", "(q_idx % 3 != 1)", "(kv_idx + q_idx < far)",
        "(far - n < kv_idx)", "(kv_idx * q_idx < 200)", "(where(kv_idx < 8, 3, 20) < q_pos)",
        "(min(q_pos, far) > kv_idx)", "(max(kv_idx, 3) <= q_idx)", "(exp(w) * kv_idx < q_len)",
        "(0 <= q_pos <= 30)", "(ids[b, kv_idx] > 0)",
    ]
)  # fmt: skip


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} & {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} | {pair[1]})"),
        inner.map(lambda one: f"~({one})"),
    )


masks = st.recursive(MASKS, _combined, max_leaves=4)

SCORES = st.sampled_from(
    [
        "{x}", "softcap({x}, 5)", "alibi({x})", "{x} + bias[h, q_idx, kv_idx]",
        "{x} + row_bias[b, q_idx]", "{x} + pair[q_idx, kv_idx]", "relative_bias({x}, table)",
        "{x} * slopes[h]", "{x} * w", "{x} - w * abs(q_pos - kv_idx)",
        "t5_bias({x}, table, max_distance=40)", "where(kv_idx % 2 == 0, {x}, {x} / 2)",
        "{x} * log(max(q_pos, 0) + 2)", "{x} * sigmoid({x})", "max({x}, -1.5)", "relu({x})",
        "{x} * sqrt(kv_idx + 1) / 4", "exp({x} / 8)", "{x} ** 2 / 4", "-{x}", "abs({x})",
        "{x} + 1 / (kv_idx + 1)", "{x} + exp2(-kv_idx / 8)", "{x} + log2(kv_len + 1)", "0.25",
        "where({x} > 0, {x}, {x} / 8)", "max({x}, {x} ** 2 / 8) / 2",
        "tanh({x}) * 3", "min({x}, q_idx / 7)", "{x} - slopes[h] * kv_idx",
    ]
)  # fmt: skip


def _fill(parts: list[str]) -> str:
    text = "score"
    for part in parts:
        text = part.replace("{x}", text)
    return text


scores = st.lists(SCORES, min_size=0, max_size=3).map(_fill)


@st.composite
def _features(draw: st.DrawFn) -> list[str]:
    """What a spec has beside its score and mask."""
    rare = st.integers(0, 3).map(lambda n: n == 0)
    asked = {"sink: per_head": rare, "dropout: true": rare}
    return ["backward: true", *(line for line, often in asked.items() if draw(often))]


def _with_gradient(draw: st.DrawFn, tensor: str) -> str:
    """A tensor of floats, which may have a gradient."""
    is_float = not any(kind in tensor for kind in ("int32", "int64", "bool"))
    return tensor[:-1] + ", grad: true}" if is_float and draw(st.booleans()) else tensor


@dataclass(frozen=True)
class Trial:
    """A spec's text and a call."""

    text: str
    case: Case


@st.composite
def trials(draw: st.DrawFn, trained: bool = False) -> Trial:
    """A spec and a call; trained: with all that has a gradient, and fewer heads."""
    mask, score = draw(st.one_of(st.just("true"), masks)), draw(scores)
    kv = draw(st.sampled_from([1, 2] if trained else [1, 2, 3]))
    group = draw(st.sampled_from([1, 1, 2, 3] if trained else [1, 1, 2, 3, 5]))
    qk, v = (
        draw(st.sampled_from([1, 8, 16, 24, 31, 40, 64, 80])),
        draw(st.sampled_from([1, 16, 20, 48])),
    )
    used = [
        name
        for name in TENSORS
        if f"{name}[" in mask + score or f"({name})" in mask or f", {name}" in score
    ]
    params = [
        name
        for name in PARAMS
        if any(f"{lead}{name}{end}" in f" {mask} {score} " for lead in " (,*" for end in " ),")
    ]
    lines = [
        "name: trial",
        f"heads: {{q: {kv * group}, kv: {kv}}}",
        f"head_dim: {{qk: {qk}, v: {v}}}",
        f"layout: {draw(st.sampled_from(['bhsd', 'bshd']))}",
        f"mask: {mask}",
        f"score: {score}",
        f"scale: {draw(st.sampled_from(['1/sqrt(d)', '1', '-0.5', 'log(kv_len + 1) / d']))}",
    ]
    if draw(st.booleans()):
        lines.append("outputs: [lse]")
    if draw(st.integers(0, 4)) == 0:
        lines.append("head_gate: true")
    lines += draw(_features()) if trained else ["backward: false"]
    if used:
        shapes = {name: _with_gradient(draw, TENSORS[name]) if trained else TENSORS[name]
                  for name in used}  # fmt: skip
        lines.append("tensors: {" + ", ".join(f"{name}: {shapes[name]}" for name in used) + "}")
    if params:
        lines.append("params: {" + ", ".join(f"{name}: {PARAMS[name]}" for name in params) + "}")
    case = Case(
        "fuzz",
        batch=draw(st.sampled_from([1, 2])),
        heads_kv=kv,
        q_len=draw(st.sampled_from([0, 1, 5, 16, 33, 50])),
        kv_len=draw(st.sampled_from([0, 1, 7, 16, 40, 65])),
        dtype=draw(st.sampled_from(["fp32", "fp16", "bf16"])),
        tiles=draw(st.sampled_from([(16, 16), (16, 32), (32, 16), (64, 32)])),
        storage=draw(st.sampled_from(["packed", "transposed", "sliced", "expanded"])),
        params=tuple((name, 0.3 if name == "w" else draw(st.integers(-3, 60))) for name in params),
        seed=draw(st.integers(0, 2**20)),
        dropout_p=draw(st.sampled_from([0.0, 0.3])) if "dropout: true" in lines else 0.0,
    )
    return Trial("\n".join(lines) + "\n", case)
