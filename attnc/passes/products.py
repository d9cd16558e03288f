"""Contractions as dots, or as products and their sums."""

from __future__ import annotations

from dataclasses import replace

from attnc.ir.functions import tile_symbol
from attnc.ir.nodes import Collapse, Contract, Dot, Formula, Let


def products(let: Let, varies: dict[str, frozenset[str]]) -> list[Let]:
    """A contraction as a dot, or, where both sides have the rows, as a product and its sum."""
    value = let.value
    if not isinstance(value, Contract) or not varies[value.left] & varies[value.right] - {
        *value.over
    }:
        return [replace(let, value=_dot(value))]
    (over,) = value.over
    product = f"{let.name}_terms"
    terms = tile_symbol(value.left) * tile_symbol(value.right)
    return [
        Let(product, Formula(terms), (*let.axes, over)),
        replace(let, value=Collapse("sum", product, over)),
    ]


def _dot(value: object) -> object:
    if isinstance(value, Contract):
        (over,) = value.over
        return Dot(value.left, value.right, over)
    return value
