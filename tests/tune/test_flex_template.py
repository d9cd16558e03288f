"""FlexAttention's template as the benchmarks fill it in: whole, of the work that it says."""

from __future__ import annotations

import ast

import pytest

from attnc.devices import find_device
from attnc.tune.pipes import flops_of
from benchmarks.flex_template import LENGTH, Mods, flex_resources, rendered

CAUSAL = Mods("({score}) * 0.5", "({m}) >= ({n})", ("float",))


def test_the_text_is_python_with_the_mods_in_it() -> None:
    text = rendered(CAUSAL, 64, 128, 64, kv_heads=2)
    names = {one.name for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)}
    assert {"flex_attention", "forward_inner", "forward_block_mn"} <= names
    assert "post_mod_scores = (qk) * 0.5" in text
    assert "mask_mod_output = (m) >= (n)" in text
    assert "GQA_SHARED_HEADS : tl.constexpr = 4" in text
    assert f"KV_LEN = {LENGTH}" in text


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_its_loops_are_found_as_a_whole(target: str) -> None:
    """Partial blocks first, full ones after; both multiply a whole tile."""
    found = flex_resources(CAUSAL, 64, target)
    tile = dict(found.schedule)
    formula = 2 * tile["block_q"] * tile["block_kv"] * (64 + 64)
    device = find_device(target)
    assert [flops_of(body, device, tile["warps"]) for body in found.bodies] == [formula] * 2
    partial, full = found.loops
    assert partial.count("compare") > full.count("compare")
