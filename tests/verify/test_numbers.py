"""Cases reach what they say, poison lies where nothing may look, the guard sees overruns."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from attnc.driver import compile_spec
from attnc.runtime.loader import load, load_text
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import LARGE, TINY, Case, cases_for
from attnc.verify.guards import watch
from attnc.verify.inputs import build_call, store
from attnc.verify.numbers import compare_numbers, judge, judge_grid
from attnc.verify.reference import dense, heads_first, visible_pairs
from attnc.verify.ways import Answer, Way, contained, same_bits
from tests.verify.specs import HANDMADE, handmade_spec, spec_of

STORAGES = ("packed", "transposed", "sliced", "expanded")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.MonkeyPatch().setenv("ATTNC_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_the_handmade_kernel_passes_every_case() -> None:
    spec = handmade_spec()
    rows = list(compare_numbers(spec, [Way(load(HANDMADE, interpret=True), "interpreter")]))
    assert [row for row in rows if not row.comparison.ok] == []
    assert {row.comparison.what for row in rows} == {"out", "lse", "grid"}
    assert sum(row.comparison.compared for row in rows) > 30_000


def test_the_handmade_kernel_fails_for_another_spec() -> None:
    spec = dataclasses.replace(handmade_spec(), mask=spec_of("mask: sliding_window(9)").mask)
    way = Way(load(HANDMADE, interpret=True), "interpreter")
    assert any(not row.comparison.ok for row in compare_numbers(spec, [way]))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise KeyError('lost')", "raised KeyError: 'lost'"),
        ("raise SystemExit(0)", "raised SystemExit: 0"),  # not the end of verify, in peace
        (
            "return (None, Aux(lse=None))",
            "raised TypeError: returned NoneType in place of a tensor",
        ),
    ],
)
@pytest.mark.parametrize("way", ["interpreter", "cpu", "reference"])
def test_what_a_module_raises_fails_its_case(body: str, problem: str, way: str) -> None:
    head = "from types import SimpleNamespace as Aux\ndef attention(*args, **options):\n"
    module = load_text(f"{head}    {body}\nreference = attention\n", "raises", interpret=False)
    spec = handmade_spec()
    assert [c.problem for c in judge(spec, module, cases_for(spec)[0], way)] == [problem]


def test_what_raises_only_in_a_second_run_fails_its_case() -> None:
    text = RIGHT_SHAPE.replace(
        "    class Aux", "    RUNS.append(1)\n    assert len(RUNS) < 2\n    class Aux"
    )
    module = load_text("RUNS = []\n" + text, "once", interpret=False)
    [found] = judge(handmade_spec(), module, _case(heads_kv=1, repeated=True))
    assert found.problem == "raised AssertionError: "


def test_a_users_interrupt_ends_verify() -> None:
    with pytest.raises(KeyboardInterrupt), contained():
        raise KeyboardInterrupt


def test_a_nan_is_the_same_bits_as_a_nan() -> None:
    nan = Answer(torch.tensor([1.0, torch.nan]), {"lse": torch.tensor([torch.nan])})
    assert same_bits(nan, nan)
    assert not same_bits(nan, Answer(torch.tensor([2.0, torch.nan]), nan.aux))
    assert not same_bits(nan, Answer(torch.tensor([1.0, 3.0]), nan.aux))
    assert not same_bits(nan, Answer(nan.out, {"lse": torch.tensor([0.0])}))


def test_cases_are_the_same_each_time_and_differ_in_seed() -> None:
    spec = handmade_spec()
    assert cases_for(spec) == cases_for(spec)
    assert len({case.seed for case in cases_for(spec)}) == len(cases_for(spec))


def test_cases_cover_what_the_design_asks_for() -> None:
    cases = cases_for(spec_of("score: score + bias[q_idx, kv_idx]\n"
                              "tensors: {bias: {shape: [q_len, kv_len]}}"))  # fmt: skip
    assert {case.dtype for case in cases} == {"fp16", "bf16", "fp32"}
    wide = {f"wide {name}" for name in ("q", "k", "v", "out", "lse")}
    assert {case.storage for case in cases} == {*STORAGES, "far", *wide}
    assert {case.twist for case in cases} == {"none", "infinite bias", "wild indices"}
    assert {0, 1} <= {case.q_len for case in cases} and {0, 1} <= {case.kv_len for case in cases}
    assert any(case.q_len > case.kv_len for case in cases) and 0 in {case.batch for case in cases}
    assert any(case.scale is not None and case.scale < 0 for case in cases)
    assert any(case.scale == 0 for case in cases) and any(case.tiles for case in cases)
    assert any(case.repeated for case in cases)


def test_a_far_constant_gets_cases_that_reach_it() -> None:
    names = {case.name: case for case in cases_for(spec_of("mask: sliding_window(400)"))}
    far = names["past 400"]
    visible = visible_pairs(build_call(spec_of("mask: sliding_window(400)"), far))
    assert not visible[..., -1, 0].any() and visible.any(-1).all()


def test_params_vary_and_check_sizes_set_them() -> None:
    body = ("mask: sliding_window(width)\nparams: {width: {type: int, default: 4096}}\n"
            "check: [{q_len: 20, kv_len: 30, width: 7}]")  # fmt: skip
    values = {dict(case.params)["width"] for case in cases_for(spec_of(body))}
    assert {7, 3, 0, 4096, LARGE} <= values
    first = cases_for(spec_of(body))[0]
    assert (first.q_len, first.kv_len, dict(first.params)) == (20, 30, {"width": 7})


def test_a_divisor_is_never_zero() -> None:
    body = "mask: q_pos // n == kv_idx // n\nparams: {n: {type: int, default: 16}}"
    assert min(dict(case.params)["n"] for case in cases_for(spec_of(body))) >= 1


@pytest.mark.parametrize(
    ("formula", "kind", "refused"),
    [
        ("mask: kv_idx // (n - 3) <= 5", "{type: int, default: 8}", 3),
        ("mask: kv_idx // (n - 64) <= 5", "{type: int, default: 8}", LARGE),
        ("mask: kv_idx // (d - n) <= 5", "{type: int}", 8),
        ("score: score / (n - 20)", "{type: int, default: 8}", 20),
        ("score: score / (n - 0.35)", "{type: float, default: 0.7}", 0.35),
        ("score: score / (n - 1.05)", "{type: float, default: 0.7}", 0.7 * 1.5),
        ("scale: 1 / (n - 0.35)", "{type: float, default: 0.7}", 0.35),
    ],
)
def test_no_case_has_params_that_the_launcher_refuses(
    formula: str, kind: str, refused: float
) -> None:
    check = "check: [{q_len: 9, kv_len: 9, n: 5}]"
    cases = cases_for(spec_of(f"{formula}\nparams: {{n: {kind}}}\n{check}"))
    values = {dict(case.params)["n"] for case in cases}
    assert refused not in values and len(values) > 2
    assert len({case.name for case in cases}) > 15
    assert ("mask" in formula) == any(value >= LARGE for value in values)


def _case(**changes: object) -> Case:
    return dataclasses.replace(Case("one", 2, 2, 5, 9, "fp32"), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_storage_changes_no_value(storage: str, layout: str) -> None:
    spec = spec_of("mask: causal", layout=layout)
    call = build_call(spec, _case(storage=storage))
    clean = build_call(spec, _case(storage=storage), poisoned=False)
    result, again = dense(call), dense(clean)
    assert torch.equal(result.out, again.out) and torch.equal(result.lse, again.lse)
    shape = (2, 4, 5, 8) if layout == "bhsd" else (2, 5, 4, 8)
    assert call.tensors["q"].shape == shape == result.out.shape


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_storages_have_the_strides_they_promise(name: str) -> None:
    values = torch.randn(2, 3, 5, 8)
    strides = {storage: store(values, storage, name).stride() for storage in STORAGES}
    assert strides["packed"] == values.stride()
    assert strides["sliced"][-1] == 2 and strides["sliced"][-2] > 2 * 8
    assert strides["transposed"] != values.stride()
    assert strides["expanded"][:2] == (0, 0)
    for storage in ("packed", "sliced", "transposed"):
        assert torch.equal(store(values, storage, name), values)


def test_poison_lies_around_and_in_all_that_is_hidden() -> None:
    spec = spec_of("mask: sliding_window(3)")
    q, k, v = heads_first(build_call(spec, _case(q_len=2, kv_len=9)))
    assert k[:, :, :5].isnan().all() and v[:, :, :5].isnan().all()
    assert k[:, :, 5:].isfinite().all() and q.isfinite().all()
    q, k, v = heads_first(build_call(spec, _case(q_len=9, kv_len=2)))
    assert q[:, :, :7].isnan().all() and q[:, :, 7:].isfinite().all()
    around = v.as_strided((1,), (1,), v.storage_offset() - 1)
    assert around.isnan().all()


def test_values_of_closed_heads_are_poison() -> None:
    call = build_call(spec_of("head_gate: true"), _case())
    assert not call.tensors["head_gate"][:2].any()
    assert call.tensors["v"][:, 0].isnan().all() and call.tensors["v"][:, 1].isfinite().all()


@pytest.mark.parametrize("seed", [0, 2**11, 2**20])
def test_seeds_of_dropout_are_of_64_bits(seed: int) -> None:
    case = dataclasses.replace(_case(), seed=seed, dropout_p=0.5)
    assert -(2**63) <= build_call(spec_of("dropout: true"), case).dropout_seed < 2**63


def test_the_guard_sees_a_store_past_either_end() -> None:
    for offset in (-1, 12):
        with watch() as watched:
            inside = torch.ones(2).new_empty((3, 4))
            assert inside.isnan().all() and not watched.overrun
            inside.as_strided((1,), (1,), inside.storage_offset() + offset).fill_(0)
        assert watched.overrun


@pytest.mark.parametrize(
    "allocate",
    [
        lambda like: torch.empty(3, 4),
        lambda like: torch.empty((3, 4), dtype=torch.float16, device="cpu"),
        lambda like: torch.empty_like(like.mT),
        lambda like: torch.empty_strided((3, 4), (1, 3)),
        lambda like: like.new_empty([3, 4]),
    ],
)
def test_guarded_memory_is_shaped_as_torch_would(allocate) -> None:
    like = torch.ones(4, 3)
    expected = allocate(like)
    with watch() as watched:
        got = allocate(like)
    assert (got.shape, got.stride(), got.dtype) == (
        expected.shape,
        expected.stride(),
        expected.dtype,
    )
    assert got.isnan().all() and len(watched.buffers) == 1
    assert torch.empty is not None and torch.empty(1).untyped_storage().nbytes() == 4
    assert "new_empty" not in vars(torch.Tensor)


def test_a_wide_spec_stays_affordable() -> None:
    body = "heads: {q: 64, kv: 8}\nhead_dim: 16\ncheck: [{batch: 8, q_len: 300, kv_len: 300}]"
    first = cases_for(spec_of(body))[0]
    assert (first.q_len, first.kv_len) == (300, 300) and first.batch * first.heads_kv < 8


def test_a_spec_that_fixes_its_heads_keeps_them() -> None:
    spec: AttentionSpec = spec_of("heads: 8\nscore: alibi")
    assert spec.fixes_heads and {case.heads_kv for case in cases_for(spec)} == {8}


GROUPED = "heads: {q: 6, kv: 3}\nmask: causal"
WIDE = [
    r"tl\.cast\((b|h), tl\.int64\)",
    r"tl\.cast\((h_kv), tl\.int64\)",
    r"tl\.cast\((q_first), tl\.int64\)",
    r"tl\.cast\((BLOCK_KV), tl\.int64\)",
    *(rf"^ +\((?:block_q|block_kv) - 1\) \* {name}_strides\[2\].*\n()" for name in ("q", "k", "v")),
    *(rf"^ +\(block_q - 1\) \* {name}_strides\[2\].*\n()" for name in ("out", "lse")),
]


@pytest.mark.parametrize("pattern", WIDE)
def test_every_offset_that_may_pass_32_bits_does(pattern: str) -> None:
    """A GPU wraps such an offset; a case must see each of them that is not 64 bits wide."""
    spec = spec_of(GROUPED)
    source = compile_spec(spec).module.source
    apart = [case for case in cases_for(spec) if case.apart]
    narrow = re.sub(pattern, r"\1", source, flags=re.MULTILINE)
    assert narrow != source
    good, bad = (load_text(text, "offsets", interpret=True) for text in (source, narrow))
    telling = next(c for c in apart if not all(found.ok for found in judge(spec, bad, c)))
    assert all(found.ok for found in judge(spec, good, telling))


@pytest.mark.parametrize(
    "body",
    [
        "mask: causal & sliding_window(n)\nparams: {n: {type: int, default: 16}}",
        "mask: sliding_window(40)",
    ],
)
def test_tiles_without_a_mask_are_run(body: str) -> None:
    """The first loop is theirs: a window smaller than every tile never enters it."""
    spec = spec_of(f"{body}\ncheck: [{{q_len: 20, kv_len: 20}}]")
    source = compile_spec(spec).module.source
    wrong = source.replace("tl.sum(p, 1)", "2 * tl.sum(p, 1)", 1)
    module = load_text(wrong, "unmasked", interpret=True)
    tiny = [case for case in cases_for(spec) if case.tiles == TINY and not case.apart]
    assert any(not found.ok for case in tiny for found in judge(spec, module, case))


INT_OF_MANY = "raised ValueError: invalid literal for int() with base 10: 'many'"
CROWDED = """layout: bshd
score: score + bias[b, h, q_idx, kv_idx]
tensors: {bias: {shape: [batch, heads, q_len, kv_len], dtype: bf16}}
"""


@pytest.mark.parametrize(
    ("guard", "problem"),
    [
        ("programs >= 2**31", ""),
        ("programs >= 2**62", "would launch 2147483650 x 1 x 1 programs"),
        ("programs >= 2**31 / 0", "raised ZeroDivisionError: division by zero"),
        ("programs >= int('many')", INT_OF_MANY),  # a ValueError, and about no grid
        ("programs >= 2**31:\n        return out[:0], lse[:0]\n    if False", "launched nothing"),
    ],
)
def test_no_more_programs_are_launched_than_a_grid_holds(guard: str, problem: str) -> None:
    spec = spec_of(CROWDED)
    source = compile_spec(spec).module.source.replace("programs >= 2**31", guard)
    way = Way(load_text(source, "grid", interpret=True), "interpreter")
    assert judge_grid(spec, way).problem == problem


@pytest.mark.parametrize(
    "body",
    [
        "scale: 1/log(kv_len)",
        "score: score / (n - 1)\nparams: {n: {type: int}}\ncheck: [{q_len: 9, n: 2}]",
        "score: score / n\nparams: {n: {type: int}}\ncheck: [{q_len: 9, n: 2}]",
    ],
)
def test_the_grid_is_judged_where_a_formula_has_a_value(body: str) -> None:
    spec = spec_of(body)
    source = compile_spec(spec).module.source
    endless = source.replace("programs >= 2**31", "programs >= 2**62")
    good, bad = (
        judge_grid(spec, Way(load_text(text, "grid", interpret=True), "interpreter"))
        for text in (source, endless)
    )
    assert good.note == "refused by name"
    assert bad.problem.startswith("would launch 21474836")


def test_extreme_inputs_may_have_no_value_but_ordinary_ones_must() -> None:
    spec = spec_of("score: log(exp(score) + 1)", mask=handmade_spec().mask)
    module = load(HANDMADE, interpret=True)
    [huge] = judge(spec, module, _case(magnitude=1e5, heads_kv=1))
    assert huge.ok and huge.compared == 0 and "no value" in huge.note
    nan = spec_of("score: log(score - 1000)")
    assert "reference itself" in judge(nan, load_text(RIGHT_SHAPE, "shape"), _case())[0].problem


RIGHT_SHAPE = """
import torch

