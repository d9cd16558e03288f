"""Specs, and programs lowered from them, for explain's tests."""

from __future__ import annotations

from functools import cache

from attnc.driver import lower_spec
from attnc.ir.nodes import Program
from attnc.spec import parse_spec
from attnc.spec.schema import AttentionSpec

PLAIN = "name: tiny\nheads: {q: 4, kv: 2}\n"


def spec(text: str = "") -> AttentionSpec:
    """A small spec with more lines of YAML."""
    size = "" if "head_dim" in text else "head_dim: 64\n"
    return parse_spec(PLAIN + size + text, "tiny.yaml")


@cache
def lowered(text: str = "") -> tuple[AttentionSpec, Program]:
    """A spec and its READY program; lowered once, since many tests ask for the same."""
    made = spec(text)
    return made, lower_spec(made)
