"""What tiles of the backward read of a row is made once a row, and a hidden pair's weight is 0."""

from __future__ import annotations

import pytest

from attnc.ir.formula_text import formula_text
from attnc.ir.nodes import Formula, Kernel, Let, Load, Loop
from attnc.ir.rebuild import lets_of
from attnc.passes.order import PIPELINE
from tests.plan.test_gradients import backward_of, program_of


def kernels_of(body: str) -> dict[str, Kernel]:
    program = PIPELINE.run(program_of(backward_of(body)))
    return {kernel.name: kernel for kernel in program.kernels}


def text(kernel: Kernel, name: str) -> str:
    """The formula of the last value of that name: in the loop over masked tiles."""
    found = [let.value for let in lets_of(kernel.body) if let.name == name]
    assert isinstance(found[-1], Formula)
    return formula_text(found[-1].expr)


def test_tiles_read_finite_rows_with_the_sign_turned() -> None:
    kernels = kernels_of("mask: causal\n")
    rows = kernels["backward_rows"]
    assert text(rows, "finite_lse") == "anchor(lse)"
    assert text(rows, "minus_d_lse") == "-d_lse"
    assert {b.name for b in rows.buffers if b.role == "output"} == {"finite_lse", "minus_d_lse"}
    for name in ("backward_q", "backward_kv"):
        read = {let.value.buffer for let in lets_of(kernels[name].body) if _loads(let)}
        assert {"finite_lse", "minus_d_lse"} <= read
        assert not {"lse", "d_lse"} & read


@pytest.mark.parametrize(
    "body", ["", "score: score + bias[kv_idx]\ntensors: {bias: {shape: [kv_len]}}\n"]
)
def test_no_tile_is_asked_for_an_infinite_lse(body: str) -> None:
    for name in ("backward_q", "backward_kv"):
        assert "anchor" not in text(kernels_of(body)[name], "p")


def test_the_select_stands_before_the_exponential_of_the_weights() -> None:
    kernel = kernels_of("mask: causal\n")["backward_kv"]
    assert text(kernel, "p").startswith("fast_exp2(where(visible, ")
    masked = [stmt for stmt in kernel.body if isinstance(stmt, Loop)][-1]
    names = [let.name for let in masked.body]
    assert "p_visible" not in names
    assert names.index("visible") < names.index("p")


def _loads(let: Let) -> bool:
    return isinstance(let.value, Load)
