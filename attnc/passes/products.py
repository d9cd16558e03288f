"""Contractions as dots."""

from __future__ import annotations

from dataclasses import replace

from attnc.ir.nodes import Contract, Dot, Let


def as_dot(let: Let) -> Let:
    """A contraction of what is held with what is walked: one instruction of the matrix units."""
    if not isinstance(let.value, Contract):
        return let
    (over,) = let.value.over
    return replace(let, value=Dot(let.value.left, let.value.right, over))
