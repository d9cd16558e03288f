"""What tensor descriptors may read, and that they read what the loads read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnc.driver import compile_spec, lower_spec
from attnc.ir.nodes import Kernel, Load, Loop
from attnc.runtime.loader import load_text
from attnc.spec import parse_spec
from attnc.spec.schema import AttentionSpec
from attnc.tune.operands import operands_of
from attnc.tune.resources import report
from attnc.verify.cases import Case, cases_for
from attnc.verify.faults_choices import rows_described
from attnc.verify.inputs import build_call
from attnc.verify.numbers import judge
from attnc.verify.obligations import Obligation
from attnc.verify.proofs import prove
from attnc.verify.ways import Way, ask
from tests.verify.specs import spec_of

SHAPES = [(32, 16)]


def described(spec: AttentionSpec, kernel: str = "forward") -> dict[str, str]:
    """The rows by which a kernel's loads are described, loops in turn."""
    (found,) = (one for one in lower_spec(spec).kernels if one.name == kernel)
    lets = [let for stmt in found.body if isinstance(stmt, Loop) for let in stmt.body]
    loads = [(let, let.value) for let in lets if isinstance(let.value, Load)]
    return {let.name: _rows(load) for let, load in loads if load.buffer in ("k", "v", "q")}


def _rows(load: Load) -> str:
    return "by pointers" if load.described is None else "{} to {}".format(*load.described)


@pytest.mark.parametrize(
    ("mask", "keys", "values"),
    [
        ("true", "0 to kv_len", "0 to kv_len"),
        ("causal", "0 to kv_hi", "0 to kv_hi"),
        ("causal & sliding_window(40)", "kv_lo to kv_hi", "kv_lo to kv_hi"),
        ("(q_pos - kv_idx) % 5 == 0", "0 to kv_len", "by pointers"),  # a test of the column
        ("causal & (prefix(3) | window(9, 9))", "by pointers", "by pointers"),  # two ranges
    ],
)
def test_rows_between_two_bounds_are_described(mask: str, keys: str, values: str) -> None:
    found = described(parse_spec(f"heads: 2\nhead_dim: 64\nmask: {mask}\n"))
    assert (found["k_tile"], found["v_tile"]) == (keys, values)


def test_a_kernel_that_holds_keys_reads_queries_by_descriptors_unless_it_serves_a_group() -> None:
    body = "head_dim: 64\nmask: causal\n"
    assert described(parse_spec("heads: 2\n" + body), "backward_kv")["q_tile"] == "q_lo to q_len"
    grouped = parse_spec("heads: {q: 4, kv: 2}\n" + body)
    assert described(grouped, "backward_kv")["q_tile"] == "by pointers"


def test_every_piece_of_a_head_dim_is_described() -> None:
    found = described(parse_spec("heads: 2\nhead_dim: 72\n"))
    assert found.keys() == {"k_tile_0", "k_tile_1", "v_tile_0", "v_tile_1"}
    assert set(found.values()) == {"0 to kv_len"}


def test_a_descriptor_that_begins_or_ends_elsewhere_is_refuted() -> None:
    spec = spec_of("mask: causal & sliding_window(9)\nhead_dim: 16")
    program = lower_spec(spec)
    (forward,) = program.kernels
    assert _unproved(spec, forward) == {}
    names = {}
    for name, faulty in rows_described(forward):
        names[name] = any("descriptor" in one for one in _unproved(spec, faulty))
    masked = {name: killed for name, killed in names.items() if name.startswith("loop 1")}
    assert len(masked) == 8 and all(masked.values())


def _unproved(spec: AttentionSpec, kernel: Kernel) -> dict[str, Obligation]:
    program = replace(lower_spec(spec), kernels=(kernel,))
    return {o.name: o for o in prove(spec, program, SHAPES) if o.status != "proved"}


@pytest.mark.parametrize("head_dim", [16, 24, 72])
@pytest.mark.parametrize("mask", ["causal", "window(20, 3)", "prefix(30) | causal"])
def test_descriptors_give_the_same_bits(mask: str, head_dim: int) -> None:
    spec = spec_of(f"mask: {mask}\nhead_dim: {head_dim}\noutputs: [lse]")
    module = load_text(compile_spec(spec).module.source, "described", interpret=True)
    made: list[str] = []
    module._describable = _noted(module._describable, made)
    way = Way(module, "interpreter")
    for dtype in ("fp16", "fp32"):
        case = Case("t", 1, 2, 70, 101, dtype, (16, 16))
        call = build_call(spec, case)
        plain = ask(way, call.tensors, call, case).results
        boxed = ask(way, call.tensors, call, replace(case, choices=("tma",))).results
        both = ask(way, call.tensors, call, replace(case, choices=("tma", "skew"))).results
        for name in plain:
            assert plain[name].equal(boxed[name]) and plain[name].equal(both[name])
    assert made and all(made)


def test_verify_judges_what_descriptors_read() -> None:
    """Every address included; one row more is a stray access or a hidden key's NaN."""
    spec = spec_of("mask: causal\nhead_dim: 16")
    source = compile_spec(spec).module.source
    cases = [case for case in cases_for(spec) if "tma" in case.choices]
    longer = source.replace("[tl.maximum(kv_hi, 1), 16]", "[kv_hi + 99, 16]")
    assert longer.count("[kv_hi + 99, 16]") == 2
    for text, sound in ((source, True), (longer, False)):
        module = load_text(text, "judged", interpret=True)
        found = [one for case in cases for one in judge(spec, module, case)]
        assert all(one.ok for one in found) is sound


WIDE = """
heads: {q: 2, kv: 1}
head_dim: 16
mask: causal & (q_pos - kv_idx < width[h])
tensors: {width: {shape: [heads], dtype: int32}}
"""


def test_offsets_of_a_descriptor_have_32_bits() -> None:
    """The first row that a tensor's element decides is counted in 64: Triton takes only 32."""
    spec = spec_of(WIDE)
    source = compile_spec(spec).module.source
    assert ".load([tile * BLOCK_KV - tl.cast(kv_lo, tl.int32), 0])" in source
    module = load_text(source, "wide", interpret=True)
    for case in (case for case in cases_for(spec) if "tma" in case.choices):
        assert all(one.ok for one in judge(spec, module, case))
    schedule = {"block_q": 64, "block_kv": 32, "warps": 4, "stages": 3, "tma": True}
    (one,) = report(source, operands_of(spec), "sm_90", "fp16", schedule)
    assert one.fits


def _noted(describable, made):
    def noted(*tensors):
        made.append(describable(*tensors))
        return made[-1]

    return noted