def attention(q, k, v, *, scale=None, return_aux=False, schedule=None):
    class Aux:
        lse = torch.zeros(q.shape[:3])
    return torch.zeros_like(q), Aux
"""
OVERREACH = """
import torch, triton
import triton.language as tl

@triton.jit
def copy(q, out, size, readable, writable, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(q + at, mask=at < readable, other=0.0), mask=at < writable)

def attention(q, k, v, *, scale=None, return_aux=False, schedule=None):
    out, size = torch.empty_like(q), q.numel()
    copy[(1,)](q, out, size, size + READ, size + WRITE, BLOCK=1024)
    return out
"""


@pytest.mark.parametrize(
    ("read", "write", "problem"),
    [(3, 0, "would read 3 elements"), (0, 2, "would write 2 elements"), (0, 0, "")],
)
def test_a_stray_access_is_refused(read: int, write: int, problem: str) -> None:
    text = OVERREACH.replace("READ", str(read)).replace("WRITE", str(write))
    module = load_text(text, "overreach", interpret=True)
    [result] = judge(spec_of("", outputs=()), module, _case())
    assert problem in result.problem and not result.ok
    assert bool(result.problem) == bool(problem)


def test_what_the_system_has_no_room_for_is_not_run(no_room: None) -> None:
    spec = spec_of("check: [{q_len: 20, kv_len: 20}]")
    ways = [Way(load_text(compile_spec(spec).module.source, "room", interpret=True), "interpreter")]
    apart = tuple(case for case in cases_for(spec) if case.apart)
    rows = list(compare_numbers(spec, ways, cases=apart))
    assert {(row.comparison.status, row.comparison.ok) for row in rows} == {("undecided", False)}
    assert {row.comparison.note for row in rows} == {"not run: Cannot allocate memory"}
    assert len(rows) == len(apart) >= 6  # the inputs of some have room, their results have none
