"""The proofs hold for a right program, and a wrong one is refuted with numbers that show it."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import sympy
import z3
from sympy import And, Integer, Ne, Or, Symbol, true

from attnc.driver import lower_spec
from attnc.ir.functions import without_wide
from attnc.ir.nodes import BLOCK_KV, Let, Load, Loop, Program, Store
from attnc.runtime.loader import load
from attnc.spec import read_spec
from attnc.spec.schema import Param, Tensor
from attnc.symbols import (
    FloorDiv,
    FloorMod,
    Read,
    b,
    kv_idx,
    kv_len,
    q_idx,
    q_len,
    q_pos,
    tensor_symbol,
)
from attnc.verify import proofs
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place, Subject
from attnc.verify.obligations import Obligation
from attnc.verify.proofs import claims_of, prove
from attnc.verify.solver_meaning import SolverMeaning
from attnc.verify.switches import settled
from tests.verify import kernels
from tests.verify.specs import spec_of
from tests.verify.test_interpreter import edit

SPEC, READY = kernels.attention_spec(), kernels.ready()
GENERATED = Path(__file__).parents[2] / "generated" / "causal_mha.py"
SHAPES = [(32, 16)]


def unproved(program: Program, spec=SPEC) -> dict[str, Obligation]:
    return {o.name: o for o in prove(spec, program, SHAPES) if o.status != "proved"}


def with_loops(change) -> Program:
    """The program with loop number n replaced by change(n, loop)."""
    kernel = READY.kernels[0]
    loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    body = tuple(
        change(loops.index(stmt), stmt) if isinstance(stmt, Loop) else stmt for stmt in kernel.body
    )
    return replace(READY, kernels=(replace(kernel, body=body),))


def test_a_right_program_is_proved_at_several_tile_shapes() -> None:
    found = prove(SPEC, READY, [(128, 64), (16, 32)])
    assert len(found) > 25
    assert {o.status for o in found} == {"proved"}


QUICK = ("causal_mha", "longformer", "documents_packed", "dense_bias")
DISTINCT = (  # one of each kind; what resembles one of them is for `make fuzz`
    "alphafold_pair_bias", "dropout_causal", "entropy_regularised", "etc_global_local", "gpt_oss",
    "head_gates", "llama4_chunked", "mistral_window", "mod5_mask", "per_head_window",
    "relative_bias", "softcap_bias",
)  # fmt: skip
SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))


def _mark(name: str) -> tuple[pytest.MarkDecorator, ...]:
    if name in QUICK:
        return ()
    return (pytest.mark.slow,) if name in DISTINCT else (pytest.mark.fuzz,)


COMPILED = [pytest.param(path, marks=_mark(path.stem), id=path.stem) for path in SPECS]


@pytest.mark.parametrize("path", COMPILED)
def test_a_compiled_program_is_proved(path: Path) -> None:
    spec = read_spec(path)
    for _, meant, program in settled(spec, lower_spec(spec)):
        assert [o for o in prove(meant, program) if not o.ok] == []


@pytest.mark.parametrize("name", ["by hand", "llama4_chunked", "documents_packed", "head_gates"])
def test_no_claim_holds_for_want_of_cases(name: str) -> None:
    spec, program = SPEC, READY
    if name != "by hand":
        spec = read_spec(SPECS[0].parent / f"{name}.yaml")
        program = lower_spec(spec)
    kernel = program.kernels[0]
    for claim in claims_of(Tiling(kernel)):
        m = SolverMeaning(Subject(spec, kernel, 32, 16))
        claim.build(m)
        solver = z3.Solver(ctx=m.z3.context)
        solver.set("rlimit", 4_000_000)
        solver.add(*m.hypotheses, *m.z3.facts)
        assert solver.check() == z3.sat, claim.name


def test_effort_is_the_same_every_time() -> None:
    assert prove(SPEC, READY, SHAPES) == prove(SPEC, READY, SHAPES)


def test_the_schedule_table_says_which_shapes_to_prove() -> None:
    assert proofs.shapes_of(READY, READY.kernels[0]) == [(32, 16), proofs.WIDE]


def test_positions_within_a_tile_are_read() -> None:
    assert unproved(kernels.within_tiles()) == {}
    found = unproved(kernels.within_tiles(slack=1))
    assert found["loop 1: k stays in bounds"].status == "refuted"
    assert (
        unproved(kernels.within_tiles(slack=-1))["loop 1: k leaves out nothing"].status == "refuted"
    )


def test_a_missing_masked_loop_is_refuted() -> None:
    kernel = READY.kernels[0]
    loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    body = tuple(stmt for stmt in kernel.body if stmt is not loops[1])
    found = unproved(replace(READY, kernels=(replace(kernel, body=body),)))
    assert found["every visible pair is visited"].status == "refuted"
    assert found["every visible pair is visited"].detail.startswith("32x16: ")
    assert "kv_len = " in found["every visible pair is visited"].detail


def test_overlapping_pieces_are_refuted() -> None:
    def overlap(number: int, loop: Loop) -> Loop:
        (piece,) = loop.pieces
        return replace(loop, pieces=(replace(piece, start=Integer(0)),)) if number else loop

    assert unproved(with_loops(overlap))["no visible pair is visited twice"].status == "refuted"


def test_an_unmasked_loop_that_goes_too_far_is_refuted() -> None:
    def far(number: int, loop: Loop) -> Loop:
        pieces = tuple(replace(piece, stop=piece.stop + 1) for piece in loop.pieces)
        return loop if number else replace(loop, pieces=pieces)

    found = unproved(with_loops(far))
    assert found["loop 0: has no mask and visits visible pairs only"].status == "refuted"
    assert found["loop 0: k stays in bounds"].status == "refuted"


def test_a_mask_that_selects_too_much_is_refuted() -> None:
    def widen(stmt):
        if isinstance(stmt, Let) and stmt.name == "visible":
            return replace(stmt, value=replace(stmt.value, expr=kv_idx <= q_pos + 1))
        return stmt

    found = unproved(edit(READY, widen))
    assert found["loop 1: exactly the visible pairs are selected"].status == "refuted"


def test_an_unguarded_access_is_refuted() -> None:
    def unguard(stmt):
        if isinstance(stmt, Store):
            return replace(stmt, guard=true)
        if isinstance(stmt, Let) and isinstance(stmt.value, Load):
            return replace(stmt, value=replace(stmt.value, guard=true))
        return stmt

    names = {name for name, o in unproved(edit(READY, unguard)).items() if o.status == "refuted"}
    assert {
        "q stays in bounds",
        "loop 1: k stays in bounds",
        "store to out stays in bounds",
        "store to lse stays in bounds",
        "loop 1: v reads no key hidden from every row",
    } <= names
    assert "loop 0: k stays in bounds" not in names  # unmasked tiles lie inside


def test_a_guard_that_leaves_out_a_key_is_refuted() -> None:
    def narrow(stmt):
        if isinstance(stmt, Let) and stmt.name == "v_tile":
            guard = And(stmt.value.guard, Ne(kv_idx, 3))
            return replace(stmt, value=replace(stmt.value, guard=guard))
        return stmt

    assert unproved(edit(READY, narrow))["loop 1: v leaves out nothing"].status == "refuted"


def test_a_wrong_head_is_refuted() -> None:
    def wrong(stmt):
        if isinstance(stmt, Let) and stmt.name == "h_kv":
            return replace(stmt, value=replace(stmt.value, expr=FloorMod(Symbol("h"), 2)))
        return stmt

    name = "loop 0: k reads the elements of its batch, head and position"
    assert unproved(edit(READY, wrong))[name].status == "refuted"


def test_a_store_that_misses_rows_is_refuted() -> None:
    def skip(stmt):
        if isinstance(stmt, Store):
            return replace(stmt, guard=And(stmt.guard, Ne(q_idx, 7)))
        return stmt

    assert unproved(edit(READY, skip))["every element of lse is stored once"].status == "refuted"


def test_an_integer_beyond_32_bits_is_refuted() -> None:
    def triple(stmt):
        if isinstance(stmt, Let) and stmt.name == "kv_stop":
            return replace(stmt, value=replace(stmt.value, expr=FloorDiv(3 * stmt.value.expr, 3)))
        return stmt

    # three times 2**30 / 16 fits; three times the unrounded key_stop does not
    assert "integers outside of loops fit 32 bits" not in unproved(edit(READY, triple))

    def triple_keys(stmt):
        if isinstance(stmt, Let) and stmt.name == "kv_stop":
            keys = 3 * kernels.whole("key_stop")
            expr = FloorDiv(FloorDiv(keys, 3) + BLOCK_KV - 1, BLOCK_KV)
            return replace(stmt, value=replace(stmt.value, expr=expr))
        return stmt

    found = unproved(edit(READY, triple_keys))
    assert found["integers outside of loops fit 32 bits"].status == "refuted"


def test_what_wraps_in_rows_that_do_not_exist_is_thrown_away() -> None:
    """Past the last row q_pos passes 2**30, and twice of it 2**31."""
    spec = spec_of("mask: kv_idx <= 2 * q_pos")
    assert unproved(lower_spec(spec), spec) == {}


def test_what_wraps_may_not_choose_the_memory_to_touch() -> None:
    def guard(stmt):
        if isinstance(stmt, Let) and stmt.name == "k_tile":
            guard = And(stmt.value.guard, kv_idx <= 2 * q_pos)
            return replace(stmt, value=replace(stmt.value, guard=guard))
        return stmt

    assert unproved(edit(READY, guard))["loop 1: integers fit 32 bits"].status == "refuted"


def test_what_wraps_may_not_reach_other_rows() -> None:
    """Whether some row sees a key asks only rows that exist."""
    spec = spec_of("mask: (kv_idx <= 2 * q_pos) & ((q_pos - kv_idx) % 5 == 0)")
    program = lower_spec(spec)
    assert unproved(program, spec) == {}

    def ask_all(stmt):
        if isinstance(stmt, Let) and stmt.name == "visible":
            rest = [part for part in stmt.value.expr.args if part != kernels.ROWS]
            return replace(stmt, value=replace(stmt.value, expr=And(*rest)))
        return stmt

    found = unproved(edit(program, ask_all), spec)
    assert found["loop 0: integers fit 32 bits"].status == "refuted"


def test_the_floor_of_a_real_must_fit_as_well() -> None:
    spec = spec_of("mask: kv_idx <= x * kv_idx // 1\nparams: {x: {type: float, default: 2}}")
    program = lower_spec(spec)
    assert unproved(program, spec) == {}

    def in_32_bits(stmt):
        if isinstance(stmt, Let) and stmt.name == "visible":
            return replace(stmt, value=replace(stmt.value, expr=without_wide(stmt.value.expr)))
        return stmt

    found = unproved(edit(program, in_32_bits), spec)
    assert found["loop 0: integers fit 32 bits"].status != "proved"


def test_chunks_of_a_param_are_proved_in_the_smallest_tiles() -> None:
    """The launcher refuses a divisor of 0, by which a quotient might be anything."""
    mask = "causal & (q_pos // n == kv_idx // n)"
    spec = spec_of(f"mask: {mask}\nparams: {{n: {{type: int, default: 24}}}}")
    found = prove(spec, lower_spec(spec), [(16, 16)])
    assert [o for o in found if o.status != "proved"] == []


def test_a_divisor_that_falls_away_at_the_head_dim_may_be_zero() -> None:
    """The launcher refuses 0 for no param by which nothing is divided, so nothing assumes it."""
    spec = spec_of(
        "head_dim: 16\nmask: (d > 5) & (kv_idx <= n) | (d < 5) & (kv_idx // n < 2)\n"
        "params: {n: {type: int, default: 24}}"
    )

    def hide_all_at_zero(stmt):
        if isinstance(stmt, Let) and stmt.name == "visible":
            shown = And(stmt.value.expr, Ne(Symbol("n", integer=True), 0))
            return replace(stmt, value=replace(stmt.value, expr=shown))
        return stmt

    program = lower_spec(spec)
    wrong = edit(program, hide_all_at_zero)
    assert wrong != program and unproved(program, spec) == {}
    found = unproved(wrong, spec)
    assert any(obligation.status == "refuted" for obligation in found.values())


def test_a_quotient_by_less_than_one_may_be_large() -> None:
    """kv_idx // limit <= kv_idx fails for a limit of 1/2: the program lacks a condition."""
    limit = Symbol("limit", real=True)
    mask = And(kernels.CAUSAL, Or(limit <= 0, FloorDiv(kv_idx, limit) <= kv_idx))
    found = unproved(READY, replace(kernels.attention_spec(mask), params=PARAMS))
    assert "loop 0: has no mask and visits visible pairs only" in found
    assert "loop 1: exactly the visible pairs are selected" in found


