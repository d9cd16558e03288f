"""What the tests of the tuner compile: one small module, and the operands of its launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnc.tune.operands import ELEMENT, Operand, Operands

SMALL = Path(__file__).parent / "small_attention.py"


def operands(head_dim: int) -> Operands:
    shape = (1, 8, 4096, head_dim)
    tensors = tuple(Operand(name, shape, ELEMENT) for name in "qkv")
    return Operands(tensors, (("scale", 0.125), ("unused", 3)))


@pytest.fixture
def source() -> str:
    return SMALL.read_text(encoding="utf-8")
