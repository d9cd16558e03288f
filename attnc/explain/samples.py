"""Choose the calls at which two specs are compared: small ones where params bite, and a large one.

A window of 4096 keys hides nothing of 12.  So params that nobody set take a few small values, and
one more call, of a few rows, is longer than every whole number that either spec mentions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

from sympy import Integer

from attnc.explain.situation import Situation, situation_of
from attnc.spec.schema import AttentionSpec

Number = int | float
LENGTHS = ((8, 12), (12, 12), (12, 8), (1, 12))  # queries, keys
SMALL: Mapping[str, tuple[Number, ...]] = {"int": (1, 2, 3, 5), "float": (0.5, 2.0)}
MOST_VALUES = 64  # combinations of small params at each length
LONGEST = 2**14  # keys of the large call: a fraction of a second in plain Python


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user fixed of the calls to compare at; None and a missing param: not fixed."""

    batch: int | None
    q_len: int | None
    kv_len: int | None
    params: Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of both specs, and the query rows at which they are compared."""

    first: Situation
    second: Situation
    rows: tuple[int, ...]

    @property
    def params(self) -> dict[str, Number]:
        """The params of both; those that both declare have one value."""
        return {**self.first.params, **self.second.params}

    def as_json(self) -> dict[str, Any]:
        """Sizes, params and rows."""
        at = self.first
        rows = "all" if len(self.rows) == at.q_len else list(self.rows)
        return {"q_len": at.q_len, "kv_len": at.kv_len, "rows": rows, "params": self.params}


def samples(first: AttentionSpec, second: AttentionSpec, asked: Asked) -> list[Sample]:
    """All calls at which two specs are compared, small ones first."""
    lengths = _lengths(first, second, asked)
    found = [
        _sample(first, second, asked, sizes, params, range(sizes[0]))
        for sizes in lengths
        for params in _small_params(first, second, asked.params)
    ]
    usual = _usual_params(first, second, asked.params)
    if asked.q_len is not None or asked.kv_len is not None:
        return [*found, _sample(first, second, asked, lengths[0], usual, range(lengths[0][0]))]
    reach = _reach(first, second, usual)
    sizes = (reach + 8, reach + 12)
    rows = sorted({0, 1, sizes[0] // 2, sizes[0] - 1})
    return [*found, _sample(first, second, asked, sizes, usual, rows)]


def _lengths(
    first: AttentionSpec, second: AttentionSpec, asked: Asked
) -> tuple[tuple[int, int], ...]:
    if asked.q_len is None and asked.kv_len is None:
        return LENGTHS
    q_len = asked.kv_len if asked.q_len is None else asked.q_len
    kv_len = q_len if asked.kv_len is None else asked.kv_len
    assert q_len is not None and kv_len is not None
    return ((q_len, kv_len),)


def _small_params(
    first: AttentionSpec, second: AttentionSpec, given: Mapping[str, Number]
) -> Iterator[dict[str, Number]]:
    kinds = {param.name: param.kind for param in (*first.params, *second.params)}
    free = {name: SMALL[kind] for name, kind in kinds.items() if name not in given}
    if 4 ** len(free) <= MOST_VALUES:
        for values in product(*free.values()):
            yield {**given, **dict(zip(free, values, strict=True))}
        return
    random = Random(0)
    for _ in range(MOST_VALUES):
        yield {**given, **{name: random.choice(values) for name, values in free.items()}}


def _usual_params(
    first: AttentionSpec, second: AttentionSpec, given: Mapping[str, Number]
) -> dict[str, Number]:
    """Params as given, else by default, else small."""
    found: dict[str, Number] = {}
    for param in (*second.params, *first.params):
        found[param.name] = SMALL[param.kind][1] if param.default is None else param.default
    return {**found, **given}


def _reach(first: AttentionSpec, second: AttentionSpec, params: Mapping[str, Number]) -> int:
    """The largest whole number that bounds something, as far as one can go."""
    formulas = [f for spec in (first, second) for f in (spec.mask, spec.score, spec.scale)]
    numbers = [abs(int(number)) for f in formulas for number in f.atoms(Integer)]
    numbers += [abs(value) for value in params.values() if isinstance(value, int)]
    return max((number for number in numbers if number <= LONGEST), default=0)


def _sample(
    first: AttentionSpec,
    second: AttentionSpec,
    asked: Asked,
    sizes: tuple[int, int],
    params: Mapping[str, Number],
    rows: range | list[int],
) -> Sample:
    batch = 2 if asked.batch is None else asked.batch
    one, other = (
        replace(
            situation_of(spec, batch, *sizes, {p.name: params[p.name] for p in spec.params}),
            scattered=True,
        )
        for spec in (first, second)
    )
    return Sample(one, other, tuple(rows))
