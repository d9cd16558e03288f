"""Specs built in Python say the same as their YAML."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from attnc.errors import SpecErrors
from attnc.spec import Spec, apply_settings, digest, formula, param, parse_spec, tensor, where
from attnc.spec.schema import AttentionSpec
from attnc.spec.tracing import TraceError


def full() -> AttentionSpec:
    return Spec(
        "full",
        doc='text with: a colon, "quotes" # and a hash',
        heads={"q": 8, "kv": 4},
        head_dim={"qk": 192, "v": 128},
        scale="1/sqrt(d)",
        score=lambda score, b, h, q_idx, kv_idx: score * 2 + tensor("bias")[h, q_idx, kv_idx],
        mask=lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (kv_idx < param("n")) | (kv_idx == 0),
        params={"n": {"type": "int", "default": 3}},
        tensors={"bias": {"shape": ["heads", "q_len", "kv_len"], "grad": True}},
        outputs=["lse"],
        schedule={"block_q": [64, 128], "warps": 4},
        check=[{"q_len": 3, "kv_len": 4, "n": 2}],
        backward=False,
    )


def test_text_is_the_yaml() -> None:
    assert full().text == (
        "name: full\n"
        "heads: {q: 8, kv: 4}\n"
        "head_dim: {qk: 192, v: 128}\n"
        "scale: 1/sqrt(d)\n"
        'score: "score * 2 + bias[h, q_idx, kv_idx]"\n'
        "mask: (q_idx >= kv_idx) & (kv_idx < n) | (kv_idx == 0)\n"
        'doc: "text with: a colon, \\"quotes\\" # and a hash"\n'
        "params: {n: {type: int, default: 3}}\n"
        "tensors: {bias: {shape: [heads, q_len, kv_len], grad: true}}\n"
        "outputs: [lse]\n"
        "schedule: {block_q: [64, 128], warps: 4}\n"
        "check: [{q_len: 3, kv_len: 4, n: 2}]\n"
        "backward: false\n"
    )


def test_yaml_reads_back_equal() -> None:
    spec = full()
    again = parse_spec(spec.text, spec.path)
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.schedule == {"block_q": (64, 128), "warps": 4}


def test_survives_pickle_and_copy() -> None:
    spec = full()
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec
    assert pickle.loads(pickle.dumps(spec)).spans == spec.spans


def test_digest_is_stable_across_processes() -> None:
    code = (
        "from tests.spec.test_builder import full; "
        "from attnc.spec import digest; print(digest(full()))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest(full())}


def test_needs_no_torch() -> None:
    code = (
        "import sys; from attnc.spec import Spec; "
        "Spec('a', heads=8, head_dim=64, mask=lambda b, h, q, k: q >= k); "
        "print(sorted({'torch', 'triton', 'numpy', 'z3', 'pydantic'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def traced(score_mod: object, **keys: object) -> str:
    return Spec("t", heads=8, head_dim=64, score=score_mod, **keys).score_text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("score_mod", "text"),
    [
        (lambda s, b, h, q, k: s + 1, "score + 1"),
        (lambda s, b, h, q, k: 1 - (s - 2), "1 - (score - 2)"),
        (lambda s, b, h, q, k: (s + 1) * (2 - s) / 3, "(score + 1) * (2 - score) / 3"),
        (lambda s, b, h, q, k: s / (h / 2), "score / (h / 2)"),
        (lambda s, b, h, q, k: -s - -1, "-score - -1"),
        (lambda s, b, h, q, k: (-s) ** 2 + 2**-s, "(-score)**2 + 2**(-score)"),
        (lambda s, b, h, q, k: s + abs(q - k) % 3 // 2, "score + abs(q_idx - kv_idx) % 3 // 2"),
        (
            lambda s, b, h, q, k: 7 // (q + 1) + 5 % (k + 1) + s,
            "7 // (q_idx + 1) + 5 % (kv_idx + 1) + score",
        ),
        (lambda s, b, h, q, k: s * 1e-5 + 0.1, "score * 1e-05 + 0.1"),
        (lambda s, b, h, q, k: where(q > k, s, 2 * s), "where(q_idx > kv_idx, score, 2 * score)"),
        (
            lambda s, b, h, q, k: where(~((q > k) | (q == 1)) & (k != 2), s, 0),
            "where(~((q_idx > kv_idx) | (q_idx == 1)) & (kv_idx != 2), score, 0)",
        ),
        (lambda s, b, h, q, k: formula("softcap(score, 5)") * 2, "(softcap(score, 5)) * 2"),
        (lambda s, b, h, q, k: (s / 20).tanh() * 20, "tanh(score / 20) * 20"),
        (lambda s, b, h, q, k: s.float().clamp(min=-1), "max(score, -1)"),
    ],
)
def test_operators_are_written_down(score_mod: object, text: str) -> None:
    assert traced(score_mod) == text


def test_torch_functions_are_written_down() -> None:
    torch = pytest.importorskip("torch")

    def score_mod(score, b, h, q_idx, kv_idx):
        capped = torch.tanh(score / 20) * 20
        near = torch.logical_and(q_idx - kv_idx < 5, torch.ge(q_idx, kv_idx))
        far = torch.clamp(capped, min=-1, max=1) + torch.sigmoid(score)
        return torch.where(near, capped, far) + torch.maximum(torch.abs(score), q_idx)

    assert traced(score_mod) == (
        "where((q_idx - kv_idx < 5) & (q_idx >= kv_idx), tanh(score / 20) * 20, "
        "min(max(tanh(score / 20) * 20, -1), 1) + sigmoid(score)) + max(abs(score), q_idx)"
    )


REMEDY = (
    'declare it under tensors and index it: attnc.tensor("bias")[h, q_idx, kv_idx]; '
    'a number that varies: declare it under params and use attnc.param("name")'
)


def refused(score_mod: object) -> str:
    with pytest.raises(TraceError) as caught:
        traced(score_mod)
    return str(caught.value)


@pytest.mark.parametrize("use", ["index", "right", "left", "where"])
def test_captured_tensors_are_refused(use: str) -> None:
    torch = pytest.importorskip("torch")
    bias = torch.zeros(8)
    ways = {
        "index": lambda s, b, h, q, k: s + bias[h],
        "right": lambda s, b, h, q, k: s + bias,
        "left": lambda s, b, h, q, k: bias + s,
        "where": lambda s, b, h, q, k: torch.where(q > k, s, bias),
    }
    assert refused(ways[use]) == (
        "spec/cannot-trace a callable cannot use a torch.Tensor of its own\n  help: " + REMEDY
    )


def test_branches_are_refused() -> None:
    assert refused(lambda s, b, h, q, k: s if q > k else 0) == (
        "spec/cannot-trace `q_idx > kv_idx` is not known when the spec is built, so Python cannot "
        "branch on it\n  help: use attnc.where(condition, a, b) for if, & | ~ for and, or, not, "
        "and (a < b) & (b < c) for a < b < c"
    )


@pytest.mark.parametrize(
    ("score_mod", "said"),
    [
        (lambda s, b, h, q, k: s + float("-inf"), "-inf cannot stand in a formula"),
        (lambda s, b, h, q, k: [1, 2][q], "`q_idx` cannot index a Python object"),
        (lambda s, b, h, q, k: sum(s), "`score` is one number and cannot be looped over"),
        (lambda s, b, h, q, k: float(s), "`score` has no value when the spec is built"),
        (lambda s, b, h, q, k: None, "the callable returns nothing"),
        (lambda s: s, "the callable failed"),
        (lambda s, b, h, q, k: s.cumsum(0), "torch.cumsum has no formula in attnc"),
    ],
)
def test_what_no_formula_can_say_is_refused(score_mod: object, said: str) -> None:
    assert said in refused(score_mod)


def test_a_formula_that_doubles_is_stopped() -> None:
    def score_mod(score, b, h, q, k):
        for _ in range(60):
            score = score + score
        return score

    assert "makes a formula that is too long" in refused(score_mod)


def test_mistakes_stand_in_the_yaml() -> None:
    with pytest.raises(SpecErrors) as caught:
        Spec("t", heads=8, head_dim=64, mask="casual", colour="red")
    assert str(caught.value) == (
        "t.yaml:4:7: spec/unknown-name nothing is called 'casual' in a mask\n"
        "    4 | mask: casual\n"
        "      |       ^^^^^^\n"
        "  help: did you mean causal?\n"
        "\n"
        "t.yaml:5:1: spec/unknown-key a spec has no key 'colour'\n"
        "    5 | colour: red\n"
        "      | ^^^^^^\n"
        "  help: known keys: name, doc, heads, head_dim, dtype, layout, scale, score, mask, "
        "outputs, fp32_dot, backward, params, tensors, head_gate, dropout, "
        "sink, sizes, schedule, check"
    )


@pytest.mark.parametrize(
    "text", ["a\nheads: 3", "- x", "&x", "*x", "'", '"', "a: b", "a #b", "[1]", "~", "é🙂"]
)
def test_texts_cannot_break_out(text: str) -> None:
    spec = Spec("t", heads=8, head_dim=64, doc=text)
    assert spec.doc == " ".join(text.split())
    assert spec.heads_q == 8


BASE = """\
# a remark
heads: {q: 8, kv: 4}
head_dim: 64  # of each
mask: causal
check:
  - {q_len: 3}
