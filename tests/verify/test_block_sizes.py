"""A claim is proved for every shape of a tile, and no more often than it must be."""

from __future__ import annotations

from typing import Any

import pytest

from attnc.ir.nodes import BLOCK_KV, BLOCK_Q
from attnc.verify import proofs
from attnc.verify.claims import Claim
from attnc.verify.meaning import Meaning, Place, Subject
from attnc.verify.obligations import Obligation
from tests.verify import kernels

SPEC, (KERNEL,) = kernels.attention_spec(), kernels.ready().kernels
SIZES = (16, 32, 64)
SHAPES: list[proofs.Blocks] = [(rows, keys) for rows in SIZES for keys in SIZES]
Build = Any


def tried(build: Build, monkeypatch: pytest.MonkeyPatch) -> tuple[Obligation, list[proofs.Blocks]]:
    """The outcome of a claim over all shapes, and those for which it was proved."""
    at: list[proofs.Blocks] = []
    prove_claim = proofs.prove_claim

    def watched(claim: Claim, subject: Subject, *rest: Any) -> Obligation:
        at.append((subject.block_q, subject.block_kv))
        return prove_claim(claim, subject, *rest)

    monkeypatch.setattr(proofs, "prove_claim", watched)
    return proofs._over_shapes(Claim("a claim", build), SPEC, KERNEL, SHAPES), at


def test_a_claim_that_reads_one_size_is_proved_once_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rows_exist(m: Meaning) -> Any:
        return m.formula(BLOCK_Q, Place({})) > 0

    found, at = tried(rows_exist, monkeypatch)
    assert found.status == "proved"
    assert at == [(16, 16), (32, 16), (64, 16)]


def test_a_claim_that_reads_none_is_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, at = tried(lambda m: m.pick("q_len") >= 0, monkeypatch)
    assert (found.status, at) == ("proved", [(16, 16)])


def test_a_claim_that_fails_at_one_shape_is_refuted_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_not_wide(m: Meaning) -> Any:
        rows, keys = (m.formula(size, Place({})) for size in (BLOCK_Q, BLOCK_KV))
        return m.either(rows >= 64, m.either(keys < 64, rows < 32))

    found, at = tried(is_not_wide, monkeypatch)
    assert found.status == "refuted"
    assert found.detail.startswith("32x64: ") and at[-1] == (32, 64)
