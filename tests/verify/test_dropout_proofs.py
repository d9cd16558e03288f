"""The share of each weight is proved: what drops others, or counts them otherwise, is refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sympy import Basic, Float, Symbol

from attnc import symbols
from attnc.driver import lower_spec
from attnc.ir.nodes import Kernel, Program
from attnc.ir.rebuild import map_stmt
from attnc.spec import parse_spec
from attnc.symbols import Random, Where
from attnc.verify.formulas import check_formulas
from attnc.verify.obligations import Obligation
from attnc.verify.switches import settled

SPEC = parse_spec(
    "name: sample\nheads: {q: 4, kv: 2}\nhead_dim: 16\nmask: causal\ndropout: true\n"
    "outputs: [lse]\nbackward: false\n"
)
SHARE, OUT = "the share of each weight is the spec's", "out['e_idx'] is the spec's"


def judged(change: Callable[[Basic], Any] = lambda formula: formula) -> list[Obligation]:
    """What is shown of the forward kernel with its formulas changed."""
    program = lower_spec(SPEC)
    return [
        replace(one, name=f"{calls}: {one.name}")
        for calls, spec, variant in settled(
            SPEC, replace(program, kernels=(_changed(program, change),))
        )
        for one in check_formulas(spec, variant)
    ]


def _changed(program: Program, change: Callable[[Basic], Any]) -> Kernel:
    (kernel,) = program.kernels
    return replace(kernel, body=tuple(map_stmt(stmt, change) for stmt in kernel.body))


def test_dropout_is_proved_in_calls_with_and_without_a_seed() -> None:
    found = judged()
    assert {one.status for one in found} == {"proved"}
    assert {one.name.split(": ")[0] for one in found} == {
        "with dropout_seed", "without dropout_seed",
    }  # fmt: skip


def _chosen(new: Callable[[Any], Any]) -> Callable[[Basic], Any]:
    """Replace the select of a weight by its random number."""

    def is_select(part: Basic) -> bool:
        return isinstance(part, Where) and part.args[0].has(Random)

    return lambda formula: formula.replace(is_select, lambda part: new(part))


def _random(new: Callable[..., Any]) -> Callable[[Basic], Any]:
    return lambda formula: formula.replace(Random, new)


KEPT, P = (Symbol(name, real=True) for name in ("kept", "p"))
FAULTS: dict[str, tuple[str, Callable[[Basic], Any]]] = {
    "nothing is dropped": (SHARE, _chosen(lambda part: Float(1))),
    "the others are dropped": (SHARE, _chosen(lambda p: Where(p.args[0], p.args[2], p.args[1]))),
    "one number more is dropped": (
        SHARE, _chosen(lambda p: Where(p.args[0].lhs > p.args[0].rhs, *p.args[1:])),
    ),
    "batch and head change places": (
        SHARE, _random(lambda seed, b, h, q, k: Random(seed, h, b, q, k)),
    ),
    "the key's head in place of the query's": (
        SHARE, _random(lambda seed, b, h, q, k: Random(seed, b, symbols.h_kv, q, k)),
    ),
    "positions within the tile": (
        SHARE, _random(lambda seed, b, h, q, k: Random(seed, b, h, Symbol("q_in_tile"), k)),
    ),
    "the output alone forgets the mask": (
        SHARE, lambda f: P if f == KEPT * P else f,
    ),
    "kept weights keep their size": (
        OUT, lambda f: f.subs(symbols.dropout_factor, 1) if f.has(symbols.dropout_factor) else f,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("claim", "change"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_mask_is_refuted(claim: str, change: Callable[[Basic], Any]) -> None:
    refuted = [one.name for one in judged(change) if one.status == "refuted"]
    assert any(name.endswith(claim) for name in refuted)
    assert all(name.startswith("with ") for name in refuted)
