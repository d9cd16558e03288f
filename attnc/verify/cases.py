"""The calls on which a kernel is compared: sizes, types, storage, schedules and cruelties.

Small lengths with small tiles meet every kind of tile; `far` cases reach the constants that a
formula names (a window of 4096 keys is not seen in 100), with few queries and one group of heads
so that they stay cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle

import sympy
from sympy import Expr

from attnc.divisors import divisors_of, is_zero_at
from attnc.spec.schema import AttentionSpec, Param
from attnc.symbols import FloorDiv, FloorMod

NEAR, FAR = 64, 2**14  # constants between these sizes get a case of their own
MANY = 8  # heads above which one batch entry must do
TILE_STEPS = 300  # what a check size may cost in the interpreter: tiles of 64 x 64 x 64
SMALL = (32, 32)
TALL = (16, 64)
TINY = (16, 16)
LARGE = 64  # of an int param: whole tiles of 16 x 16 lie within
DROPPED = (0.2, 0.0, 0.5)  # shares of the weights, in turn
VARIATIONS, USUAL = 5, 1  # of params: how many, and which has the defaults
HIDING = (2, 4)  # sets of params that tend to hide everything, where no gradient is to be seen
MANY_HEADED = ("transposed", "expanded")
APART_GRADIENTS = ("far rows", "wide q", "wide k", "wide v")

Params = dict[str, int | float]


@dataclass(frozen=True, slots=True)
class Case:
    """One call, with NaN around its tensors and in keys and queries that nothing sees.

    storage: packed | transposed | sliced | expanded; far: every stride but a head dim's takes
    offsets past 32 bits; wide NAME: the offsets within a tile of q, k, v, out or lse do.
    twist: none | infinite bias | absent sink: -inf for half of the heads | wild indices.
    magnitude: factor on q, so that scores grow by it.  tiles: block_q, block_kv; None means the
    default schedule.
    """

    name: str
    batch: int
    heads_kv: int
    q_len: int
    kv_len: int
    dtype: str
    tiles: tuple[int, int] | None = None
    storage: str = "packed"
    twist: str = "none"
    magnitude: float = 1.0
    scale: float | None = None
    params: tuple[tuple[str, int | float], ...] = ()
    seed: int = 0
    dropout_p: float = 0.0
    choices: tuple[str, ...] = ()  # fields of a schedule, turned on in every kernel that has them
    repeated: bool = False  # run again, and without the NaNs: the same bits each time

    @property
    def apart(self) -> bool:
        """Whether it is about 64-bit offsets, which torch itself computes for the dense path."""
        return self.storage.startswith(("far", "wide"))

    @property
    def cruel(self) -> bool:
        """Whether its inputs are so extreme that a user's formula may have no value there."""
        return self.twist != "none" or self.magnitude != 1 or self.scale is not None


def cases_for(spec: AttentionSpec) -> tuple[Case, ...]:
    """List the cases that fit a spec, in a fixed order with fixed seeds."""
    drafts = [*_check_cases(spec), *_size_cases(), *_cruel_cases(spec), *_far_cases(spec)]
    return _finished(spec, [*drafts, *_large_cases(spec), *_apart_cases(spec)], range(VARIATIONS))


