"""The operator in torch's world: opcheck, fake tensors, compile, export, gradients, autocast."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from attnc.runtime.loader import load
from attnc.verify.reference import dense
from tests.faults.judge import Build, Built, inputs

FULL = (
    "head_dim: {qk: 16, v: 24}\n"
    "params: {width: {type: int, default: 5}, tau: {type: float, default: 1}}\n"
    "tensors: {bias: {shape: [heads, q_len, kv_len]}}\n"
    "mask: sliding_window(width)\nscore: score * tau + bias[h, q_idx, kv_idx]"
)
PLAIN = "outputs: []\nmask: causal"
LAYOUT = "layout: bshd\nhead_dim: {qk: 16, v: 24}\nmask: causal"
SPECS = pytest.mark.parametrize("body", [FULL, PLAIN, LAYOUT], ids=["full", "plain", "bshd"])
MODES = pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "dense"])


def arguments(
    built: Built, q_len: int = 9, kv_len: int = 12
) -> tuple[list[Tensor], dict[str, Tensor]]:
    extra = {"bias": torch.randn(2, q_len, kv_len)} if built.spec.tensors else {}
    call = inputs(built.spec, q_len, kv_len, batch=2, **extra)
    return [call.tensors[name] for name in "qkv"], extra


def operator_arguments(built: Built) -> tuple[object, ...]:
    qkv, extra = arguments(built)
    params = [param.default for param in built.spec.params]
    floats = [param for param in built.spec.params if param.kind == "float"]
    tensors = (*qkv, *extra.values(), *(None for _ in (*floats, "scale")))
    schedule = [16, 16, *[-1] * (len(built.module.FIELDS) - 2)]
    return (*tensors, *params, 0.25, schedule)


@SPECS
@MODES
def test_i01_opcheck(build: Build, body: str, interpret: bool) -> None:
    built = build(body, interpret)
    torch.library.opcheck(built.module.operator, operator_arguments(built))


@SPECS
def test_i01_fake_results_have_the_shapes_dtypes_and_strides_of_real_ones(
    build: Build, body: str
) -> None:
    built = build(body)
    qkv, extra = arguments(built)
    real = built.module.attention(*qkv, **extra, return_aux=True)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(tensor) for tensor in qkv]
        fake = built.module.attention(
            *fakes, **{name: mode.from_tensor(t) for name, t in extra.items()}, return_aux=True
        )
    for made, kept in zip((fake[0], *fake[1]), (real[0], *real[1]), strict=True):
        assert (made.shape, made.dtype, made.stride()) == (kept.shape, kept.dtype, kept.stride())


@SPECS
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_i01_compiles_without_a_graph_break(build: Build, body: str, backend: str) -> None:
    built = build(body, False)
    torch._dynamo.reset()
    compiled = torch.compile(built.module.attention, fullgraph=True, backend=backend)
    for q_len, kv_len in ((9, 12), (5, 12), (7, 20), (1, 1)):  # other lengths, too
        qkv, extra = arguments(built, q_len, kv_len)
        with torch.no_grad():
            torch.testing.assert_close(
                compiled(*qkv, **extra), built.module.attention(*qkv, **extra)
            )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_i01_numbers_in_tensors_compile_without_a_graph_break(build: Build, backend: str) -> None:
    """Their values are checked when the operator runs."""
    built = build(FULL, False)
    qkv, extra = arguments(built)
    torch._dynamo.reset()
    attention = built.module.attention
    compiled = torch.compile(attention, fullgraph=True, backend=backend)
    for tau, scale in ((2.0, 0.5), (-1.0, 0.25)):
        given = {"tau": torch.tensor(tau), "scale": torch.tensor(scale)}
        expected = attention(*qkv, **extra, tau=tau, scale=scale)
        torch.testing.assert_close(compiled(*qkv, **extra, **given), expected)
    with pytest.raises(ValueError) as caught:
        compiled(*qkv, **extra, tau=torch.tensor(torch.nan))
    assert str(caught.value) == "sample: tau must be finite in float32, not nan"


def test_i01_a_default_scale_of_the_lengths_compiles(build: Build) -> None:
    built = build("scale: tau / log(kv_len + 1)\nparams: {tau: {type: float, default: 1}}", False)
    compiled = torch.compile(built.module.attention, fullgraph=True, backend="eager", dynamic=True)
    for kv_len in (5, 8, 0):
        qkv, _ = arguments(built, 4, kv_len)
        expected = built.module.attention(*qkv, tau=2.0)
        torch.testing.assert_close(compiled(*qkv, tau=torch.tensor(2.0)), expected)


def test_i01_the_graph_holds_one_opaque_operator(build: Build) -> None:
    built = build(PLAIN, False)
    qkv, _ = arguments(built)

    class Layer(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return built.module.attention(q, k, v)

    length = torch.export.Dim("length", min=2, max=64)
    dims = ({2: length}, {2: length}, {2: length})
    same = [tensor[:, :, :9].contiguous() for tensor in qkv]
    with torch.no_grad():
        program = torch.export.export(Layer(), tuple(same), dynamic_shapes=dims)
        calls = [node for node in program.graph.nodes if "attnc" in str(node.target)]
        assert len(calls) == 1
        longer = [torch.randn(2, t.shape[1], 31, 16) for t in same]
        torch.testing.assert_close(program.module()(*longer), built.module.attention(*longer))


def test_two_copies_in_one_process(build: Build) -> None:
    built = build(PLAIN)
    other = load(
        built.module.__file__ and __import__("pathlib").Path(built.module.__file__), interpret=True
    )
    qkv, _ = arguments(built)
    assert torch.equal(other.attention(*qkv), built.module.attention(*qkv))
    assert other.operator._qualname != built.module.operator._qualname


@MODES
def test_a_gradient_is_refused_by_name(build: Build, interpret: bool) -> None:
    built = build("backward: false", interpret)
    qkv, _ = arguments(built)
    out = built.module.attention(*(tensor.requires_grad_() for tensor in qkv))
    with pytest.raises(NotImplementedError) as caught:
        out.sum().backward()
    assert str(caught.value) == (
        "sample: the spec says `backward: false`; call it under torch.no_grad()"
    )
    with torch.no_grad():
        assert not built.module.attention(*qkv).requires_grad


@MODES
def test_a_gradient_of_a_scalar_is_refused_by_name(build: Build, interpret: bool) -> None:
    built = build(PLAIN, interpret)
    qkv, _ = arguments(built)
    scale = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(NotImplementedError, match="backward: false"):
        built.module.attention(*qkv, scale=scale).sum().backward()
    with torch.no_grad():
        out = built.module.attention(*qkv, scale=scale)
    assert torch.equal(out, built.module.attention(*qkv, scale=0.5))


@MODES
def test_autocast_changes_nothing(build: Build, interpret: bool) -> None:
    built = build(PLAIN, interpret)
    qkv, _ = arguments(built)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = built.module.attention(*qkv)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, built.module.attention(*qkv))


@SPECS
def test_the_modules_own_reference_is_right(build: Build, body: str) -> None:
    """In float64, too; and it is differentiable."""
    built = build(body, False)
    extra = {"bias": torch.randn(2, 9, 12)} if built.spec.tensors else {}
    call = inputs(built.spec, 9, 12, batch=2, **extra)
    q, k, v = (call.tensors[name].double().requires_grad_() for name in "qkv")
    out = built.module.reference(q, k, v, **extra)
    torch.testing.assert_close(out, dense(call).out, rtol=1e-6, atol=1e-7)
    out.sum().backward()
    assert q.grad is not None and q.grad.isfinite().all()