@pytest.mark.parametrize(
    "mask", ["kv_idx * q_idx < 8 * n", "kv_idx * n < q_pos * n", "kv_idx // n < 3"]
)
def test_tiles_in_vain_are_no_fault_where_the_program_asks_its_columns(mask: str) -> None:
    spec = spec_of(f"mask: {mask}\nparams: {{n: {{type: int, default: 24}}}}")
    found = {o.name: o.status for o in prove(spec, lower_spec(spec), SHAPES)}
    assert set(found.values()) == {"proved"}
    assert "every visited tile holds a visible pair" not in found


def test_a_window_between_params_is_proved() -> None:
    """Rows see keys between two diagonals that need not hold their own."""
    ints = "{left: {type: int, default: 20}, right: {type: int, default: 10}}"
    spec = spec_of(f"mask: window(left, right)\nparams: {ints}")
    assert unproved(lower_spec(spec), spec) == {}


def test_a_loose_loop_is_refuted() -> None:
    def loose(stmt):
        if isinstance(stmt, Let) and stmt.name == "kv_stop":
            return replace(stmt, value=replace(stmt.value, expr=stmt.value.expr + 1))
        return stmt

    found = unproved(edit(READY, loose))
    assert list(found) == ["every visited tile holds a visible pair"]
    assert found["every visited tile holds a visible pair"].status == "refuted"


