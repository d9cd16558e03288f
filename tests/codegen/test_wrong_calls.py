"""Every wrong call gives one clear error that names the operand, before anything is launched."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.faults.judge import Build

BODY = (
    "name: sample\nheads: {q: 4, kv: 2}\nhead_dim: {qk: 16, v: 24}\n"
    "score: alibi(score * tau) + bias[h, q_idx, kv_idx]\n"
    "params: {width: {type: int, default: 5}, tau: {type: float, default: 1}}\n"
    "tensors: {bias: {shape: [heads, q_len, kv_len]}}\nmask: sliding_window(width)\n"
    "backward: true"
)


def good() -> dict[str, Any]:
    return {
        "q": torch.zeros(2, 4, 9, 16),
        "k": torch.zeros(2, 2, 12, 16),
        "v": torch.zeros(2, 2, 12, 24),
        "bias": torch.zeros(4, 9, 12),
    }


def long(heads: int, length: int, features: int) -> Tensor:
    """A tensor of great length in no memory."""
    return torch.zeros(1).expand(2, heads, length, features)


Z = torch.zeros
HALF, META = torch.float16, "meta"
LONG = 2**30 + 1
SHAPE = "[batch, heads, length, head_dim]"
TENSORS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no tensor": ({"k": [1.0]}, TypeError, "k must be a tensor, not list"),
    "sparse": ({"k": Z(2, 2, 12, 16).to_sparse()}, TypeError,
        "k must be a dense tensor, not a sparse or nested one"),
    "nested": ({"v": torch.nested.nested_tensor([Z(2, 12, 24)], layout=torch.jagged)}, TypeError,
        "v must be a dense tensor, not a sparse or nested one"),
    "bias sparse": ({"bias": Z(4, 9, 12).to_sparse()}, TypeError,
        "bias must be a dense tensor, not a sparse or nested one"),
    "none": ({"v": None}, TypeError, "v must be a tensor, not NoneType"),
    "q rank": ({"q": Z(4, 9, 16)}, ValueError,
        f"q must have 4 dimensions {SHAPE}, not shape (4, 9, 16)"),
    "v rank": ({"v": Z(1, 2, 2, 12, 24)}, ValueError,
        f"v must have 4 dimensions {SHAPE}, not shape (1, 2, 2, 12, 24)"),
    "q double": ({"q": good()["q"].double()}, TypeError,
        "q must be float16, bfloat16 or float32, not torch.float64"),
    "q int": ({"q": good()["q"].int()}, TypeError,
        "q must be float16, bfloat16 or float32, not torch.int32"),
    "k dtype": ({"k": Z(2, 2, 12, 16, dtype=HALF)}, TypeError,
        "k must have the dtype of q, torch.float32, not torch.float16"),
    "v dtype": ({"v": Z(2, 2, 12, 24, dtype=HALF)}, TypeError,
        "v must have the dtype of q, torch.float32, not torch.float16"),
    "k device": ({"k": Z(2, 2, 12, 16, device=META)}, ValueError,
        "k must be on the device of q, cpu, not on meta"),
    "q dim": ({"q": Z(2, 4, 9, 17)}, ValueError,
        "q must have head dim 16, not 17 (shape (2, 4, 9, 17))"),
    "k dim": ({"k": Z(2, 2, 12, 24)}, ValueError,
        "k must have head dim 16, not 24 (shape (2, 2, 12, 24))"),
    "v dim": ({"v": Z(2, 2, 12, 16)}, ValueError,
        "v must have head dim 24, not 16 (shape (2, 2, 12, 16))"),
    "k batch": ({"k": Z(1, 2, 12, 16)}, ValueError, "k must have the batch of q, 2, not 1"),
    "v batch": ({"v": Z(3, 2, 12, 24)}, ValueError, "v must have the batch of q, 2, not 3"),
    "v length": ({"v": Z(2, 2, 11, 24)}, ValueError,
        "v must have the heads and length of k, (2, 12), not (2, 11)"),
    "v heads": ({"v": Z(2, 1, 12, 24)}, ValueError,
        "v must have the heads and length of k, (2, 12), not (1, 12)"),
    "ratio": ({"q": Z(2, 6, 9, 16)}, ValueError,
        "q must have 2 head(s) for each head of k; q has 6 heads and k has 2"),
    "head count": (
        {"q": Z(2, 2, 9, 16), "k": Z(2, 1, 12, 16), "v": Z(2, 1, 12, 24)},
        ValueError,
        "q must have 4 heads, since a formula of the spec names h; q has 2",
    ),
    "q length": ({"q": long(4, LONG, 16)}, ValueError,
        f"q has length {LONG}; at most 2**30 is supported"),
    "k length": (
        {"k": long(2, LONG, 16), "v": long(2, LONG, 24)},
        ValueError,
        f"k has length {LONG}; at most 2**30 is supported",
    ),
    "bias shape": ({"bias": Z(4, 9, 13)}, ValueError,
        "bias must have shape (4, 9, 12), not (4, 9, 13)"),
    "bias rank": ({"bias": Z(9, 12)}, ValueError, "bias must have shape (4, 9, 12), not (9, 12)"),
    "bias dtype": ({"bias": Z(4, 9, 12, dtype=HALF)}, TypeError,
        "bias must be torch.float32, not torch.float16"),
    "bias device": ({"bias": Z(4, 9, 12, device=META)}, ValueError,
        "bias must be on the device of q, cpu, not on meta"),
    "bias list": ({"bias": [[0.0]]}, TypeError, "bias must be a tensor, not list"),
}  # fmt: skip
SCALARS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "scale bool": ({"scale": True}, TypeError, "scale must be float, not bool"),
    "scale text": ({"scale": "1"}, TypeError, "scale must be float, not str"),
    "scale vector": ({"scale": Z(3)}, TypeError, "scale must be float, not Tensor"),
    "int is float": ({"width": 5.0}, TypeError, "width must be int, not float"),
    "int is bool": ({"width": True}, TypeError, "width must be int, not bool"),
    "int is tensor": ({"width": torch.tensor(5)}, TypeError, "width must be int, not Tensor"),
    "int too large": ({"width": 2**29 + 1}, ValueError,
        "width is 536870913; at most 2**29 in size is supported"),
    "int too small": ({"width": -(2**29) - 1}, ValueError,
        "width is -536870913; at most 2**29 in size is supported"),
    "float bool": ({"tau": False}, TypeError, "tau must be float, not bool"),
    "float none": ({"tau": None}, TypeError, "tau must be float, not NoneType"),
    "scale on meta": ({"scale": torch.tensor(1.0, device=META)}, ValueError,
        "scale is on meta, where it has no value"),
    "float is condition": ({"tau": torch.tensor(True)}, TypeError,
        "tau must be float, not torch.bool"),
    "scale complex": ({"scale": torch.tensor(1j)}, TypeError,
        "scale must be float, not torch.complex64"),
}  # fmt: skip
NUMBERS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "scale nan": ({"scale": math.nan}, ValueError, "scale must be finite in float32, not nan"),
    "scale inf": ({"scale": -math.inf}, ValueError, "scale must be finite in float32, not -inf"),
    "float nan": ({"tau": math.nan}, ValueError, "tau must be finite in float32, not nan"),
    "float too large": ({"tau": 1e39}, ValueError, "tau must be finite in float32, not 1e+39"),
    "infinite tensor": ({"tau": torch.tensor(math.inf)}, ValueError,
        "tau must be finite in float32, not inf"),
}  # fmt: skip
TILES = (16, 32, 64, 128, 256)
SCHEDULES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "field": (
        {"schedule": {"block_m": 64}},
        ValueError,
        "schedule has no field 'block_m'; it may set block_q, block_kv, warps, stages, "
        "skew, tma, last_first, backward_rows, backward_q, backward_kv",
    ),
    "kernel": ({"schedule": {"backward_q": 64}}, TypeError,
        "schedule backward_q must be a mapping, not int"),
    "field of a kernel": (
        {"schedule": {"backward_kv": {"backward_q": {}}}},
        ValueError,
        "schedule backward_kv has no field 'backward_q'; it may set block_q, block_kv, warps, "
        "stages, last_first",
    ),
    "skew": ({"schedule": {"skew": 1}}, ValueError,
        "schedule skew must be one of (False, True), not 1"),
    "skew of a kernel": (
        {"schedule": {"backward_q": {"skew": True}}},
        ValueError,
        "schedule backward_q has no field 'skew'; it may set block_q, block_kv, warps, stages, "
        "tma, last_first",
    ),
    "tile of a kernel": ({"schedule": {"backward_kv": {"block_q": 24}}}, ValueError,
        f"schedule backward_kv block_q must be one of {TILES}, not 24"),
    "tile": ({"schedule": {"block_q": 24}}, ValueError,
        f"schedule block_q must be one of {TILES}, not 24"),
    "float": ({"schedule": {"block_q": 16.0}}, ValueError,
        f"schedule block_q must be one of {TILES}, not 16.0"),
    "text": ({"schedule": {"block_kv": "64"}}, ValueError,
        f"schedule block_kv must be one of {TILES}, not '64'"),
    "warps": ({"schedule": {"warps": 3}}, ValueError,
        "schedule warps must be one of (1, 2, 4, 8, 16), not 3"),
    "zero": (
        {"schedule": {"stages": 0}},
        ValueError,
        "schedule stages must be one of (1, 2, 3, 4, 5, 6, 7, 8), not 0",
    ),
    "none of it": ({"schedule": {"warps": None}}, ValueError,
        "schedule warps must be one of (1, 2, 4, 8, 16), not None"),
    "bool": ({"schedule": {"warps": True}}, ValueError,
        "schedule warps must be one of (1, 2, 4, 8, 16), not True"),
    "list": ({"schedule": {"warps": [4]}}, ValueError,
        "schedule warps must be one of (1, 2, 4, 8, 16), not [4]"),
    "no mapping": ({"schedule": 64}, TypeError, "schedule must be a mapping, not int"),
    "word": ({"schedule": "fast"}, TypeError, "schedule must be a mapping, not str"),
}  # fmt: skip
WRONG = {**TENSORS, **SCALARS, **NUMBERS, **SCHEDULES}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])
def test_a_wrong_call_names_its_operand(build: Build, case: str, interpret: bool) -> None:
    changes, kind, message = WRONG[case]
    built = build(BODY, interpret)
    arguments = good() | changes
    q, k, v = (arguments.pop(name) for name in "qkv")
    with pytest.raises(kind) as caught:
        built.module.attention(q, k, v, **arguments)
    assert str(caught.value) == f"sample: {message}"


@pytest.mark.parametrize("case", [case for case in TENSORS | SCALARS if "double" not in case])
def test_the_reference_refuses_the_same_operands(build: Build, case: str) -> None:
    changes, kind, message = WRONG[case]
    built = build(BODY)
    arguments = good() | changes
    q, k, v = (arguments.pop(name) for name in "qkv")
    with pytest.raises(kind) as caught:
        built.module.reference(q, k, v, **arguments)
    assert str(caught.value) == f"sample: {message}"


def call(build: Build, change: Callable[[dict[str, Any]], Any]) -> str:
    arguments = good()
    change(arguments)
    q, k, v = (arguments.pop(name) for name in "qkv")
    with pytest.raises(TypeError) as caught:
        build(BODY).module.attention(q, k, v, **arguments)
    return str(caught.value)


def test_missing_and_strange_keywords_are_pythons_own_errors(build: Build) -> None:
    assert call(build, lambda a: a.pop("bias")) == (
        "attention() missing 1 required keyword-only argument: 'bias'"
    )
    assert call(build, lambda a: a.update(mask=1)) == (
        "attention() got an unexpected keyword argument 'mask'"
    )


def test_sixteen_layout_words_in_the_message_of_the_other_layout(build: Build) -> None:
    built = build("layout: bshd")
    with pytest.raises(ValueError) as caught:
        built.module.attention(Z(4, 9, 16), Z(2, 12, 1, 16), Z(2, 12, 1, 16))
    expected = "q must have 4 dimensions [batch, length, heads, head_dim], not shape (4, 9, 16)"
    assert str(caught.value) == f"sample: {expected}"


def test_what_is_right_at_the_limits(build: Build) -> None:
    """Lengths and params of exactly the largest size are taken; an int passes as a float."""
    built = build(BODY)
    arguments = good() | {"width": 2**29, "tau": 1, "scale": 2}
    q, k, v = (arguments.pop(name) for name in "qkv")
    assert built.module.attention(q, k, v, **arguments).shape == (2, 4, 9, 24)
    built.module._check(
        *(long(h, 2**30, d) for h, d in ((4, 16), (2, 16), (2, 24))),
        torch.zeros(1).expand(4, 2**30, 2**30),
    )


DIVISIONS = {  # what a formula divides by, as the message says it, and the params that make it 0
    "score: score / x": ("x", {"x": 0}),
    "mask: kv_idx % (2 * n) == 0": ("n", {"n": 0}),
    "mask: kv_idx // (n - 3) == 0": ("n - 3", {"n": 3}),
    "score: score / (n * x - 0.5)": ("n*x - 0.5", {"n": 2, "x": 0.25}),
    "scale: 0.25\nscore: score / log(n)": ("log(n)", {"n": 1}),
    "score: score * (n - d) ** -0.5": ("n - 16", {"n": 16}),
    "score: score + t[kv_idx // (n // 2)]": ("n // 2", {"n": 1}),
}


@pytest.mark.parametrize("formula", DIVISIONS)
@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])
def test_params_do_not_make_a_divisor_zero(build: Build, formula: str, interpret: bool) -> None:
    divisor, params = DIVISIONS[formula]
    kinds = {"n": "{type: int, default: 17}", "x": "{type: float, default: 1.5}"}
    declared = ", ".join(f"{name}: {kinds[name]}" for name in params)
    tensors = "\ntensors: {t: {shape: [kv_len]}}" if "t[" in formula else ""
    module = build(f"heads: 2\n{formula}\nparams: {{{declared}}}{tensors}", interpret).module
    q = torch.ones(1, 2, 4, 16)
    extra = {"t": torch.zeros(4)} if tensors else {}
    for call in (module.attention, module.reference):
        with np.errstate(divide="ignore"):
            assert call(q, q, q, **extra).isfinite().all()
        with pytest.raises(ValueError) as caught:
            call(q, q, q, **extra, **params)
        expected = f"sample: a formula divides by {divisor}, which must not be 0"
        assert str(caught.value) == expected


@pytest.mark.parametrize(("divisor", "x"), [("x", 1e-50), ("x - 1.05", 0.7 * 1.5)])
@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])
def test_a_divisor_is_not_zero_in_float32(
    build: Build, divisor: str, x: float, interpret: bool
) -> None:
    """The kernel sees what the caller's float64 rounds to."""
    formula = f"heads: 1\nscore: score / ({divisor})"
    module = build(f"{formula}\nparams: {{x: {{type: float, default: 2}}}}", interpret).module
    q = torch.ones(1, 1, 4, 16)
    assert module.attention(q, q, q).isfinite().all()
    with pytest.raises(ValueError) as caught:
        module.attention(q, q, q, x=x)
    expected = f"sample: a formula divides by {divisor}, which must not be 0"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("scale", "x"),
    [("1 / log(x)", 1), ("log(x)", -1), ("sqrt(x)", -1), ("exp(x)", 1000), ("x ** 0.3", -1)],
)
def test_a_default_scale_without_a_value_is_refused(build: Build, scale: str, x: float) -> None:
    module = build(f"scale: {scale}\nparams: {{x: {{type: float, default: 2}}}}", False).module
    q = torch.ones(1, 2, 4, 16)
    k = q[:, :1]
    for call in (module.attention, module.reference):
        assert call(q, k, k).isfinite().all()
        assert call(q, k, k, x=x, scale=0.5).isfinite().all()
        with pytest.raises(ValueError) as caught:
            call(q, k, k, x=x)
        formula = scale.replace(" / ", "/").replace(" ", "")
        assert str(caught.value) == (
            f"sample: the default scale {formula} has no finite real value here; give `scale`"
        )


def test_a_default_scale_far_from_zero_and_one(build: Build) -> None:
    module = build("scale: sigmoid(x)\nparams: {x: {type: float, default: -2}}", False).module
    q = torch.ones(1, 2, 4, 16)
    assert module.attention(q, q[:, :1], q[:, :1], x=-1000.0).isfinite().all()
    assert math.isclose(module._default_scale(-50.0), math.exp(-50.0))


def test_more_heads_than_were_proved_are_refused(build: Build) -> None:
    attention = build("heads: 1\nhead_dim: 1\n").module.attention
    q = torch.zeros(1, 1, 1, 1).expand(1, 2**16 + 1, 1, 1)
    with pytest.raises(ValueError) as caught:
        attention(q, q, q)
    assert str(caught.value) == "sample: q has 65537 heads; at most 2**16 are supported"
