"""Faults planted in the backward of a program are caught: the ways in which gradients go wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from attnc.driver import lower_spec
from attnc.verify.faults_gradients import GRADIENT_CATALOGUE
from attnc.verify.interpreted_gradients import check_gradients
from attnc.verify.mutants_ir import Jury, Mutant, ir_mutants
from attnc.verify.switches import settled
from tests.verify.specs import spec_of

CAPPED = "mask: causal\nscore: softcap(score, 5)\nbackward: true"
SINK = "heads: 2\nsink: per_head\nbackward: true"
DROPPED = "heads: 2\nmask: causal\ndropout: true\nbackward: true"
TABLE = (
    "heads: 2\nmask: causal\nscore: relative_bias(score, table)\nbackward: true\n"
    "tensors: {table: {shape: [heads, 9], grad: true}}"
)
PAIRS = (
    "heads: 2\nscore: score + bias[h, q_idx, kv_idx]\nbackward: true\n"
    "tensors: {bias: {shape: [heads, q_len, kv_len], grad: true}}"
)

FAULTS = (  # the spec, the fault, its name among the mutants
    (CAPPED, "delta missing", "backward_q: loop 0: d_logits without -minus_d_lse"),
    (CAPPED, "delta of the other sign", "backward_kv: loop 1: d_logits with minus d_p"),
    (CAPPED, "gradient of lse lost", "backward_rows: d_lse without grad_lse"),
    (CAPPED, "delta of the wrong tensor", "backward_rows: out_tile from grad_out"),
    (CAPPED, "a head of the group lost", "backward_kv: loop 1: rounds too few"),
    (CAPPED, "heads of the group in hidden tiles", "backward_kv: loop 1: rounds with one h"),
    (CAPPED, "one head of the group over again", "backward_kv: loop 0: rounds with one h"),
    (CAPPED, "a head of the next group", "backward_kv: loop 0: rounds too many"),
    (CAPPED, "scale forgotten", "backward_q: d_q without call_term"),
    (CAPPED, "scale of keys forgotten", "backward_kv: d_k without call_term"),
    (CAPPED, "sum of earlier tiles forgotten", "backward_kv: loop 1: d_v_new forgets d_v"),
    (CAPPED, "cap's derivative missing", "backward_q: loop 0: d_qk without 1 - logits**2/25"),
    (CAPPED, "cap's derivative wrong", "backward_kv: loop 1: d_qk without 1"),
    (CAPPED, "mask dropped for queries", "backward_q: loop 1: d_qk_visible counts what is hidden"),
    (CAPPED, "mask dropped for values", "backward_kv: loop 1: p selects nothing"),
    (CAPPED, "causal bound of queries", "backward_kv: q_lo +1"),
    (CAPPED, "causal bound of positions", "backward_kv: loop 1: q_pos +1"),
    (CAPPED, "last tile of queries lost", "backward_kv: loop 1, piece 1 dropped"),
    (SINK, "sink's gradient lost", "backward_q: store to grad_sink dropped"),
    (
        CAPPED,
        "rows of grad_q unwritten",
        "backward_q: store to grad_q with q_idx +1 in q_idx < q_len",
    ),
    (CAPPED, "grad_k unwritten", "backward_kv: store to grad_k dropped"),
    (CAPPED, "shares in one place", "backward_q: store to grad_scale with 0 for q_block"),
    (CAPPED, "key head of the first group", "backward_q: loop 0: v_tile with 0 for h_kv"),
    (CAPPED, "queries of another head", "backward_kv: loop 0: grad_out_tile with 0 for h"),
    (CAPPED, "block sizes exchanged", "backward_kv: grid of kv_block with the other block size"),
    (CAPPED, "tiles of the other kernel", "backward_kv: tiles of k with BLOCK_Q"),
    (CAPPED, "last tile of keys lost", "backward_kv: grid of kv_block one short"),
    (DROPPED, "other random words", "backward_kv: loop 0: kept transposed"),
    (DROPPED, "words of one batch entry", "backward_q: loop 1: kept of one batch entry"),
    (DROPPED, "kept_factor missing", "backward_kv: loop 1: d_p without kept_factor"),
    (DROPPED, "nothing dropped for values", "backward_kv: loop 0: weights without kept"),
    (TABLE, "table shifted", "backward_table: loop 0: table_index +1"),
    (TABLE, "distance shifted", "backward_table: loop 0: slot -1"),
    (TABLE, "a tile of queries lost", "backward_table: loop 0: rounds too few"),
    (TABLE, "heads not apart", "backward_table: store to grad_table with 0 for h"),
    (TABLE, "bands overlap", "backward_table: n_first -1"),
    (PAIRS, "tile transposed", "backward_bias: loop 0: bias_tile transposed"),
    (PAIRS, "batch entries not summed", "backward_bias: loop 0: rounds dropped"),
    (PAIRS, "another's tile", "backward_bias: own_first +1"),
)


@cache
def court(body: str) -> tuple[Jury, dict[str, Mutant]]:
    """Who judges, and the mutants of a spec."""
    _, spec, program = next(settled(spec := spec_of(body), lower_spec(spec)))
    return Jury(spec, program), {mutant.name: mutant for mutant in ir_mutants(program)}


@pytest.mark.parametrize("body", [CAPPED, PAIRS])
def test_the_program_itself_has_nothing_to_hide(body: str) -> None:
    assert court(body)[0].shortcomings == set()


@pytest.mark.parametrize(("body", "fault", "name"), FAULTS, ids=[fault for _, fault, _ in FAULTS])
def test_a_fault_of_gradients_is_killed(body: str, fault: str, name: str) -> None:
    jury, mutants = court(body)
    assert jury.judge(mutants[name]).outcome == "killed", fault


WINDOWED = PAIRS.replace("heads: 2", "heads: 2\nmask: sliding_window(WIDTH)")


@pytest.mark.parametrize("body", [WINDOWED, TABLE.replace("causal", "sliding_window(WIDTH)")])
def test_a_kernel_of_pairs_is_held_to_its_mask_where_no_number_reaches(body: str) -> None:
    """Kernels that are right up to 512 keys: proofs notice."""
    jury, _ = court(body.replace("WIDTH", "4096"))
    near = court(body.replace("WIDTH", "512"))[0].original.kernels[-1]
    program = replace(jury.original, kernels=(*jury.original.kernels[:-1], near))
    verdict = jury.judge(Mutant("a narrow window", program))
    assert verdict.outcome == "killed"
    assert verdict.by.endswith("every visible pair is visited")


def test_every_kind_of_fault_finds_its_place() -> None:
    names = {generator.__name__ for generator in GRADIENT_CATALOGUE}
    kernels = [kernel for body in (CAPPED, DROPPED) for kernel in lower_spec(spec_of(body)).kernels]
    assert {g.__name__ for g in GRADIENT_CATALOGUE for k in kernels if list(g(k))} == names


def test_the_forward_has_no_faults_of_gradients() -> None:
    names = [mutant.name for mutant in court(CAPPED)[1].values()]
    assert any(name.startswith("forward: ") for name in names)
    assert not [name for name in names if name.startswith("forward: grid of ")]


def test_calls_that_want_no_gradient_promise_none() -> None:
    """A closed head is skipped there, so that its gate would get a wrong one."""
    spec = spec_of("heads: 2\nhead_gate: true\noutputs: []\nbackward: true")
    outcomes = {
        calls: [one.ok for one in check_gradients(meant, program)]
        for calls, meant, program in settled(spec, lower_spec(spec))
    }
    assert outcomes == {"with a gradient": [True] * 5, "without a gradient": []}