def test_what_z3_cannot_decide_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "EFFORT", 10)
    found = {o.name: o for o in prove(SPEC, READY, SHAPES)}
    assert found["every visible pair is visited"].status == "undecided"
    assert not found["every visible pair is visited"].ok


@pytest.mark.parametrize(
    ("shapes", "status", "where"),
    [
        ([(16, 16), (32, 16)], "refuted", "32x16: "),
        ([(16, 16), (16, 32)], "undecided", "16x16: "),
        ([(32, 16), (16, 16)], "refuted", "32x16: "),
    ],
)
def test_a_refutation_is_reported_before_what_is_undecided(
    monkeypatch: pytest.MonkeyPatch, shapes: list[tuple[int, int]], status: str, where: str
) -> None:
    """z3 takes a product for any number at all, so that its counterexample shows nothing."""

    def build(m: Meaning) -> object:
        if m.resolve("BLOCK_Q", Place({}, False)) == 32:
            return m.pick("q_len") < 7
        return m.formula(q_len * kv_len, Place({}, False)) != 7

    monkeypatch.setattr(proofs, "claims_of", lambda *_: [Claim("a claim", build)])
    (found,) = prove(SPEC, READY, shapes)
    assert found.status == status
    assert found.detail.startswith(where)


def test_doubt_does_not_cost_much_more_at_many_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "EFFORT", 1000)
    claim = next(c for c in claims_of(Tiling(READY.kernels[0])) if "visited" in c.name)
    monkeypatch.setattr(proofs, "claims_of", lambda *_: [claim])
    (one,), (many,) = (prove(SPEC, READY, proofs.EVERY_SHAPE[:n]) for n in (1, 25))
    assert one.status == many.status == "undecided"
    assert many.effort < 2 * one.effort


