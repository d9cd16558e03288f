"""Every pass of the pipeline keeps what a program means.

The numpy interpreter runs it before and after.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnc.driver import build_dataflow, plan_program
from attnc.ir.nodes import Program
from attnc.passes.order import PIPELINE
from attnc.spec import parse_spec
from attnc.spec.schema import AttentionSpec
from attnc.verify.interpreter import run

MASKS = {
    "full": "mask: true",
    "causal": "mask: causal",
    "window": "mask: window(3, 2)",
    "sliding and global": "mask: sliding_window(5) | global_tokens(2)",
    "chunked": "mask: causal & (q_pos // 7 == kv_idx // 7)",
    "no interval": "mask: causal & ((q_pos - kv_idx) % 3 == 0)",
    "prefix": "mask: causal | prefix(4)",
    "documents": (
        "mask: causal & documents(ids)\ntensors: {ids: {shape: [batch, kv_len], dtype: int32}}"
    ),
}
SCORES = {
    "plain": "",
    "softcap": "score: softcap(score, 2)",
    "alibi": "score: alibi",
    "by row": "score: score * log(max(q_pos, 0) + 2)",
    "softcapped alibi": "score: alibi(softcap(score, 3))",
}


def spec_of(mask: str, score: str, rest: str = "") -> AttentionSpec:
    head = "name: sample\nheads: {q: 4, kv: 2}\nhead_dim: {qk: 24, v: 40}\noutputs: [lse]\n"
    return parse_spec(head + "\n".join(part for part in (mask, score, rest) if part) + "\n")


def stages(spec: AttentionSpec) -> dict[str, Program]:
    found: dict[str, Program] = {}
    PIPELINE.run(
        plan_program(build_dataflow(spec)), lambda name, program: found.update({name: program})
    )
    return found


def tensors_for(spec: AttentionSpec, q_len: int, kv_len: int, seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {"q": (2, 4, q_len, 24), "k": (2, 2, kv_len, 24), "v": (2, 2, kv_len, 40)}
    made = {name: draw.normal(size=shape) for name, shape in shapes.items()}
    if spec.tensors:
        made["ids"] = np.sort(draw.integers(0, 3, size=(2, kv_len)), axis=1)
    return made


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_every_pass_keeps_the_meaning(mask: str, score: str) -> None:
    spec = spec_of(MASKS[mask], SCORES[score])
    tensors = tensors_for(spec, 19, 37, seed=1)
    scalars = {"scale": 0.3, "scale_sign": 1}
    results = {name: run(program, tensors, scalars) for name, program in stages(spec).items()}
    expected = results.pop("plan")
    assert np.isfinite(expected["out"]).all()
    for name, result in results.items():
        for output in ("out", "lse"):
            np.testing.assert_allclose(
                result[output],
                expected[output],
                rtol=1e-11,
                atol=1e-12,
                err_msg=f"{output} after {name}",
            )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(MASKS)),
    st.sampled_from(sorted(SCORES)),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from([-0.5, 0.0, 0.7]),
    st.integers(0, 2**31),
)
def test_the_whole_pipeline_keeps_the_meaning(
    mask: str, score: str, q_len: int, kv_len: int, scale: float, seed: int
) -> None:
    spec = spec_of(MASKS[mask], SCORES[score])
    tensors = tensors_for(spec, q_len, kv_len, seed)
    programs = stages(spec)
    before, after = (
        run(
            programs[name],
            tensors,
            {"scale": scale, "scale_sign": -1 if scale < 0 else 1},
            (16, 16),
        )
        for name in ("plan", "split-axis")
    )
    for output in ("out", "lse"):
        np.testing.assert_allclose(after[output], before[output], rtol=1e-10, atol=1e-11)