"""


def test_settings_change_only_what_they_name() -> None:
    settings = ["schedule.block_q=64", "schedule.warps=4", "heads.q=16", "mask=window(3, 4)"]
    settings += ["check.0.q_len=7", "head_dim=128", "params.w={type: int, default: 2}"]
    assert apply_settings(BASE, settings, "a.yaml") == (
        "# a remark\n"
        "heads: {q: 16, kv: 4}\n"
        "head_dim: 128  # of each\n"
        'mask: "window(3, 4)"\n'
        "check:\n"
        "  - {q_len: 7}\n"
        "schedule: {warps: 4, block_q: 64}\n"
        "params: {w: {type: int, default: 2}}\n"
    )


def test_a_wrong_setting_has_a_place() -> None:
    text = apply_settings(BASE, ["schedule.block_q=65"], "a.yaml")
    with pytest.raises(SpecErrors) as caught:
        parse_spec(text, "a.yaml")
    assert str(caught.value) == (
        "a.yaml:7:21: spec/bad-value schedule.block_q must be one of 16, 32, 64, 128, 256 "
        "or a list of 1 to 16 items, not '65'\n"
        "    7 | schedule: {block_q: 65}\n"
        "      |                     ^^"
    )


@pytest.mark.parametrize(
    "setting", ["schedule", "=3", "a b=3", "mask=", "mask=a\nheads: 3", ".q=3"]
)
def test_what_is_no_setting_is_refused(setting: str) -> None:
    with pytest.raises(Exception, match="user/bad-setting"):
        apply_settings(BASE, [setting], "a.yaml")
