"""What every building block means, written a second time as plain Python over single pairs.

This table shares nothing with `attnc/spec/blocks.py`: verify's reference and the kernels both read
the formulas there, so a wrong formula would pass every other test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from sympy import lambdify

from attnc import symbols
from attnc.spec import describe_blocks
from attnc.spec.blocks import BLOCKS, slope
from attnc.spec.buckets import bucket
from attnc.spec.formulas import Declared, FormulaText, read_formula
from attnc.spec.schema import Param, Tensor

HEADS = 12
IDS = [[7, 7, 7, 3, 3, 5, 5, 5, 5], [1, 2, 2, 2, 2, 2, 9, 9, 9]]
ODD = [[100 * head + place for place in range(7)] for head in range(HEADS)]
TABLE = [[1000 * head + place for place in range(32)] for head in range(HEADS)]
DECLARED = Declared(
    HEADS,
    64,
    {"n": Param("n", "int", 3)},
    {
        "ids": Tensor("ids", ("batch", "kv_len"), "int32"),
        "odd": Tensor("odd", ("heads", 7)),
        "table": Tensor("table", ("heads", 32)),
    },
)
DATA = {"ids": IDS, "odd": ODD, "table": TABLE}
N = 3  # the value of the param


def _read(table: str, *indices: int) -> Any:
    value: Any = DATA[table]
    for index in indices:
        assert index == int(index)
        if not 0 <= index < len(value):
            return 0
        value = value[int(index)]
    return value


MODULE = {
    "FloorDiv": lambda a, b: math.floor(a / b),
    "FloorMod": lambda a, b: a - b * math.floor(a / b),
    "Where": lambda c, a, b: a if c else b,
    "Read": _read,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}
ARGUMENTS = (
    *(symbols.b, symbols.h, symbols.q_idx, symbols.kv_idx, symbols.q_pos, symbols.score),
    symbols.param_symbol("n", "int"),
    *(symbols.tensor_symbol(name, DECLARED.tensors[name].dtype) for name in DATA),
)


def compiled(text: str, role: str) -> Callable[..., Any]:
    """The formula as a function of (b, h, i, j, p, s)."""
    formula = read_formula(FormulaText.of_text(text), role, DECLARED).formula
    function = lambdify(ARGUMENTS, formula, modules=[MODULE, "math"])
    return lambda b, h, i, j, p, s: function(b, h, i, j, p, s, N, *DATA)


def in_document(b: int, p: int, j: int) -> bool:
    return p >= 0 and IDS[b][p] == IDS[b][j]


# i: query row, p: query position, j: key, b: batch entry.
MASKS: dict[str, Callable[[int, int, int, int], bool]] = {
    "causal": lambda b, i, p, j: j <= p,
    "causal(top_left)": lambda b, i, p, j: j <= i,
    "causal(bottom_right)": lambda b, i, p, j: j <= p,
    "window(2, 1)": lambda b, i, p, j: j in (p - 2, p - 1, p, p + 1),
    "window(0, 0)": lambda b, i, p, j: j == p,
    "window(inf, 0)": lambda b, i, p, j: j <= p,
    "window(5, inf)": lambda b, i, p, j: j >= p - 5,
    "window(left=1, right=n)": lambda b, i, p, j: j in range(p - 1, p + 4),
    "window(inf, inf)": lambda b, i, p, j: True,
    "sliding_window(1)": lambda b, i, p, j: j == p,
    "sliding_window(4)": lambda b, i, p, j: j in (p - 3, p - 2, p - 1, p),
    "sliding_window(n)": lambda b, i, p, j: j in (p - 2, p - 1, p),
    "sliding_window(inf)": lambda b, i, p, j: j <= p,
    "prefix(0)": lambda b, i, p, j: False,
    "prefix(3)": lambda b, i, p, j: j in (0, 1, 2),
    "causal | prefix(n)": lambda b, i, p, j: j <= p or j in (0, 1, 2),
    "global_tokens(2)": lambda b, i, p, j: j in (0, 1) or p < 2,
    "dilated(1, 3)": lambda b, i, p, j: j == p,
    "dilated(3, 2)": lambda b, i, p, j: j in (p - 4, p - 2, p, p + 2, p + 4),
    "dilated(1, n - 5)": lambda b, i, p, j: False,  # abs(q_pos - kv_idx) < -2
    "dilated(-n, n - 5)": lambda b, i, p, j: abs(p - j) < 6 and (p - j) % 2 == 0,
    "dilated(inf, 4)": lambda b, i, p, j: j in range(p - 400, p + 400, 4),
    "documents(ids)": lambda b, i, p, j: in_document(b, p, j),
}


def press_slopes(heads: int) -> list[float]:
    """ALiBi's slopes as its authors compute them: recursion for other than powers of two."""

    def powers(count: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(count) - 3)))
        return [start * start**at for at in range(count)]

    if math.log2(heads).is_integer():
        return powers(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return powers(closest) + press_slopes(2 * closest)[0::2][: heads - closest]


def t5_bucket(relative: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """T5's own rule, step by step, its logarithm replaced by exact integer comparison."""
    result = 0
    if bidirectional:
        buckets //= 2
        result += buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = -min(relative, 0)
    exact = buckets // 2
    if distance < exact:
        return result + distance
    large = 0  # the largest k with (distance / exact) ** (buckets - exact) >= (max / exact) ** k
    power = buckets - exact
    while (
        distance**power * exact ** (large + 1) >= max_distance ** (large + 1) * exact**power
        and large < buckets
    ):
        large += 1
    return result + min(exact + large, buckets - 1)


# h: head, p: query position, j: key, s: the score so far.
SCORES: dict[str, Callable[[int, int, int, float], float]] = {
    "softcap(score, 30)": lambda h, p, j, s: 30 * math.tanh(s / 30),
    "softcap(score, 0.5)": lambda h, p, j, s: 0.5 * math.tanh(s / 0.5),
    "alibi": lambda h, p, j, s: s - press_slopes(HEADS)[h] * abs(p - j),
    "alibi(softcap(score, 2))": lambda h, p, j, s: (
        2 * math.tanh(s / 2) - press_slopes(HEADS)[h] * abs(p - j)
    ),
    "relative_bias(score, odd)": lambda h, p, j, s: s + ODD[h][max(-3, min(3, j - p)) + 3],
    "t5_bias(score, table)": lambda h, p, j, s: s + TABLE[h][t5_bucket(j - p, 32, 128, False)],
    "t5_bias(score, table, max_distance=20, bidirectional=true)": lambda h, p, j, s: (
        s + TABLE[h][t5_bucket(j - p, 32, 20, True)]
    ),
}


def test_the_table_is_whole() -> None:
    named = " ".join([*MASKS, *SCORES])
    assert all(name in named for name in BLOCKS)
    assert [entry["name"] for entry in describe_blocks()] == list(BLOCKS)
    assert all(all(entry.values()) for entry in describe_blocks())


@pytest.mark.parametrize("text", MASKS)
@pytest.mark.parametrize(("q_len", "kv_len"), [(9, 9), (4, 9), (9, 4), (1, 9)])
def test_mask_blocks(text: str, q_len: int, kv_len: int) -> None:
    mask = compiled(text, "mask")
    for b in range(2):
        for i in range(q_len):
            for j in range(kv_len):
                p = i + kv_len - q_len
                wanted = MASKS[text](b, i, p, j)
                assert bool(mask(b, 0, i, j, p, 0.0)) == wanted, (b, i, p, j)


@pytest.mark.parametrize("text", SCORES)
def test_score_blocks(text: str) -> None:
    score = compiled(text, "score")
    for h in range(HEADS):
        for p in (-2, 0, 1, 5, 33, 40):
            for j in (0, 1, 2, 7, 15, 16, 17, 33, 61):
                s = 0.7 * h - j
                wanted = SCORES[text](h, p, j, s)
                assert score(0, h, 0, j, p, s) == pytest.approx(wanted, rel=1e-12), (h, p, j)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16, 20, 40, 71, 112, 128])
