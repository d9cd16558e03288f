"""Every planted fault is caught, and the scan finds what no run on a CPU can show."""

from __future__ import annotations

import ast

import pytest

from attnc.driver import compile_spec
from attnc.verify import mutants_text
from attnc.verify.mutants_gradients import GRADIENTS
from attnc.verify.mutants_text import CATALOGUE, campaign
from attnc.verify.scan import scan, scan_atomics, scan_imports, scan_loads, scan_products
from tests.verify.specs import HANDMADE, handmade_spec, spec_of

SOURCE = HANDMADE.read_text()


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.MonkeyPatch().setenv("ATTNC_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_every_mutant_that_applies_to_the_handmade_kernel_is_killed() -> None:
    rows = list(campaign(handmade_spec(), SOURCE))
    assert [row for row in rows if row.outcome == "survived"] == []
    assert sum(row.outcome == "killed" for row in rows) >= 12


def test_the_campaign_lets_an_equal_text_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = mutants_text.TextMutant("harmless", r"acc \* (inverse\[:, None\])", r"\1 * acc")
    sloppy = mutants_text.TextMutant("no such text", "never to be found", "")
    monkeypatch.setattr(mutants_text, "CATALOGUE", (harmless, sloppy))
    outcomes = [row.outcome for row in campaign(handmade_spec(), SOURCE)]
    assert outcomes == ["survived", "not applicable"]


def test_a_mutant_that_only_lives_where_nothing_was_run_is_undecided(
    monkeypatch: pytest.MonkeyPatch, no_room: None
) -> None:
    """Offsets past 32 bits are no matter of the dense path: it runs all that it should."""
    harmless = [
        mutants_text.TextMutant("harmless", r"acc \* (inverse\[:, None\])", r"\1 * acc"),
        mutants_text.TextMutant("dense", r"\Z", "\n", ways=("cpu", "reference"), beside=True),
    ]
    monkeypatch.setattr(mutants_text, "CATALOGUE", harmless)
    kernels, beside = campaign(handmade_spec(), SOURCE)
    assert (kernels.outcome, kernels.ok) == ("undecided", False)
    assert kernels.by.startswith("far ") and kernels.by.endswith("not run: Cannot allocate memory")
    assert (beside.outcome, beside.ok) == ("survived", False)


def test_mutants_have_names_of_their_own_and_keep_to_their_place() -> None:
    assert len({mutant.name for mutant in CATALOGUE}) == len(CATALOGUE) >= 12
    first, last = SOURCE.index("@triton.jit"), SOURCE.index("def attention")
    for mutant in CATALOGUE:
        faulty = mutant.apply(SOURCE)
        if faulty is not None:
            assert SOURCE[first:last] in faulty if mutant.beside else faulty.endswith(SOURCE[last:])
            assert ast.parse(faulty)


KERNELS = (
    "mask: causal & sliding_window(9)",
    "head_gate: true\nscore: score + bias[kv_idx]\ntensors: {bias: {shape: [kv_len]}}",
    "heads: 2\nmask: (q_pos - kv_idx) % 5 == 0",
)
# A window narrower than a tile leaves no tile without a mask, so that nothing is made ahead.
HARMLESS = {
    KERNELS[0]: [
        "scores ahead not moved on",
        "scores ahead of a tile later",
        "values before the first tile",
    ]
}
BACKWARD = (
    "mask: causal\nscore: softcap(score, 5)\nsink: per_head\nbackward: true",
    "heads: 2\nmask: causal\ndropout: true\nbackward: true",
    "heads: 2\nmask: causal\nscore: relative_bias(score, table)\nbackward: true\n"
    "tensors: {table: {shape: [heads, 9], grad: true}}",
)


def test_every_mutant_applies_to_some_generated_kernel() -> None:
    """A pattern that finds nothing any more judges nothing."""
    sources = [compile_spec(spec_of(body)).module.source for body in (*KERNELS, *BACKWARD)]
    unused = [m.name for m in CATALOGUE if all(m.apply(source) is None for source in sources)]
    assert unused == []


@pytest.mark.slow
def test_every_mutant_of_a_generated_kernel_is_killed() -> None:
    assert_every_mutant_is_killed(KERNELS[1])


@pytest.mark.slow
def test_faults_of_gradients_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third; `make fuzz` plants all."""
    monkeypatch.setattr(mutants_text, "CATALOGUE", GRADIENTS[::3])
    assert_every_mutant_is_killed(BACKWARD[0], least=8)


@pytest.mark.fuzz
@pytest.mark.parametrize("body", (KERNELS[0], KERNELS[2], *BACKWARD))
def test_every_mutant_of_the_others_is_killed(body: str) -> None:
    assert_every_mutant_is_killed(body)


def assert_every_mutant_is_killed(body: str, least: int = 20) -> None:
    spec = spec_of(body + "\nhead_dim: 16\ncheck: [{q_len: 40, kv_len: 50}]")
    rows = list(campaign(spec, compile_spec(spec).module.source))
    assert [row.name for row in rows if row.outcome == "survived"] == HARMLESS.get(body, [])
    assert sum(row.outcome == "killed" for row in rows) >= least


def test_faults_of_gradients_keep_to_the_backward_kernels() -> None:
    source = compile_spec(spec_of(BACKWARD[0])).module.source
    forward = source[: source.index("def backward_rows")]
    faulty = [mutant.apply(source) for mutant in GRADIENTS]
    assert sum(text is not None for text in faulty) >= 25
    assert all(ast.parse(text) and text.startswith(forward) for text in faulty if text)


def test_the_handmade_kernel_has_no_findings() -> None:
    assert scan(SOURCE, "ieee") == []


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("tl.load(p, mask=m)", True),
        ("tl.load(p, m)", True),
        ("tl.load(p, mask=m, other=None)", True),
        ("tl.load(p, mask=m, other=0.0)", False),
        ("tl.load(p, m, 0)", False),
        ("tl.load(p)", False),
        ("tl.load(p, mask=None)", False),
        ("triton.language.load(p, mask=a & b)", True),
    ],
)
def test_masked_loads_without_other(call: str, found: bool) -> None:
    assert scan_loads(f"x = 1\ny = {call}\n") == (
        ["line 2: a masked load without `other`"] if found else []
    )


def test_imports() -> None:
    source = (
        "import torch, math\nimport triton.language\nfrom attnc import x\nimport numpy.linalg\n"
    )
    expected = ["line 3: imports attnc", "line 4: imports numpy.linalg"]
    assert scan_imports(source + "from . import y\n") == [
        *expected,
        "line 5: imports a relative module",
    ]


def test_atomics() -> None:
    assert scan_atomics("tl.atomic_add(p, x)\n") == [
        "line 1: atomic_add may give other bits in a second run"
    ]


UNTOLD = "a product in no input_precision that is told here; the spec says"


@pytest.mark.parametrize(
    ("product", "fp32_dot", "found"),
    [
        ('tl.dot(a, b, input_precision="ieee")', "ieee", ""),
        ('tl.dot(a, b, acc, "ieee")', "tf32", ""),
        ('tl.dot(a, b, input_precision="tf32x3")', "tf32", ""),
        ('tl.dot(a, b, input_precision="tf32")', "ieee", "a product in tf32; the spec says ieee"),
        ('tl.dot(a, b, acc, "tf32")', "tf32x3", "a product in tf32; the spec says tf32x3"),
        ("tl.dot(a, b)", "ieee", f"{UNTOLD} ieee"),
        ("tl.dot(a, b, input_precision=HOW)", "tf32", f"{UNTOLD} tf32"),
        ("a @ b", "tf32", "a product by @, which leaves the precision to Triton"),
    ],
)
def test_products_are_as_exact_as_the_spec_says(product: str, fp32_dot: str, found: str) -> None:
    source = f"@triton.jit\ndef kernel(a, b):\n    return {product}\n"
    assert scan_products(source, fp32_dot) == ([f"line 3: {found}"] if found else [])


def test_a_product_beside_the_kernels_may_be_of_any_kind() -> None:
    assert scan_products("def reference(q, k):\n    return q @ k\n", "ieee") == []
