"""The rounds of a loop are all that its program sums over beside the tiles, each once.

A kernel of a key/value head goes through the query heads that share it; one that sums pairs into a
tensor through the batch entries, heads and tiles of rows that the tensor lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sympy import Symbol, true

from attnc.ir.nodes import Loop, Rounds
from attnc.verify.claims import Claim, Tiling, digits_of
from attnc.verify.meaning import Meaning, Place
from attnc.verify.output_claims import owns
from attnc.verify.tiles import names_read

Term = Any


def round_claims(tiling: Tiling) -> list[Claim]:
    """One for each loop that has rounds."""
    what = (
        "the query heads of the group" if tiling.owned == true else "all that a program sums over"
    )
    return [
        Claim(
            f"loop {number}: its rounds are {what}, each once",
            lambda m, x=loop: _each_once(tiling, x, m),
            tiling.rounds_bring_rows,
        )
        for number, loop in enumerate(tiling.loops)
        if loop.rounds is not None
    ]


@dataclass(frozen=True)
class _Choice:
    """Any of what a program sums over.

    wanted: its values by the names of indices.  ranges: which values there are.  digits: of its
    round.
    """

    wanted: dict[str, Term] = field(default_factory=dict)
    ranges: dict[str, tuple[Term, Term]] = field(default_factory=dict)
    digits: dict[str, Term] = field(default_factory=dict)

    def add(self, m: Meaning, name: str, low: Term, high: Term, digit: str = "") -> None:
        """Some value of an index, low <= value < high, counted from 0 by a digit."""
        self.wanted[name] = m.pick_between(f"{name} wanted", low, high)
        self.ranges[name] = low, high
        self.digits[digit or name] = self.wanted[name] - low


def _each_once(tiling: Tiling, loop: Loop, m: Meaning) -> Term:
    """Any choice is met in one round and in no other, and every round is of one."""
    assert loop.rounds is not None
    place = tiling.instance(m)
    extents = {n: m.formula(extent, place) for n, extent in digits_of(loop.rounds).items()}
    choice = _choice(tiling, loop.rounds, m, place)
    if extents.keys() != choice.digits.keys():
        return False

    def there(digits: Mapping[str, Term]) -> Place:
        return tiling.round_of(m, loop, place, digits)

    def is_met(digits: Mapping[str, Term]) -> Term:
        found, row = there(digits), tiling.rows.index.name
        same = [found.at[n] == value for n, value in choice.wanted.items() if n != row]
        if row in choice.wanted:
            same.append(owns(tiling.rows, m, found.moved(**{row: choice.wanted[row]})))
        return m.both(*same)

    inside = (m.between(0, choice.digits[name], extent) for name, extent in extents.items())
    rounds = [
        {name: m.pick_between(f"{name} {n}", 0, extent) for name, extent in extents.items()}
        for n in (1, 2)
    ]
    same = m.both(*(rounds[0][name] == rounds[1][name] for name in extents))
    once = m.implies(m.both(*map(is_met, rounds)), same)
    some = there(rounds[0])
    proper = (m.between(low, some.at[n], high) for n, (low, high) in choice.ranges.items())
    return m.both(*inside, is_met(choice.digits), once, *proper)


def _choice(tiling: Tiling, rounds: Rounds, m: Meaning, place: Place) -> _Choice:
    """Any batch entry, head and row that the program does not fix."""
    choice = _Choice()
    if tiling.rounds_bring_rows:  # a tile may hold rows past the end, which count nowhere
        rows = tiling.rows
        row = choice.wanted[rows.index.name] = m.pick_between("row", 0, m.formula(rows.size, place))
        tile, length = m.pick("tile of the row"), m.formula(rows.tile, place)
        m.given(m.between(0, row - tile * length, length))
        first = next(let.value for let in rounds.lets if let.name == str(rows.first))
        for digit in digits_of(rounds):
            if digit in names_read(first):
                choice.digits[digit] = tile
    if "h" not in place.at and "h_kv" in place.at:
        group = m.subject.spec.group
        first_head = place.at["h_kv"] * group
        choice.add(m, "h", first_head, first_head + group, "member")
    for name, size in (("h", "heads"), ("b", "batch")):
        if name not in {**place.at, **choice.wanted}:
            choice.add(m, name, 0, m.formula(Symbol(size, integer=True), place))
    return choice
