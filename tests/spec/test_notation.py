"""What `plain` writes, the formula reader reads back to an equal formula."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.errors import AttncError
from attnc.notation import plain
from attnc.spec.formulas import Declared, FormulaText, read_formula
from attnc.spec.schema import Param, Tensor

DECLARED = Declared(
    12,
    64,
    {"n": Param("n", "int", 3), "w": Param("w", "float", 1.0)},
    {
        "bias": Tensor("bias", ("heads", "q_len", "kv_len")),
        "flags": Tensor("flags", ("kv_len",), "bool"),
        "ids": Tensor("ids", ("batch", "kv_len"), "int32"),
        "odd": Tensor("odd", ("heads", 17)),
        "table": Tensor("table", ("heads", 32)),
    },
)

_names = st.sampled_from(["q_idx", "kv_idx", "q_pos", "h", "h_kv", "q_len", "d", "n"])
_integers = st.integers(0, 9).map(str)
_whole = st.recursive(
    _names | _integers,
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*"]), part).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(part, st.sampled_from(["//", "%"]), st.integers(2, 9)).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["min", "max"]), part, part).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
        part.map(lambda p: f"abs({p})"),
        part.map(lambda p: f"(-{p})"),
        part.map(lambda p: f"ids[b, {p}]"),
    ),
    max_leaves=5,
)
_sign = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
conditions = st.recursive(
    st.one_of(
        st.tuples(_whole, _sign, _whole).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(_whole, _whole, _whole).map(lambda t: f"({t[0]} <= {t[1]} < {t[2]})"),
        st.sampled_from(["causal", "window(3, n)", "prefix(n)", "flags[kv_idx]", "documents(ids)"]),
        _whole.map(lambda p: f"flags[{p}]"),
    ),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["&", "|"]), part).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        part.map(lambda p: f"~{p}"),
        st.tuples(part, part, part).map(lambda t: f"where({t[0]}, {t[1]}, {t[2]})"),
    ),
    max_leaves=4,
)
_reals = st.sampled_from(
    ["score", "w", "0.1", "2.5", "1e-7", "3", "1/3", "bias[h, q_idx, kv_idx]", "q_idx"]
)
scores = st.recursive(
    _reals,
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*", "/", "//", "%"]), part).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(
            st.sampled_from(["tanh", "exp", "exp2", "sigmoid", "relu", "abs", "sqrt"]), part
        ).map(lambda t: f"{t[0]}({t[1]})"),
        part.map(lambda p: f"log(abs({p}) + 1)"),
        part.map(lambda p: f"log2({p} ** 2 + 1)"),
        st.tuples(part, st.integers(-3, 4)).map(lambda t: f"({t[0]}) ** {t[1]}"),
        part.map(lambda p: f"(-{p})"),
        st.tuples(st.sampled_from(["min", "max"]), part, part).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
        st.tuples(conditions, part, part).map(lambda t: f"where({t[0]}, {t[1]}, {t[2]})"),
    ),
    max_leaves=6,
)


def _round_trip(text: str, role: str) -> None:
    try:
        formula = read_formula(FormulaText.of_text(text), role, DECLARED).formula
    except AttncError:  # a constant part that has no value, such as 1 / (q_idx - q_idx)
        return
    written = plain(formula)
    again = read_formula(FormulaText.of_text(written), role, DECLARED).formula
    assert again == formula, written
    assert plain(again) == written


@settings(max_examples=60, deadline=None)
@given(conditions)
def test_masks_read_back(text: str) -> None:
    _round_trip(text, "mask")


@settings(max_examples=60, deadline=None)
@given(scores)
def test_scores_read_back(text: str) -> None:
    _round_trip(text, "score")


@pytest.mark.parametrize(
    ("role", "text", "written"),
    [
        ("mask", "causal & sliding_window(4096)", "q_pos - 4096 < kv_idx <= q_pos"),
        ("mask", "window(3, inf) | prefix(n)", "(q_pos - 3 <= kv_idx) | (kv_idx < n)"),
        (
            "mask",
            "causal & ((q_pos - kv_idx) % 5 == 0)",
            "((q_pos - kv_idx) % 5 == 0) & (kv_idx <= q_pos)",
        ),
        ("mask", "flags[kv_idx] & true", "flags[kv_idx] != 0"),
        ("mask", "~(causal & (q_idx == kv_idx))", "(kv_idx > q_pos) | (q_idx != kv_idx)"),
        ("mask", "window(inf, inf)", "true"),
        ("score", "softcap(score, 50)", "50*tanh(score/50)"),
        ("score", "score * 0.1 - 1/3", "score/10 - 1/3"),
        ("score", "2 ** -score / sqrt(d) * log2(w)", "exp2(-score)*log2(w)/sqrt(d)"),
        (
            "score",
            "-(score + 1) * 1e20",
            "-100000000000000000000.0*score - 100000000000000000000.0",
        ),
        (
            "score",
            "alibi",
            "score - abs(kv_idx - q_pos)*where(h < 8, exp2(-h - 1), exp2(7.5 - h))",
        ),
        (
            "score",
            "relative_bias(score, odd)",
            "score + odd[h, max(-8, min(8, kv_idx - q_pos)) + 8]",
        ),
    ],
)
def test_plain_reads_well(role: str, text: str, written: str) -> None:
    formula = read_formula(FormulaText.of_text(text), role, DECLARED).formula
    assert plain(formula) == written
    _round_trip(text, role)


@pytest.mark.parametrize(
    "text", ["t5_bias(score, table)", "t5_bias(alibi, table, bidirectional=true)"]
)
def test_long_blocks_read_back(text: str) -> None:
    _round_trip(text, "score")
