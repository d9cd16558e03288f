"""The interpreter runs programs of every level and notices what a GPU would not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sympy import true

from attnc.ir.nodes import Let, Load, Loop, Program, Store
from attnc.verify.interpreter import OutOfBounds, Visit, run
from tests.verify import kernels

PROGRAMS = {
    "naive": kernels.naive(),
    "streamed": kernels.streamed(),
    "ready": kernels.ready(),
    "within tiles": kernels.within_tiles(),
}
CALL = {"scale": 0.25, "scale_sign": 1}
SIZES = [(1, 1), (16, 16), (33, 50), (50, 33), (5, 0), (7, 64)]


def dense(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> dict[str, np.ndarray]:
    """Causal attention, written down once more."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    t = scale * np.einsum("bhqd,bhkd->bhqk", q, k)
    rows, keys = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None, :]
    t = np.where(keys <= rows + k.shape[2] - q.shape[2], t, -np.inf)
    with np.errstate(all="ignore"):
        lse = np.log(np.exp(t).sum(-1))
        p = np.where(np.isneginf(t), 0.0, np.exp(t - lse[..., None]))
    return {"out": np.einsum("bhqk,bhke->bhqe", p, v), "lse": lse}


def tensors(q_len: int, kv_len: int, batch: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(q_len * 1000 + kv_len)
    q = rng.normal(size=(batch, kernels.HEADS, q_len, kernels.WIDTH))
    k, v = (rng.normal(size=(batch, kernels.KV_HEADS, kv_len, kernels.WIDTH)) for _ in "kv")
    return {"q": q, "k": k, "v": v}


def edit(program: Program, change) -> Program:
    """The program with every statement, loop bodies included, replaced by change(statement)."""

    def one(statement):
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(change(let) for let in statement.body))
        return change(statement)

    kernel = program.kernels[0]
    return replace(program, kernels=(replace(kernel, body=tuple(map(one, kernel.body))),))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("level", PROGRAMS)
def test_gives_attention(level: str, sizes: tuple[int, int]) -> None:
    data = tensors(*sizes)
    got = run(PROGRAMS[level], data, CALL, (32, 16))
    expected = dense(**data, scale=0.25)
    for name in ("out", "lse"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-12, atol=1e-14, err_msg=name)


def test_the_tile_shape_does_not_matter() -> None:
    data = tensors(45, 70, batch=1)
    small = run(PROGRAMS["ready"], data, CALL, (16, 32))
    large = run(PROGRAMS["ready"], data, CALL, (64, 16))
    np.testing.assert_allclose(small["out"], large["out"], rtol=1e-12)


def test_counts_the_tiles_it_visits() -> None:
    visits: list[Visit] = []
    run(PROGRAMS["ready"], tensors(64, 64, batch=1), CALL, (32, 16), visits)
    first_head = [visit for visit in visits if visit.instance[1:] == (0, 0)]
    assert [(v.instance[0], v.tile, v.masked) for v in first_head] == [
        (0, 0, True),
        (0, 1, True),
        (1, 0, False),
        (1, 1, False),
        (1, 2, True),
        (1, 3, True),
    ]


def test_a_read_past_the_end_is_an_error() -> None:
    def unguard(statement):
        if isinstance(statement, Let) and isinstance(statement.value, Load):
            return replace(statement, value=replace(statement.value, guard=true))
        return statement

    with pytest.raises(OutOfBounds, match=r"^q\[0, 0, 5, 0\] of shape"):
        run(edit(PROGRAMS["ready"], unguard), tensors(5, 5), CALL, (16, 16))


def test_a_write_past_the_end_is_an_error() -> None:
    def unguard(statement):
        return replace(statement, guard=true) if isinstance(statement, Store) else statement

    with pytest.raises(OutOfBounds, match=r"^out\[0, 0, 5, 0\] of shape"):
        run(edit(PROGRAMS["ready"], unguard), tensors(5, 5), CALL, (16, 16))


def test_what_is_never_stored_stays_nan() -> None:
    program = PROGRAMS["ready"]
    kernel = program.kernels[0]
    body = tuple(s for s in kernel.body if not (isinstance(s, Store) and s.buffer == "lse"))
    silent = replace(program, kernels=(replace(kernel, body=body),))
    assert np.isnan(run(silent, tensors(5, 5), CALL)["lse"]).all()


def test_a_poisoned_key_that_no_row_sees_reaches_no_result() -> None:
    data = tensors(40, 20)  # rows 0 .. 19 see nothing
    data["q"][:, :, :20] = np.nan
    got = run(PROGRAMS["ready"], data, CALL, (16, 16))
    assert np.isfinite(got["out"][:, :, 20:]).all()


def test_a_shape_that_does_not_fit_is_an_error() -> None:
    data = tensors(5, 5)
    data["v"] = data["v"][:, :, :4]
    with pytest.raises(ValueError, match=r"^v has shape"):
        run(PROGRAMS["ready"], data, CALL)
