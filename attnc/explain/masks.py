"""Evaluate a spec's mask row by row: the ground that pictures and brute-force counts stand on."""

from __future__ import annotations

from collections.abc import Callable

from attnc.explain.evaluate import compile_row
from attnc.explain.situation import Situation
from attnc.spec.schema import AttentionSpec


def mask_rows(spec: AttentionSpec, situation: Situation) -> Callable[[int, int, int], list[bool]]:
    """Make a function (b, h, q_idx) -> for each key, whether the query sees it."""
    names = ["b", "h", "h_kv", "q_idx", "q_pos", "d", *situation.names()]
    row = compile_row(spec.mask, "kv_idx", names, situation.read)
    constants = list(situation.names().values())
    shift, group, kv_len = situation.kv_len - situation.q_len, spec.group, situation.kv_len

    def visible(b: int, h: int, q_idx: int) -> list[bool]:
        return row(kv_len, b, h, h // group, q_idx, q_idx + shift, spec.head_dim_qk, *constants)

    return visible
