"""What the small rewriting passes leave behind, each on the smallest spec that needs it."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import And, Basic, Eq, Le, lambdify

from attnc import symbols
from attnc.driver import build_dataflow, plan_program
from attnc.ir.nodes import Formula, Kernel, Let, Loop
from attnc.ir.printer import print_ir
from attnc.ir.rebuild import reads_of
from attnc.passes.order import PIPELINE
from attnc.passes.unfold_floors import _unfold
from attnc.spec import parse_spec
from attnc.symbols import FloorDiv, kv_idx, q_pos

HEAD = "name: sample\nheads: 2\nhead_dim: 16\n"


def kernel_after(step: str, rest: str) -> Kernel:
    found: dict[str, Kernel] = {}
    program = plan_program(build_dataflow(parse_spec(HEAD + rest)))
    PIPELINE.run(program, lambda name, seen: found.update({name: seen.kernels[0]}))
    return found[step]


def let(kernel: Kernel, name: str) -> Let:
    lets = [stmt for stmt in kernel.body if isinstance(stmt, Let)]
    lets += [one for stmt in kernel.body if isinstance(stmt, Loop) for one in stmt.body]
    return next(one for one in lets if one.name == name)


def table(formula: Basic) -> np.ndarray:
    """The truth of a mask over q_pos in [-20, 40) and kv_idx in [0, 40)."""
    floors = {"FloorDiv": lambda a, b: np.floor_divide(a, b)}
    rows, keys = np.meshgrid(np.arange(-20, 40), np.arange(40), indexing="ij")
    return np.broadcast_to(
        lambdify([q_pos, kv_idx], formula, [floors, "numpy"])(rows, keys), rows.shape
    )


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("beside", [True, Le(kv_idx, q_pos), Le(q_pos, kv_idx)])
@pytest.mark.parametrize("row", [q_pos, q_pos + 5])
def test_block_equality_becomes_bounds_that_mean_the_same(
    size: int, beside: Basic, row: Basic
) -> None:
    where = And(Eq(FloorDiv(kv_idx, size), FloorDiv(row, size)), beside)
    unfolded = _unfold(where, {"kv_idx"})
    np.testing.assert_array_equal(table(unfolded), table(where))
    if size > 1:
        assert not any(kv_idx in floor.free_symbols for floor in unfolded.atoms(FloorDiv))


def test_a_bound_that_the_mask_implies_is_not_written() -> None:
    where = And(Eq(FloorDiv(kv_idx, 8), FloorDiv(q_pos, 8)), Le(kv_idx, q_pos))
    assert len(And.make_args(_unfold(where, {"kv_idx"}))) == 2


def test_a_division_by_row_leaves_the_loop() -> None:
    rest = "mask: q_pos // size == kv_idx // size\nparams: {size: {type: int, default: 4}}\n"
    kernel = kernel_after("hoist-invariants", rest)
    hoisted = let(kernel, "row_term")
    assert hoisted.value == Formula(FloorDiv(q_pos, symbols.param_symbol("size", "int")))
    readers = [i for i, stmt in enumerate(kernel.body) if "row_term" in reads_of(stmt)]
    assert readers and kernel.body.index(hoisted) < min(readers)


def test_no_scalar_only_repeats_another() -> None:
    kernel = kernel_after("drop-aliases", "mask: window(9, 9) | global_tokens(3)\n")
    scalars = [stmt for stmt in kernel.body if isinstance(stmt, Let) and not stmt.axes]
    assert not [
        one.name for one in scalars if isinstance(one.value, Formula) and one.value.expr.is_Symbol
    ]


@pytest.mark.parametrize(
    ("score", "unit", "weights"),
    [
        ("", "max(1.2e-38, abs(scale))", "fast_exp2(factor*logits - factor*row_max)"),
        ("score: softcap(score, 20)\n", None, "fast_exp2(factor*logits - factor*row_max)"),
        ("score: alibi\n", None, "fast_exp2(factor*logits - factor*row_max)"),
        (
            "score: score + bias[kv_idx]\ntensors: {bias: {shape: [kv_len]}}\n",
            None,
            "fast_exp2((logits - row_max)/log(2))",
        ),
        (
            "score: score / t\nparams: {t: {type: float, default: 2.0}}\n",
            None,
            "fast_exp2(factor*logits - factor*row_max)",
        ),
        (
            "score: score + t * h\nparams: {t: {type: float, default: 2.0}}\n",
            None,
            "fast_exp2((logits - row_max)/log(2))",
        ),
    ],
)
def test_scales_are_folded_unless_the_score_may_be_huge(
    score: str, unit: str | None, weights: str
) -> None:
    printed = print_ir(kernel_after("fold-scales", score))
    assert f"reduce row_sum[q] := sum over k of {weights}" in printed
    assert ("unit[] f32" in printed) is (unit is not None)
    if unit:
        assert f"unit[] f32 := {unit}" in printed