def test_alibi_slopes_are_the_authors(heads: int) -> None:
    function = lambdify(symbols.h, slope(heads), modules=[MODULE, "math"])
    found = [function(h) for h in range(heads)]
    assert found == pytest.approx(press_slopes(heads), rel=1e-12)


BUCKET_CASES = [
    (buckets, distance, both)
    for buckets in (4, 6, 8, 10, 16, 32, 64)
    for distance in (20, 64, 128, 200)
    for both in (False, True)
    if distance > buckets // 2
]


@pytest.mark.parametrize(("buckets", "max_distance", "bidirectional"), BUCKET_CASES)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_t5_buckets_are_exact(
    buckets: int, max_distance: int, bidirectional: bool, precision: str
) -> None:
    """Every distance to four times the largest, both ways, also when logs round to float32."""
    numpy = pytest.importorskip("numpy")
    step = symbols.kv_idx - symbols.q_pos
    formula = bucket(step, buckets, max_distance, bidirectional)
    kind = getattr(numpy, precision)
    low = {"log": lambda x: kind(numpy.log(kind(x))), "floor": numpy.floor}
    low["FloorDiv"] = lambda a, b: int(numpy.floor(kind(a) / b))
    function = lambdify((symbols.q_pos, symbols.kv_idx), formula, modules=[low, MODULE, "math"])
    for relative in range(-4 * max_distance, 4 * max_distance + 1):
        wanted = t5_bucket(relative, buckets, max_distance, bidirectional)
        assert function(0, relative) == wanted, relative


def test_t5_buckets_agree_with_the_published_code() -> None:
    """T5's float32 code, away from the whole quotients where float32 may fall either way."""
    torch = pytest.importorskip("torch")
    relative = torch.arange(-500, 501)
    distance = -torch.min(relative, torch.zeros_like(relative))
    large = (
        16 + (torch.log(distance.float() / 16) / math.log(128 / 16) * 16).nan_to_num(0, 0, 0).long()
    )
    large = torch.min(large, torch.full_like(large, 31))
    theirs = torch.where(distance < 16, distance, large).tolist()
    ours = [t5_bucket(int(r), 32, 128, False) for r in relative]
    differing = {-int(r) for r, a, b in zip(relative, theirs, ours, strict=True) if a != b}
    assert differing <= {32, 64, 128}
