"""Which schedules are worth compiling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnc.commands.kernel_shapes import kernel_shapes
from attnc.driver import lower_spec
from attnc.spec import read_spec
from attnc.targets import TARGETS, Target, find_target
from attnc.tune.space import CHOICES, KernelShape, candidates, distance

SPECS = Path(__file__).resolve().parents[2] / "specs"
FORWARD = KernelShape(
    name="forward",
    fields=("block_q", "block_kv", "warps", "stages"),
    usual={"block_q": 128, "block_kv": 64, "warps": 8, "stages": 3},
    asked={},
    held="block_q",
    walked="block_kv",
    features=256,
    summed=128,
)
ROWS = replace(
    FORWARD,
    fields=("block_q", "warps"),
    usual={"block_q": 64, "block_kv": 64, "warps": 4, "stages": 1},
    features=128,
    summed=0,
)


def test_the_rules_own_schedule_comes_first_and_its_neighbours_follow() -> None:
    found = candidates(FORWARD, find_target("sm_90"), 2, 64)
    assert found[0] == FORWARD.usual
    steps = [distance(one, FORWARD.usual) for one in found]
    assert steps == sorted(steps)
    assert {"block_q": 128, "block_kv": 128, "warps": 8, "stages": 2} in found
    assert len({tuple(one.items()) for one in found}) == len(found)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_every_target_has_candidates(target: Target, element_bytes: int) -> None:
    for shape in (FORWARD, ROWS):
        assert len(candidates(shape, target, element_bytes, 64)) > 3


@pytest.mark.parametrize("name", ["llama3_gqa", "bert_base", "dense_bias"])
def test_every_kernel_of_a_real_spec_has_candidates_of_every_field(name: str) -> None:
    """A field that the search does not know (last_first) stays as the rule has it."""
    spec = read_spec(SPECS / f"{name}.yaml")
    for shape in kernel_shapes(spec, lower_spec(spec), "sm_90"):
        found = candidates(shape, find_target("sm_90"), 2, 2000)
        assert len(found) > 3 and all(one.keys() == shape.usual.keys() for one in found)
        tried = {field for field in shape.usual if len({one[field] for one in found}) > 1}
        assert tried == {*shape.fields} - {"last_first"} - ({"skew"} - {*shape.fields})
        assert {one["last_first"] for one in found} == {False}


def test_a_target_without_products_is_asked_for_little_unrolling_and_no_stages() -> None:
    found = candidates(FORWARD, find_target("sm_75"), 2, 2000)[1:]
    assert {one["stages"] for one in found} == {1}
    assert all(one["block_q"] * one["block_kv"] * 256 <= 1024 * 32 * one["warps"] for one in found)


def test_what_a_kernel_does_not_use_stays_as_it_is() -> None:
    found = candidates(ROWS, find_target("sm_90"), 2, 64)
    assert {(one["block_kv"], one["stages"]) for one in found} == {(64, 1)}
    assert len({one["block_q"] for one in found}) > 1


def test_what_the_spec_fixes_stays_and_what_it_lists_is_tried() -> None:
    usual = {**FORWARD.usual, "block_q": 64, "stages": 2}
    asked = replace(FORWARD, usual=usual, asked={"block_q": (64,), "stages": (2, 4)})
    found = candidates(asked, find_target("sm_90"), 2, 64)
    assert found[0] == usual
    assert {one["block_q"] for one in found} == {64}
    assert {one["stages"] for one in found} == {2, 4}


def test_more_warps_than_a_block_may_have_are_not_tried() -> None:
    found = candidates(FORWARD, replace(find_target("gfx942"), max_warps=4), 2, 500)
    assert max(one["warps"] for one in found[1:]) == 4


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}),
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}),
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}),
)
def test_distance_is_one(a: dict[str, int], b: dict[str, int], c: dict[str, int]) -> None:
    assert distance(a, a) == 0
    assert distance(a, b) == distance(b, a)
    assert distance(a, c) <= distance(a, b) + distance(b, c)
    counted = [{name: one[name] for name in one if name != "skew"} for one in (a, b)]
    assert (distance(a, b) == 0) == (counted[0] == counted[1])  # skew comes along
