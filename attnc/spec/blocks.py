"""The building blocks: named formulas for the masks and scores people use.

Adding one is adding an entry to `_ENTRIES`: its arguments, its formula, its meaning, its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sympy import (
    Abs,
    And,
    Eq,
    Expr,
    Integer,
    Le,
    Lt,
    Max,
    Min,
    Or,
    Pow,
    Rational,
    oo,
    tanh,
    true,
)
from sympy.logic.boolalg import Boolean

from attnc import symbols
from attnc.spec.block import Argument, BadBlock, Block, Kind
from attnc.spec.buckets import bucket
from attnc.spec.schema import Tensor
from attnc.symbols import FloorMod, Read, Where, b, h, kv_idx, q_idx, q_pos, tensor_symbol


def _equal(a: Any, b: Any) -> Any:
    return Eq(a, b)


def _causal(heads: int, alignment: str) -> Boolean:
    return Le(kv_idx, q_idx if alignment == "top_left" else q_pos)


def _window(heads: int, left: Expr, right: Expr) -> Boolean:
    low = true if left == oo else Le(q_pos - left, kv_idx)
    high = true if right == oo else Le(kv_idx, q_pos + right)
    return And(low, high)


def _sliding_window(heads: int, n: Expr) -> Boolean:
    return And(true if n == oo else Lt(q_pos - n, kv_idx), Le(kv_idx, q_pos))


def _prefix(heads: int, n: Expr) -> Boolean:
    return Lt(kv_idx, n)


def _global_tokens(heads: int, n: Expr) -> Boolean:
    return Or(Lt(kv_idx, n), Lt(q_pos, n))


def _dilated(heads: int, n: Expr, step: Expr) -> Boolean:
    # The tight bound: the multiple of step next to n * step, inside abs(...) < n * step.
    near = true if n == oo else Le(Abs(q_pos - kv_idx), n * step - Abs(step))
    return And(near, _equal(FloorMod(q_pos - kv_idx, step), Integer(0)))


def _documents(heads: int, ids: Tensor) -> Boolean:
    if ids.shape != ("batch", "kv_len") or not ids.dtype.startswith("int"):
        raise BadBlock("ids", "an int32 or int64 tensor [batch, kv_len]", _described(ids))
    table = tensor_symbol(ids.name, ids.dtype)
    return And(_equal(Read(table, b, q_pos), Read(table, b, kv_idx)), Le(0, q_pos))


def _softcap(heads: int, x: Expr, c: Expr) -> Expr:
    return c * tanh(x / c)


def _alibi(heads: int, x: Expr) -> Expr:
    return x - slope(heads) * Abs(q_pos - kv_idx)


def slope(heads: int) -> Expr:
    """Give ALiBi's slope of head h, for any number of heads.

    Source: Press et al. 2022, arXiv:2108.12409; the authors' get_slopes for other head counts.
    """
    c = 1 << (heads.bit_length() - 1)
    low = Pow(2, -Rational(8, c) * (h + 1))
    high = Pow(2, -Rational(4, c) * (2 * (h - c) + 1))
    return low if c == heads else cast(Expr, Where(Lt(h, c), low, high))


def _relative_bias(heads: int, x: Expr, table: Tensor) -> Expr:
    last = _last_axis(table, "an odd number 2R+1")
    if last % 2 == 0:
        raise BadBlock("table", "a tensor [heads, 2R+1] with an odd last axis", _described(table))
    reach = Integer(last // 2)
    index = Max(Min(kv_idx - q_pos, reach), -reach) + reach
    return x + Read(tensor_symbol(table.name, table.dtype), h, index)


def _t5_bias(heads: int, x: Expr, table: Tensor, max_distance: Expr, bidirectional: bool) -> Expr:
    buckets = _last_axis(table, "the number of buckets")
    if buckets < (4 if bidirectional else 2) or (bidirectional and buckets % 2):
        expected = (
            "a tensor [heads, buckets] with "
            + ("4, 6, 8 ..." if bidirectional else "2 or more")
            + " buckets"
        )
        raise BadBlock("table", expected, _described(table))
    try:
        index = bucket(kv_idx - q_pos, buckets, int(max_distance), bidirectional)
    except ValueError as error:
        raise BadBlock("max_distance", str(error), str(max_distance)) from None
    return x + Read(tensor_symbol(table.name, table.dtype), h, index)


def _last_axis(table: Tensor, what: str) -> int:
    last = table.shape[-1]
    if len(table.shape) != 2 or table.shape[0] != "heads" or not isinstance(last, int):
        raise BadBlock("table", f"a tensor [heads, n] with n {what}", _described(table))
    if table.dtype not in ("fp32", "fp16", "bf16"):
        raise BadBlock("table", "a tensor of fp32, fp16 or bf16", _described(table))
    return last


def _described(tensor: Tensor) -> str:
    return f"{tensor.name}: {tensor.dtype} [{', '.join(map(str, tensor.shape))}]"


_X = Argument("x", Kind.NUMBER)
_SCORE_SO_FAR = Argument("x", Kind.NUMBER, default=symbols.score)
_TABLE = Argument("table", Kind.TENSOR, example="shape: [heads, 33]")
_BUCKETS = Argument("table", Kind.TENSOR, example="shape: [heads, 32]")
_IDS = Argument("ids", Kind.TENSOR, example="shape: [batch, kv_len], dtype: int32")
_WIDTH = Argument("n", Kind.WHOLE, least=1, unbounded=True)
_COUNT = Argument("n", Kind.WHOLE)

_ENTRIES = (
    Block(
        "causal",
        (Argument("alignment", Kind.WORD, default="bottom_right"),),
        _causal,
        "kv_idx <= q_pos; causal(top_left): kv_idx <= q_idx",
        "no key after the query; the last query sees the last key",
        "FlashAttention 2.1, bottom-right alignment",
    ),
    Block(
        "window",
        tuple(Argument(name, Kind.WHOLE, unbounded=True) for name in ("left", "right")),
        _window,
        "q_pos - left <= kv_idx <= q_pos + right",
        "the query's own key, `left` keys before it and `right` after it; inf leaves a side open",
        "FlashAttention's window_size; Beltagy et al. 2020, arXiv:2004.05150",
    ),
    Block(
        "sliding_window",
        (_WIDTH,),
        _sliding_window,
        "q_pos - n < kv_idx <= q_pos",
        "the last n keys up to and including the query's own",
        "Jiang et al. 2023, arXiv:2310.06825",
    ),
    Block(
        "prefix",
        (_COUNT,),
        _prefix,
        "kv_idx < n",
        "the first n keys; prefix-LM is causal | prefix(n)",
        "Raffel et al. 2020, arXiv:1910.10683",
    ),
    Block(
        "global_tokens",
        (_COUNT,),
        _global_tokens,
        "(kv_idx < n) | (q_pos < n)",
        "the first n tokens see all and are seen by all",
        "Beltagy et al. 2020, arXiv:2004.05150",
    ),
    Block(
        "dilated",
        (_WIDTH, Argument("step", Kind.WHOLE, least=1)),
        _dilated,
        "(abs(q_pos - kv_idx) < n * step) & ((q_pos - kv_idx) % step == 0)",
        "the n keys to either side at distances 0, step, 2 step ...",
        "Hassani & Shi 2022, arXiv:2209.15001",
    ),
    Block(
        "documents",
        (_IDS,),
        _documents,
        "(ids[b, q_pos] == ids[b, kv_idx]) & (q_pos >= 0)",
        "only keys of the query's own document; ids is [batch, kv_len]",
        "PyTorch FlexAttention's document mask",
    ),
    Block(
        "softcap",
        (_X, Argument("c", Kind.POSITIVE)),
        _softcap,
        "c * tanh(x / c)",
        "x, held between -c and c",
        "Gemma Team 2024, arXiv:2408.00118",
    ),
    Block(
        "alibi",
        (_SCORE_SO_FAR,),
        _alibi,
        "x - slope(h) * abs(q_pos - kv_idx)",
        "a penalty that grows with distance, at a rate of its own for each head",
        "Press et al. 2022, arXiv:2108.12409",
        fixes_heads=True,
    ),
    Block(
        "relative_bias",
        (_X, _TABLE),
        _relative_bias,
        "x + table[h, min(max(kv_idx - q_pos, -R), R) + R]",
        "a bias by clamped distance; table is [heads, 2R+1]",
        "Shaw et al. 2018, arXiv:1803.02155",
    ),
    Block(
        "t5_bias",
        (
            _X,
            _BUCKETS,
            Argument("max_distance", Kind.WHOLE, least=2, default=Integer(128)),
            Argument("bidirectional", Kind.FLAG, default=False),
        ),
        _t5_bias,
        "x + table[h, bucket(kv_idx - q_pos)]",
        "a bias by distance, exact when near and logarithmic when far; table is [heads, buckets]",
        "Raffel et al. 2020, arXiv:1910.10683",
    ),
)

BLOCKS: Mapping[str, Block] = {block.name: block for block in _ENTRIES}


def describe_blocks() -> list[dict[str, str]]:
    """List every building block: its name, signature, formula, meaning and source."""
    return [
        {
            "name": block.name,
            "signature": block.signature,
            "formula": block.formula,
            "meaning": block.meaning,
            "source": block.source,
        }
        for block in _ENTRIES
    ]