# ---------------------------------------------------------------- how formulas are said in z3

PARAMS = (Param("width", "int", 4), Param("limit", "float", 0.5))
TENSORS = (Tensor("ids", ("batch", "kv_len"), "int32"), Tensor("bias", ("q_len", "kv_len"), "fp32"))
WIDTH, LIMIT = Symbol("width", integer=True), Symbol("limit", real=True)
IDS, BIAS = tensor_symbol("ids", "int32"), tensor_symbol("bias", "fp32")
BIAS_HERE = Read(BIAS, q_idx, kv_idx)


def follows(premise: sympy.Basic, conclusion: sympy.Basic) -> bool:
    """Whether z3 proves the implication for all values of the names."""
    spec = replace(SPEC, params=PARAMS, tensors=TENSORS)
    m = SolverMeaning(Subject(spec, READY.kernels[0], 32, 16))
    place = Place({name: m.pick(name) for name in ("b", "h", "q_idx", "kv_idx")}, False)
    m.given(m.truth(premise, place))
    goal = m.negate(m.truth(conclusion, place))
    solver = z3.Solver(ctx=m.z3.context)
    solver.set("rlimit", 1_000_000)
    solver.add(*m.hypotheses, *m.z3.facts, goal)
    answer = solver.check()
    assert answer != z3.unknown
    return answer == z3.unsat


