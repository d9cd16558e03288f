"""How loops count, as text."""

from __future__ import annotations

import pytest
from sympy import Expr, Integer, Symbol

from attnc.codegen.counting import Counting, count_tiles
from attnc.codegen.texts import Name
from attnc.codegen.triton_text import TritonText
from attnc.ir.nodes import Loop, Piece, Rounds

LO, MID, HI, END, N = (Symbol(name, integer=True) for name in ("lo", "mid", "hi", "end", "n"))
MEMBER = Symbol("member", integer=True)
NAMES = {name: Name(name, (), True) for name in ("lo", "mid", "hi", "end", "n", "step", "steps_1")}


def counted(*ends: tuple[Expr, Expr], joined: bool = True) -> list[str]:
    pieces = tuple(Piece(start, stop) for start, stop in ends)
    loop = Loop("q", pieces, (), rounds=Rounds(MEMBER, Integer(4), (), joined=joined))
    found: Counting = count_tiles(loop, TritonText(NAMES, {}))
    lines = [*found.before, *found.turn, *found.hop]
    return [found.head, *(line.text for line in lines)]


def test_a_range() -> None:
    assert counted((LO, HI), joined=False) == ["for tile in range(lo, hi):"]


def test_ranges_run_as_one() -> None:
    assert counted((LO, MID), (HI, END), joined=False) == [
        "for step in range(0, steps_2):",
        "steps_1 = tl.maximum(mid - lo, 0)",
        "steps_2 = steps_1 + tl.maximum(end - hi, 0)",
        "tile = lo + step if step < steps_1 else hi + step - steps_1",
    ]


@pytest.mark.parametrize(
    ("start", "stop", "lines"),
    [
        (
            LO,
            HI,
            [
                "for turn in range(0, 4 * steps):",
                "steps = hi - lo",
                "tile = lo + turn % steps",
                "member = turn // steps",
            ],
        ),
        (
            Integer(0),
            HI,
            ["for turn in range(0, 4 * hi):", "tile = turn % hi", "member = turn // hi"],
        ),
        (
            LO + 1,
            HI - N,
            [
                "for turn in range(0, 4 * steps):",
                "steps = (hi - n) - (lo + 1)",
                "tile = (lo + 1) + turn % steps",
                "member = turn // steps",
            ],
        ),
    ],
)
def test_a_range_joined_with_its_rounds(start: Expr, stop: Expr, lines: list[str]) -> None:
    assert counted((start, stop)) == lines


def test_ranges_joined_with_their_rounds() -> None:
    assert counted((LO, MID), (HI, END)) == [
        "for turn in range(0, 4 * steps_2):",
        "steps_1 = tl.maximum(mid - lo, 0)",
        "steps_2 = steps_1 + tl.maximum(end - hi, 0)",
        "step = turn % steps_2",
        "member = turn // steps_2",
        "tile = lo + step if step < steps_1 else hi + step - steps_1",
    ]
