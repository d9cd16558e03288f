"""The functions of a formula, in the interpreter.

Floors as in Python, and few ulp over the whole float32 range.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.faults.judge import Build, agree, inputs

Exact = Callable[[np.ndarray], np.ndarray]
ULP = 2.0**-23
SMALLEST_NORMAL = 2.0**-126


def through(
    build: Build, score: str, raw: np.ndarray, dtype: torch.dtype = torch.float32
) -> np.ndarray:
    """score(raw) as the kernel computes it: one query against one key, whose lse is the score."""
    module = build(f"heads: 1\nhead_dim: 16\nscore: {score}").module
    q = torch.zeros(1, 1, len(raw), 16, dtype=dtype)
    q[0, 0, :, 0] = torch.from_numpy(raw).to(dtype)
    k = torch.zeros(1, 1, 1, 16, dtype=dtype)
    k[..., 0] = 1
    with np.errstate(all="ignore"):
        _, aux = module.attention(
            q, k, k, scale=1.0, return_aux=True, schedule={"block_q": 256, "block_kv": 16}
        )
    return aux.lse[0, 0].double().numpy()


def spread(low: float, high: float, count: int = 1500) -> np.ndarray:
    """Magnitudes spaced evenly in their logarithm, both signs where low is 0."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], count) if low == 0 else np.ones(count)
    values = np.geomspace(low or 1e-30, high, count) * signs
    return values.astype(np.float32).astype(np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


WHOLE_RANGE: dict[str, tuple[Exact, np.ndarray]] = {
    "tanh(score)": (np.tanh, spread(0, 3e38)),
    "sigmoid(score)": (sigmoid, spread(0, 3e38)),
    "exp(score)": (np.exp, np.clip(spread(0, 3e38), None, 88.5)),
    "exp(-abs(score))": (lambda x: np.exp(-np.abs(x)), spread(0, 150)),
    "log(score)": (np.log, spread(2e-38, 3e38)),
    "log(score + 1)": (lambda x: np.log((x + 1).astype(np.float32).astype(np.float64)),
        spread(1e-6, 1e6)),
    "sqrt(score)": (np.sqrt, spread(2e-38, 3e38)),
    "3 ** score": (lambda x: 3.0**x, np.clip(spread(0, 3e38), None, 80.5)),
    "0.7 ** score": (lambda x: 0.7**x, np.clip(spread(0, 3e38), -240, None)),
    "1.0001 ** score": (lambda x: 1.0001**x, np.clip(spread(0, 3e38), None, 8e5)),
    "8 ** score": (lambda x: 8.0**x, np.clip(spread(0, 3e38), None, 42.5)),
    "4 ** score": (lambda x: 4.0**x, np.clip(spread(0, 3e38), None, 63.5)),
    "score ** 0.3": (lambda x: x**0.3, spread(2e-38, 3e38)),
    "score ** (5 / 3)": (lambda x: x ** (5 / 3), spread(1e-20, 1e20)),
    "score ** -0.7": (lambda x: x**-0.7, spread(2e-38, 3e38)),
}  # fmt: skip


@pytest.mark.parametrize("score", WHOLE_RANGE)
def test_float32_is_good_to_4_ulp(build: Build, score: str) -> None:
    exact, raw = WHOLE_RANGE[score]
    got, expected = through(build, score, raw), exact(raw)
    assert np.isfinite(got).all()
    ulps = np.abs(got - expected) / np.maximum(np.abs(expected) * ULP, SMALLEST_NORMAL)
    assert ulps.max() <= 4, raw[ulps.argmax()]


def test_logarithms_around_one(build: Build) -> None:
    raw = (1 + np.linspace(-0.4, 0.5, 1001)).astype(np.float32).astype(np.float64)
    got, expected = through(build, "log(score)", raw), np.log(raw)
    assert (np.abs(got - expected) <= 4 * ULP * np.abs(expected)).all()


@pytest.mark.parametrize("score", WHOLE_RANGE)
def test_half_inputs_may_use_cheaper_forms(build: Build, score: str) -> None:
    exact, raw = WHOLE_RANGE[score]
    raw = np.clip(raw, -6e4, 6e4).astype(np.float16).astype(np.float64)
    raw = np.unique(raw[(raw > 1e-7) | ("log" not in score and "** -" not in score)])
    raw = np.minimum(raw, 88.0) if score == "exp(score)" else raw
    got, expected = through(build, score, raw, torch.float16), exact(raw)
    assert np.isfinite(got).all()
    assert (np.abs(got - expected) <= 2.0**-11 * np.abs(expected) + 1e-6).all()


@pytest.mark.parametrize("step", [-7, -3, -1, 1, 2, 3, 16, 2**29])
def test_floors_of_whole_numbers(build: Build, step: int) -> None:
    module = build(
        "heads: 1\nparams: {my_step: {type: int}, part: {type: int}}\n"
        "check: [{my_step: 1, part: 0}]\n"
        "score: 0 * score + where(part == 0, (q_pos - 20) // my_step, (q_pos - 20) % my_step)"
    ).module
    q, k = torch.zeros(1, 1, 90, 16), torch.zeros(1, 1, 41, 16)
    distance = np.arange(90) + 41 - 90 - 20  # q_pos runs from below 0
    for part, exact in ((0, np.floor_divide), (1, np.mod)):
        _, aux = module.attention(q, k, k, my_step=step, part=part, return_aux=True)
        expected = exact(distance, step) + np.log(41)
        np.testing.assert_allclose(aux.lse[0, 0].double().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("divisor", [3, -3, 16])
def test_floors_by_a_constant(build: Build, divisor: int) -> None:
    module = build(
        f"heads: 1\nscore: ((q_pos - kv_idx) // {divisor}) * 1000 + (q_pos - kv_idx) % {divisor}"
    ).module
    q, k = torch.zeros(1, 1, 40, 16), torch.zeros(1, 1, 1, 16)
    _, aux = module.attention(q, k, k, return_aux=True)
    distance = np.arange(40) + 1 - 40
    expected = distance // divisor * 1000 + distance % divisor
    np.testing.assert_allclose(aux.lse[0, 0].double().numpy(), expected, rtol=1e-6)


def test_floors_of_reals(build: Build) -> None:
    raw = np.array([-7.5, -5.0, -2.5, -2.4, -0.1, 0.0, 0.1, 2.4, 2.5, 4.9, 5.0, 1000.3])
    raw = raw.astype(np.float32).astype(np.float64)
    got = through(build, "(score // 2.5) * 1.0", raw)
    np.testing.assert_array_equal(got, np.floor(raw / 2.5))
    got = through(build, "score % 2.5", raw)
    np.testing.assert_allclose(got, np.mod(raw, 2.5), atol=1e-4)


OF_A_CALL = (
    "exp(t) + log(t) + tanh(t) + sigmoid(t) + sqrt(t) + abs(t) + relu(t)",
    "t**2 + t**-3 + max(t, 1) + min(t, n) + exp2(t) + log2(t) + 1 / t + where(t > 1, t, 2)",
    (
        "t % 2.5 + (t // 0.4) * 1.0 + n % 3 + n // 3 + log(n) + exp(n / 9) + abs(n) "
        "+ where(n > 9, t, 2)"
    ),
    (
        "log(kv_len) + sqrt(q_len) + tanh(h) + log(1 + h) + exp(-b) + log(1 + q_idx) "
        "+ exp(-kv_idx / 4)"
    ),
)


@pytest.mark.parametrize("factor", OF_A_CALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_functions_of_what_is_one_number_a_call(
    build: Build, factor: str, dtype: torch.dtype
) -> None:
    """A scalar is no tile: the interpreter hands it over as a Python number."""
    built = build(
        "params: {t: {type: float, default: 1.7}, n: {type: int, default: 5}}\n"
        f"score: score * ({factor}) / 9 + t / n"
    )
    agree(built, inputs(built.spec, 3, 9, batch=2, dtype=dtype))
