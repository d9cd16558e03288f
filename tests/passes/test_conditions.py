"""How far conditions are taken apart: what doubles with each choice has an end."""

from __future__ import annotations

from typing import cast

import pytest
from sympy.logic.boolalg import Boolean

from attnc.passes.affine import Affine, affine
from attnc.passes.conditions import All, Condition, Either, Opaque, Reader
from attnc.spec import parse_spec
from attnc.symbols import kv_idx, q_idx

VARYING = frozenset({"q_idx", "kv_idx"})


def read(mask: str) -> Condition:
    spec = parse_spec(f"heads: 2\nhead_dim: 16\nmask: {mask}\n")
    return Reader(VARYING).read(cast(Boolean, spec.mask))


def leaves(condition: Condition) -> list[Condition]:
    if not isinstance(condition, All | Either):
        return [condition]
    return [leaf for part in condition.parts for leaf in leaves(part)]


@pytest.mark.parametrize("choice", ["abs(kv_idx - {})", "where(kv_idx > {}, q_idx, 1)"])
@pytest.mark.parametrize("join", [" + ", " * "])
def test_many_choices_are_opaque_and_few_are_not(choice: str, join: str) -> None:
    few, many = (join.join(choice.format(i + 1) for i in range(n)) + " < 40" for n in (3, 16))
    assert len(leaves(read(few))) >= 2**3
    assert read(many) == Opaque()


def test_what_stands_beside_an_opaque_condition_still_bounds() -> None:
    many = " + ".join(f"abs(kv_idx - {i})" for i in range(16)) + " < 40"
    found = read(f"causal & ({many})")
    assert isinstance(found, All)
    assert sum(part == Opaque() for part in found.parts) == 1
    assert len(found.parts) == 2


def test_a_long_product_is_an_atom_and_a_short_one_a_sum() -> None:
    short = (kv_idx - q_idx) * (kv_idx + q_idx)
    assert affine(short) == Affine({kv_idx**2: 1, q_idx**2: -1})
    long = short
    for n in range(20):
        long *= kv_idx - n * q_idx + n + 1
    assert affine(long) == Affine({long: 1})
