"""Launches are noted as they are, and specialised as Triton's own JIT would."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from attnc.runtime.loader import load_text
from attnc.targets import TARGETS, Target, find_target
from attnc.tune.crosscompile import Launch, NothingLaunched, capture, gpu_target, specialise
from attnc.tune.operands import call_launcher
from tests.tune.conftest import operands

SCHEDULE = {"block_q": 64, "block_kv": 32, "warps": 4, "stages": 2}


@pytest.fixture
def module(source: str) -> ModuleType:
    return load_text(source, "small_attention", interpret=False)


def captured(module: ModuleType) -> Launch:
    call = lambda: call_launcher(module.launch_forward, operands(64), "bf16", SCHEDULE)  # noqa: E731
    (launch,) = capture(module, call)
    return launch


def test_a_launch_is_noted_and_does_not_happen(module: ModuleType) -> None:
    before = module.forward.run
    launch = captured(module)
    assert launch.name == "forward"
    assert launch.options == {"num_warps": 4, "num_stages": 2}
    assert launch.arguments["BLOCK_Q"] == 64
    assert launch.arguments["q_stride_q"] == 64
    assert launch.arguments["q_ptr"].dtype is torch.bfloat16
    assert module.forward.run == before  # the kernel is itself again


def test_a_failing_launcher_leaves_the_kernel_as_it_was(module: ModuleType) -> None:
    def fail() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        capture(module, fail)
    assert "run" not in vars(module.forward)


def test_a_launcher_that_launches_nothing_is_an_error(module: ModuleType) -> None:
    with pytest.raises(NothingLaunched, match="launched no kernel"):
        capture(module, lambda: module.launch_nothing(None, 1.0))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("storage", ["contiguous", "odd", "expanded"])
def test_specialises_as_tritons_own_binder(
    module: ModuleType, target: Target, storage: str
) -> None:
    from triton.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    launch = captured(module)
    arguments = dict(launch.arguments)
    if storage == "odd":
        buffer = torch.empty(2**16, dtype=torch.bfloat16)
        arguments |= {"k_ptr": buffer[1:], "k_stride_k": 65, "k_stride_d": 2, "q_stride_h": 2**31}
    if storage == "expanded":
        arguments |= {"v_stride_h": 0, "v_stride_k": 0, "q_len": 1, "kv_len": 16}
    launch = Launch(launch.kernel, arguments, launch.options)
    kernel, backend = launch.kernel, make_backend(gpu_target(target))
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, found, options = binder(**arguments, **launch.options, debug=False)
    _, signature, constants, attributes = kernel._pack_args(
        backend, {**launch.options, "debug": False}, bound, found, options
    )
    ours = specialise(launch, target)
    assert ours[0] == signature
    assert ours[1] == constants
    assert ours[2] == {place: marks for place, marks in attributes.items() if marks}


def test_amd_marks_tensors_that_buffer_instructions_can_reach(module: ModuleType) -> None:
    marks = specialise(captured(module), find_target("gfx942"))[2]
    assert marks[(0,)] == [["tt.divisibility", 16], ["tt.pointer_range", 32]]
