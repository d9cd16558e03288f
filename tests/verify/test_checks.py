"""What a file holds besides its kernels is judged: the dense path and the operator's fake."""

from __future__ import annotations

import dataclasses

import pytest

from attnc.driver import compile_spec
from attnc.runtime.loader import load_text
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case
from attnc.verify.checks import NAMES, Check, checks_of
from attnc.verify.numbers import compare_numbers
from attnc.verify.ways import Way
from tests.verify.specs import spec_of

CASES = (
    Case("tails", 2, 2, 5, 9, "fp16", (32, 32), repeated=True),
    Case("strange", 2, 2, 9, 5, "fp32", storage="transposed"),
    Case("huge scores", 1, 1, 4, 6, "bf16", magnitude=1e3),
    Case("no keys", 1, 1, 2, 0, "fp32"),
    Case("no queries", 1, 1, 0, 2, "fp16"),
)
SPEC = spec_of("mask: causal\nhead_dim: 16")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.MonkeyPatch().setenv("ATTNC_CACHE", str(tmp_path_factory.mktemp("cache")))


def checks(spec: AttentionSpec, source: str) -> tuple[Check, ...]:
    """What verify says of a source, on a few small cases."""
    module = load_text(source, spec.name, interpret=False)
    ways = [Way(module, "cpu"), Way(module, "reference")]
    kernel = Way(load_text(source, spec.name, interpret=True), "interpreter")
    return checks_of(list(compare_numbers(spec, [kernel, *ways], cases=CASES)))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_a_generated_file_passes(layout: str) -> None:
    spec = spec_of(f"mask: causal\nhead_dim: {{qk: 16, v: 24}}\nlayout: {layout}")
    found = checks(spec, compile_spec(spec).module.source)
    assert found == tuple(Check(name, len(CASES)) for name in NAMES.values())
    assert {check.status for check in found} == {"passed"}


PLANTED = (  # text of the file, what an owner makes of it, what verify says
    (
        "broadcast_to(kv_idx <= q_pos,",
        "broadcast_to(kv_idx < q_pos,",
        (
            "tails (b2 g2 5x9 tiles 32x32), fp16: out: error above its limit",
            "tails (b2 g2 5x9 tiles 32x32), fp16: out: error above its limit",
            "",
        ),
    ),
    (
        "            out, lse = _dense_results(q, k, v, scale)\n    else",
        "            out, lse = _dense_results(q, k, v, 2 * scale)\n    else",
        ("tails (b2 g2 5x9 tiles 32x32), fp16: out: error above its limit", "", ""),
    ),
    (
        "    return out.to(q.dtype).contiguous(), lse.contiguous()",
        "    return out.to(q.dtype).mT.contiguous().mT, lse.contiguous()",
        (
            "",
            "",
            "tails (b2 g2 5x9 tiles 32x32), fp16: fake: "
            "out has strides [320, 80, 1, 5], its fake [320, 80, 16, 1]",
        ),
    ),
    (
        "(batch, heads, q_len), dtype=torch.float32)\n    return out, lse\n\n\ndef _is_dense",
        "(batch, heads, q_len))\n    return out, lse\n\n\ndef _is_dense",
        (
            "",
            "",
            "tails (b2 g2 5x9 tiles 32x32), fp16: fake: "
            "lse has dtype torch.float32, its fake torch.float16",
        ),
    ),
    (
        "k.shape[1:3]\n    out = q.new_empty((batch, heads, q_len, 16))\n    lse",
        "k.shape[1:3]\n    out = q.new_empty((batch, kv_heads, kv_len, 16))\n    lse",
        (
            "",
            "",
            "tails (b2 g2 5x9 tiles 32x32), fp16: fake: "
            "out has shape [2, 4, 5, 16], its fake [2, 2, 9, 16]",
        ),
    ),
)


@pytest.mark.parametrize(("text", "edited", "problems"), PLANTED)
def test_a_wrong_part_beside_the_kernels_is_seen(
    text: str, edited: str, problems: tuple[str, ...]
) -> None:
    source = compile_spec(SPEC).module.source
    assert source.count(text) == 1
    found = checks(SPEC, source.replace(text, edited))
    assert tuple(check.problem for check in found) == problems


def test_what_an_owner_took_out_is_absent() -> None:
    assert [check.status for check in checks_of([])] == ["absent"] * 3
    wrong = dataclasses.replace(checks_of([])[0], problem="tails, fp16: out: NaN")
    assert wrong.status == "failed" and not wrong.ok