@pytest.mark.parametrize(
    ("premise", "conclusion"),
    [
        (kv_idx <= q_pos / 2, 2 * kv_idx <= q_pos),
        (sympy.Eq(FloorMod(q_pos - kv_idx, 3), 0), sympy.Eq(FloorMod(q_pos - kv_idx + 3, 3), 0)),
        (And(WIDTH > 0, q_idx >= kv_idx), FloorDiv(q_idx, WIDTH) >= FloorDiv(kv_idx, WIDTH)),
        (And(WIDTH > 0, q_idx >= 0), WIDTH * FloorDiv(q_idx, WIDTH) <= q_idx),
        (And(WIDTH > 0, FloorDiv(kv_idx, WIDTH) < 3), kv_idx < 3 * WIDTH),
        (And(WIDTH > 0, FloorDiv(kv_idx, WIDTH) <= q_idx), kv_idx < q_idx * WIDTH + WIDTH),
        (And(WIDTH > 0, 2 - FloorDiv(kv_idx, WIDTH) < q_idx), kv_idx >= WIDTH * (3 - q_idx)),
        (sympy.Eq(q_pos, kv_idx), sympy.Eq(Read(IDS, b, q_pos), Read(IDS, b, kv_idx))),
        (kv_idx < 0, sympy.Eq(Read(IDS, b, kv_idx), 0)),
        (Read(BIAS, q_idx, kv_idx) > 1, Read(BIAS, q_idx, kv_idx) > sympy.Rational(1, 2)),
        (WIDTH < 0, WIDTH * FloorDiv(q_pos, WIDTH) >= q_pos),
        (And(WIDTH < 0, q_pos >= 0), FloorDiv(q_pos, WIDTH) >= -q_pos),
        (And(LIMIT >= 1, q_pos >= 0), FloorDiv(q_pos, LIMIT) <= q_pos),
        (q_idx * kv_idx > 4, kv_idx * q_idx > 3),
        (sympy.exp(sympy.tanh(q_idx)) > 3, sympy.exp(sympy.tanh(q_idx)) > 2),
    ],
)
def test_is_understood(premise: sympy.Basic, conclusion: sympy.Basic) -> None:
    assert follows(premise, conclusion)


@pytest.mark.parametrize(
    ("premise", "conclusion"),
    [
        (true, sympy.Eq(Read(IDS, b, q_pos), Read(IDS, b, kv_idx))),
        (true, FloorDiv(q_idx, WIDTH) <= q_idx),  # width may be negative
        (And(LIMIT > 0, q_pos >= 0), FloorDiv(q_pos, LIMIT) <= q_pos),  # limit may be 1/2
        (
            And(LIMIT >= 1, BIAS_HERE < 0),
            FloorDiv(BIAS_HERE, LIMIT) >= BIAS_HERE,
        ),  # -1/2 // 1 is -1
        (WIDTH < 0, FloorDiv(kv_idx, WIDTH) < -3),
        (FloorDiv(kv_idx, WIDTH) < 3, kv_idx < 3 * WIDTH),  # width may be negative
        (sympy.Eq(q_pos, kv_idx), sympy.Eq(Read(IDS, b, q_pos), 1)),
    ],
)
def test_is_not_taken_for_granted(premise: sympy.Basic, conclusion: sympy.Basic) -> None:
    assert not follows(premise, conclusion)


def test_every_shape_that_a_launcher_accepts_is_proved() -> None:
    accepted = load(GENERATED).FIELDS
    assert set(proofs.EVERY_SHAPE) == set(product(accepted["block_q"], accepted["block_kv"]))


def test_an_interrupt_in_the_solver_is_no_undecided_claim() -> None:
    def hard(meaning: Meaning) -> Any:
        assert isinstance(meaning, SolverMeaning)
        x, y, z = z3.Ints("x y z", ctx=meaning.z3.context)
        return z3.Not(z3.And(x**3 + y**3 + z**3 == 114, x > 2, y < -9, z != 0))

    interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        proofs.prove_claim(Claim("hard", hard), Subject(SPEC, READY.kernels[0], 32, 16))