def gradient_cases(spec: AttentionSpec) -> tuple[Case, ...]:
    """Those that also ask for gradients: fewer heads and batch entries, and no far constants.

    A backward takes three kernels, and nothing of it is shared by batch entries or groups of heads
    but what a sum over them shows.
    """
    drafts = [*_check_cases(spec, TILE_STEPS // 8), *_size_cases(), *_cruel_cases(spec)]
    drafts += [*_large_cases(spec), *(c for c in _apart_cases(spec) if c.name in APART_GRADIENTS)]
    fewer = [c if c.name in MANY_HEADED else replace(c, heads_kv=1) for c in drafts]
    fewer = [c if c.repeated else replace(c, batch=min(c.batch, 1)) for c in fewer]
    return _finished(spec, fewer, [turn for turn in range(VARIATIONS) if turn not in HIDING])


def _finished(spec: AttentionSpec, drafts: list[Case], turns: Sequence[int]) -> tuple[Case, ...]:
    """Seeds, params (of a few sets in turn) and heads that the spec takes."""
    heads = spec.heads_kv if spec.fixes_heads else 0
    finished = []
    for seed, case in enumerate(drafts):
        params = _accepted(spec, dict(case.params), turns[seed % len(turns)])
        if params is None:
            continue
        heads_kv = heads or (1 if spec.group > MANY else case.heads_kv)
        many = heads_kv * spec.group > MANY and case.q_len > 1
        batch = min(case.batch, 1) if many else case.batch
        changes = {"seed": seed, "heads_kv": heads_kv, "batch": batch}
        dropped = DROPPED[seed % len(DROPPED)] if spec.dropout else 0.0
        finished.append(replace(case, **changes, params=tuple(params.items()), dropout_p=dropped))
    return tuple(finished)


def _check_cases(spec: AttentionSpec, steps: int = TILE_STEPS) -> Iterator[Case]:
    for size in spec.check:
        case = Case("check size", size.batch, spec.heads_kv, size.q_len, size.kv_len, spec.dtype)
        yield replace(_affordable(spec, case, steps), params=size.params)


def _affordable(spec: AttentionSpec, case: Case, steps: int) -> Case:
    """Take heads and batch entries away, never rows or keys, until it is affordable."""
    depth = max(1, (spec.head_dim_qk + spec.head_dim_v) // 128)
    tiles = -(-case.q_len // 64) * -(-case.kv_len // 64) * spec.group * depth
    fitting = max(1, steps // max(1, tiles))
    heads_kv = case.heads_kv if spec.fixes_heads else min(case.heads_kv, 2, fitting)
    return replace(case, heads_kv=heads_kv, batch=min(case.batch, max(1, fitting // heads_kv)))


def _size_cases() -> Iterator[Case]:
    yield Case("tails", 2, 1, 33, 65, "fp16", SMALL, repeated=True)
    yield Case("tails", 1, 2, 65, 97, "fp32", TALL)
    yield Case("more queries than keys", 1, 1, 70, 45, "fp32", SMALL)
    yield Case("more queries than keys", 1, 1, 70, 45, "bf16")
    yield Case("tile borders", 1, 1, 64, 96, "fp32", TINY)
    yield Case("tile borders, skewed", 1, 1, 64, 96, "fp32", TINY, choices=("skew",))
    yield Case("tails, described", 1, 2, 65, 97, "fp16", SMALL, choices=("tma",))
    yield Case("skewed, described", 1, 1, 70, 101, "bf16", TINY, choices=("skew", "tma"))
    yield Case("last tiles first", 1, 1, 70, 101, "fp16", TINY, choices=("last_first",))
    yield Case("one query", 2, 1, 1, 75, "fp16")
    yield Case("one key", 1, 1, 40, 1, "fp32", SMALL)
    yield Case("one of each", 1, 2, 1, 1, "bf16")
    yield Case("no keys", 1, 1, 5, 0, "fp16")
    yield Case("no queries", 1, 1, 0, 5, "fp32")
    yield Case("no batch", 0, 1, 5, 5, "fp16")
    yield Case("transposed", 2, 2, 40, 50, "fp16", SMALL, storage="transposed")
    yield Case("sliced", 2, 2, 33, 47, "fp32", SMALL, storage="sliced")
    yield Case("expanded", 2, 2, 33, 40, "bf16", SMALL, storage="expanded")


def _cruel_cases(spec: AttentionSpec) -> Iterator[Case]:
    yield Case("negative scale", 1, 1, 40, 50, "fp16", SMALL, scale=-0.3)
    yield Case("zero scale", 1, 1, 40, 50, "fp32", SMALL, scale=0.0)
    yield Case("huge scores", 1, 1, 40, 70, "fp32", SMALL, magnitude=1e4)
    yield Case("huge scores", 1, 1, 40, 70, "fp16", magnitude=1e3)
    if any(tensor.dtype in ("fp32", "fp16", "bf16") for tensor in spec.tensors):
        yield Case("infinite bias", 1, 2, 40, 70, "fp32", SMALL, twist="infinite bias")
    if spec.sink:
        yield Case("absent sink", 1, 2, 40, 33, "fp32", SMALL, twist="absent sink")
    if spec.tensors:
        yield Case("wild indices", 2, 1, 70, 50, "fp32", SMALL, twist="wild indices")


def _far_cases(spec: AttentionSpec) -> Iterator[Case]:
    reached = max((size.kv_len for size in spec.check), default=0)
    constants = sorted(
        {number for number in _integers(spec) if max(NEAR, reached) <= number <= FAR}
    )
    dtypes = cycle(("fp16", "fp32"))
    for constant in {*constants[:1], *constants[-1:]}:
        yield Case(f"past {constant}", 1, 1, 48, constant + 24, next(dtypes))
        yield Case(f"decode past {constant}", 1, 1, 1, constant + 2, next(dtypes))


def _large_cases(spec: AttentionSpec) -> Iterator[Case]:
    """Each int param so large that tiles without a mask lie inside of what it bounds."""
    for param in spec.params:
        if param.kind == "int" and not _is_exponent(spec, param):
            choices = (_accepted(spec, {param.name: size}) for size in (LARGE, LARGE + 1))
            if (params := next(filter(None, choices), None)) is not None:
                own = tuple(params.items())
                yield Case(f"large {param.name}", 1, 1, 40, 90, "fp16", TINY, params=own)


def _apart_cases(spec: AttentionSpec) -> Iterator[Case]:
    usual = tuple((_accepted(spec, {}) or {}).items())
    yield Case("far entries", 3, 3, 1, 5, "fp16", TINY, "far", params=usual)
    yield Case("far rows", 1, 1, 33, 33, "fp16", TINY, "far", params=usual)
    heads = spec.heads_q if spec.fixes_heads else spec.group
    for name in ("q", "k", "v", "out", *spec.outputs) if heads <= MANY else ():
        yield Case(f"wide {name}", 1, 1, 16, 16, "fp16", TINY, f"wide {name}", params=usual)


def _integers(spec: AttentionSpec) -> Iterator[int]:
    for formula in (spec.mask, spec.score):
        for number in formula.atoms(sympy.Integer):
            yield abs(int(number))
        # abs(q_pos - kv_idx) < n * step and the like may hide in rational bounds
        for number in formula.atoms(sympy.Rational) - formula.atoms(sympy.Integer):
            yield abs(int(number))


def _accepted(spec: AttentionSpec, own: Params, turn: int = USUAL) -> Params | None:
    """The own values, and of the others the first in turn that the launcher takes with them."""
    divisors = _divisors(spec)
    columns = {param.name: _values(spec, param) for param in spec.params}
    for i in range(turn, turn + VARIATIONS):
        at = i % VARIATIONS
        values = {name: column[at % len(column)] for name, column in columns.items()} | own
        if not any(is_zero_at(divisor, values) for divisor in divisors):
            return values
    return None


@cache
def _divisors(spec: AttentionSpec) -> list[Expr]:
    params = [param.name for param in spec.params]
    return divisors_of((spec.mask, spec.score, spec.scale), params, spec.head_dim_qk)


def _values(spec: AttentionSpec, param: Param) -> list[int | float]:
    default = param.default
    if param.kind == "float":
        start = 0.7 if default is None else float(default)
        return [start, start * 0.5, start * 1.5]
    start = 8 if default is None else int(default)
    if _is_exponent(spec, param):
        return [3, start, 20]  # one over log(1) means nothing
    formulas = (spec.mask, spec.score, spec.scale)
    divisors = [node.args[1] for f in formulas for node in f.atoms(FloorDiv, FloorMod)]
    return [3, start, 1, 20, 6] if _occurs(param, divisors) else [3, start, 0, 20, -2]


def _is_exponent(spec: AttentionSpec, param: Param) -> bool:
    formulas = (spec.mask, spec.score, spec.scale)
    return _occurs(param, [node for f in formulas for node in f.atoms(sympy.Pow, sympy.log)])


def _occurs(param: Param, formulas: Iterable[sympy.Basic]) -> bool:
    return any(param.name in map(str, formula.free_symbols) for formula in formulas)
