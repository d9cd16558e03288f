"""Kinds G, H, I and L as they concern a forward call.

Reuse, variants, fallback, messages, cost of a mask.
"""

from __future__ import annotations

import time
import tracemalloc

import pytest
import torch

from attnc.driver import compile_spec, lower_spec
from attnc.errors import SpecErrors
from attnc.explain.pictures import difference_text, draw, picture_text
from attnc.explain.report import explain
from attnc.explain.situation import situation_of
from attnc.explain.text import explanation_text
from attnc.spec import parse_spec
from attnc.verify.numbers import INTERPRETER_CANNOT_SHOW
from tests.faults.judge import Build, agree, answer, inputs


def test_g08_one_module_at_other_batches_lengths_and_heads(build: Build) -> None:
    built = build("mask: causal")
    for batch, length, heads_kv in ((1, 33, 1), (3, 17, 2), (1, 1, 4)):
        agree(built, inputs(built.spec, length, length, batch=batch, heads_kv=heads_kv))


RUN_TIME = {"heads", "q_len", "kv_len", "width"}


def test_h02_h03_lengths_counts_and_params_make_no_variants(build: Build) -> None:
    """Triton compiles anew for an integer that is 1 or divisible by 16, unless told not to."""
    built = build(
        "params: {width: {type: int, default: 4}}\ntensors: {bias: {shape: [heads, kv_len]}}\n"
        "mask: sliding_window(width)\nscore: score + bias[h, kv_idx]",
        False,
    )
    parameters = {parameter.name: parameter for parameter in built.module.forward.params}
    frozen = {name for name, one in parameters.items() if one.do_not_specialize}
    assert frozen == RUN_TIME
    constants = {name for name, one in parameters.items() if one.is_constexpr}
    choices = {"SKEW", "TMA", "LAST_FIRST"}  # of a schedule
    assert constants <= {"BLOCK_Q", "BLOCK_KV", "INDEX", "SCALE_SIGN", *choices}
    rest = {name for name in parameters if name not in frozen | constants}
    assert all(name == "scale" or name.endswith("_ptr") or "_stride_" in name for name in rest)


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        (
            "{block_q: 24}",
            (
                "schedule.block_q must be one of 16, 32, 64, 128, 256 or a list of 1 to 16 items, "
                "not '24'"
            ),
        ),
        (
            "{block_kv: 8}",
            (
                "schedule.block_kv must be one of 16, 32, 64, 128, 256 or a list of 1 to 16 items, "
                "not '8'"
            ),
        ),
        (
            "{warps: 3}",
            "schedule.warps must be one of 1, 2, 4, 8, 16 or a list of 1 to 16 items, not '3'",
        ),
        (
            "{stages: 0}",
            (
                "schedule.stages must be one of 1, 2, 3, 4, 5, 6, 7, 8 or a list of 1 to 16 items, "
                "not '0'"
            ),
        ),
    ],
)
def test_h09_an_illegal_tile_is_no_spec(build: Build, schedule: str, problem: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        build(f"schedule: {schedule}")
    assert str(caught.value).splitlines()[0].split(" ", 2)[2] == problem


COMPOSED = (
    "~(causal & ~sliding_window(5)) | prefix(3)",
    "where(h == 0, causal, kv_idx >= q_pos) & ~(window(2, 2) & (kv_idx % 2 == 0))",
    "(causal | (q_idx < 4)) & ~((kv_idx // 6 == 1) | (q_pos - kv_idx > 11))",
    "not (dilated(3, 2) or global_tokens(2)) and kv_idx != q_pos",
    "2 <= abs(q_pos - kv_idx) < 9 and (h + b) % 2 == 0 or kv_idx == 0",
)
SCORES = (
    "softcap(alibi(score * (1 + h)), 3) - abs(score) / 4",
    "where(kv_idx % 3 == 0, max(score, -1), min(score, sigmoid(score) * 4))",
    "log(1 + exp(score)) + tanh(score) * sqrt(1 + kv_idx) ** -1",
)


@pytest.mark.parametrize("mask", COMPOSED)
@pytest.mark.parametrize("score", SCORES)
def test_h10_compositions_compile_and_compute(build: Build, mask: str, score: str) -> None:
    built = build(f"mask: {mask}\nscore: {score}")
    agree(built, inputs(built.spec, 17, 23, batch=1 if "b" not in mask else 2), (16, 32))


def test_i09_cpu_tensors_without_the_interpreter(build: Build) -> None:
    built = build("mask: causal", False)
    agree(built, inputs(built.spec, 9, 20))


def test_l01_a_mask_of_documents_costs_nothing_to_set_up() -> None:
    """No mask is ever built: ranges of tiles are formulas, whatever the lengths."""
    spec = parse_spec(
        "name: sample\nheads: 1\nhead_dim: 16\nmask: causal & documents(ids)\n"
        "tensors: {ids: {shape: [batch, kv_len], dtype: int32}}\n"
    )
    tracemalloc.start()
    started = time.process_time()
    lowered = lower_spec(spec)
    at = situation_of(spec, q_len=10**6, kv_len=10**6)
    facts = explain(spec, lowered, at)
    used, memory = time.process_time() - started, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert facts["sizes"]["q_len"] == 10**6
    assert used < 10 and memory < 100e6  # tracing slows everything several times


def test_l02_a_picture_counts_and_compares() -> None:
    head = "name: sample\nheads: 1\nhead_dim: 16\nmask: "
    causal, window = (parse_spec(f"{head}{mask}\n") for mask in ("causal", "sliding_window(3)"))
    first, second = (draw(one, situation_of(one, q_len=8, kv_len=12)) for one in (causal, window))
    assert first.visible == (5, 6, 7, 8, 9, 10, 11, 12) and second.visible == (3,) * 8
    assert "rows are queries, columns are keys" in picture_text(first, 4, 4)
    assert difference_text(first, second) != difference_text(first, first)


BAD_SPECS = (
    "maks: causal", "head_dim: 0", "heads: {}", "heads: 0", "dtype: int8",
    "score: softcap(score, 0)", "scale: nan", "mask: window(1)", "mask: 3", "score: causal",
    "layout: bsdh", "outputs: [entropies]", "fp32_dot: fast", "schedule: {tile: 3}",
    "params: {d: {type: int}}", "mask: kv_idx < unknown", "score: score / (q_pos - q_pos)",
    "tensors: {bias: {shape: [seq]}}", "sizes: {q_len: -1}", "backward: 2",
)  # fmt: skip


@pytest.mark.parametrize("line", BAD_SPECS)
def test_l03_bad_specs_have_a_place_and_a_reason(build: Build, line: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        build(line)
    first = str(caught.value).splitlines()[0]
    place, code, reason = first.split(" ", 2)
    assert place.startswith("spec.yaml:") and code.startswith("spec/") and len(reason) > 15


CONTRACTS = (
    "gives out 0 and lse -inf, never NaN",
    "natural logarithm, float32, scale and score included; partial results merge",
    "bottom-right: q_pos = q_idx + kv_len - q_len", "then the mask by selection (it never adds)",
    "the mask is true where a query sees a key", "the true q/k head dim",
    "query head h reads key/value head h // 2", "float32 accumulation", "any strides",
    "no atomics: a second run gives the same bits", "NaN and inf included",
)  # fmt: skip


def test_l04_explain_states_every_contract(build: Build) -> None:
    spec = build("mask: causal").spec
    compiled = compile_spec(spec)
    text = explanation_text(explain(spec, compiled.program, situation_of(spec, q_len=6, kv_len=6)))
    flat = " ".join(text.split())
    assert [one for one in CONTRACTS if one not in flat] == []


def test_l05_what_the_interpreter_cannot_show_is_said_and_avoided(build: Build) -> None:
    assert any("bf16" in one for one in INTERPRETER_CANNOT_SHOW)
    built = build("mask: causal")
    agree(built, inputs(built.spec, 20, 33, dtype=torch.bfloat16))
    assert built.module.INTERPRETER_UPCASTS_BF16
    assert answer(built, inputs(built.spec, 4, 4, dtype=torch.bfloat16)).out.dtype == torch.bfloat16
