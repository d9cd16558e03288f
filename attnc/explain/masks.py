"""Evaluate a spec's formulas row by row: what pictures, brute force and comparisons stand on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attnc.errors import SpecError
from attnc.explain.evaluate import compile_row
from attnc.explain.situation import Situation
from attnc.spec.schema import AttentionSpec


class NoValue(SpecError):
    """Report a formula that has no value at the params asked for."""

    code = "spec/no-value"
    message = "the {part} has no value{where}: {problem}"
    help = "give params with which it has one: --param NAME=VALUE"


@contextmanager
def valued(spec: AttentionSpec, part: str, situation: Situation) -> Iterator[None]:
    """Raise NoValue, at a part of the spec, where evaluating its formula divides by zero."""
    try:
        yield
    except ArithmeticError as error:
        params = ", ".join(f"{name}={value}" for name, value in situation.params.items())
        where = f" with {params}" if params else ""
        raise NoValue(spec.spans[part], part=part, where=where, problem=error) from None


def mask_rows(spec: AttentionSpec, situation: Situation) -> Callable[[int, int, int], list[bool]]:
    """Make a function (b, h, q_idx) -> for each key, whether the query sees it."""
    names = ["b", "h", "h_kv", "q_idx", "q_pos", "d", *situation.names()]
    row = compile_row(spec.mask, "kv_idx", names, situation.read)
    constants = list(situation.names().values())
    shift, group, kv_len = situation.kv_len - situation.q_len, spec.group, situation.kv_len

    def visible(b: int, h: int, q_idx: int) -> list[bool]:
        return row(kv_len, b, h, h // group, q_idx, q_idx + shift, spec.head_dim_qk, *constants)

    return visible


def score_rows(
    spec: AttentionSpec, situation: Situation
) -> Callable[[float, int, int, int], list[float]]:
    """Make a function (score, b, h, q_idx) -> for each key, what the spec makes of that score."""
    names = ["score", "b", "h", "h_kv", "q_idx", "q_pos", "d", *situation.names()]
    row = compile_row(spec.score, "kv_idx", names, situation.read)
    constants = list(situation.names().values())
    shift, group, kv_len = situation.kv_len - situation.q_len, spec.group, situation.kv_len

    def scores(score: float, b: int, h: int, q_idx: int) -> list[float]:
        place = (b, h, h // group, q_idx, q_idx + shift, spec.head_dim_qk)
        return row(kv_len, score, *place, *constants)

    return scores
