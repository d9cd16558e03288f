"""What is kept is the minimum cut under the limit, and that is {lse, out}."""

from __future__ import annotations

from itertools import combinations

import pytest

from attnc.graph import recompute
from attnc.graph.costs import making_price, stored_bytes
from attnc.graph.derivative import differentiate
from attnc.graph.recompute import Plan, _Problem, choose_kept, may_keep, may_make, plan_keeping
from tests.graph.test_derivative import BODIES, flow_of

FORBIDDEN = 10**30
LONG = "sizes: {batch: 2, q_len: 4096, kv_len: 4096}\n"


def plan_of(body: str) -> Plan:
    return plan_keeping(differentiate(flow_of(body)))


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("body", [body for body in BODIES.values() if "head_gate" not in body])
def test_out_and_lse_are_kept_and_nothing_else(body: str, head_dim: int) -> None:
    kept = set(plan_of(f"{LONG}head_dim: {head_dim}\n{body}").kept)
    of_entropy = {"entropy", "entropy_of_keys"} if "entropy" in body else set()  # a number a row
    assert kept <= {"lse", "out", *of_entropy}


def test_what_is_kept_of_a_gated_head_is_the_sum_before_the_gate() -> None:
    plan = plan_of(f"{LONG}head_gate: true")
    assert plan.kept == ("lse", "ungated")


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_at_ordinary_sizes_the_price_alone_decides_what_the_kernels_can_do(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = plan_of(f"{LONG}head_dim: 128\n{body}")
    for rule in ("may_keep", "may_make"):
        monkeypatch.setattr(recompute, rule, lambda *_: True)
    assert plan_of(f"{LONG}head_dim: 128\n{body}").kept == bound.kept


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_few_keys_sum_nothing_a_second_time(body: str) -> None:
    flow = differentiate(flow_of(f"sizes: {{batch: 64, q_len: 4096, kv_len: 16}}\n{body}"))
    made = [choice.name for choice in plan_keeping(flow).choices if not choice.kept]
    assert all(may_make(flow, name) for name in made)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_short_sequences_keep_nothing_that_grows_with_both_lengths(body: str) -> None:
    flow = differentiate(flow_of(f"sizes: {{q_len: 16, kv_len: 16}}\n{body}"))
    plan = plan_keeping(flow)
    assert sum(c.size for c in plan.choices if c.kept and c.name != "out") <= plan.limit
    assert not [name for name in plan.kept if {"q", "k"} <= set(flow.values[name].axes)]


@pytest.mark.parametrize("body", ["", "score: softcap(score, 50)", "head_gate: true"])
@pytest.mark.parametrize("price", [0.0, 1e-3, 1.0])
def test_the_cut_is_the_cheapest_of_all_choices(body: str, price: float) -> None:
    problem = _Problem.of(differentiate(flow_of(body)))
    kept = problem.cut(price)
    every = (
        frozenset(chosen)
        for count in range(len(problem.primal) + 1)
        for chosen in combinations(problem.primal, count)
    )
    assert cost(problem, kept, price) == min(cost(problem, other, price) for other in every)


def cost(problem: _Problem, kept: frozenset[str], price: float) -> int:
    """Keep these, and make whatever else is needed."""
    flow = problem.flow
    total, needed = 0, set(problem.read)
    for name in reversed(problem.primal):
        if name not in needed:
            continue
        if name in kept:
            extra = 0 if name in problem.outputs else round(price * stored_bytes(flow, name))
            total += problem.keeping(name) + extra if may_keep(flow, name) else FORBIDDEN
        else:
            total += making_price(flow, name) if may_make(flow, name) else FORBIDDEN
            needed |= set(flow.operands(name)) & set(problem.primal)
    return total


@pytest.mark.parametrize("where", ["q_idx", "u[b, h, q_idx]", "u[b, h, kv_idx]"])
def test_a_costly_term_of_rows_is_made_again(where: str) -> None:
    """The forward writes what it reduces, and nothing else."""
    terms = " + ".join(f"tanh({where} * 0.0{n}) * exp({where} * 0.00{n})" for n in range(1, 10))
    length = "kv_len" if "kv_idx" in where else "q_len"
    body = f"score: score + {terms}\ntensors: {{u: {{shape: [batch, heads, {length}]}}}}"
    flow = choose_kept(differentiate(flow_of(body if "u[" in body else body.split("\n")[0])))
    assert set(flow.kept) == {"out", "lse"}


@pytest.mark.parametrize("head_dim", [1, 2, 3])
@pytest.mark.parametrize("body", ["head_gate: true\nsink: per_head", "outputs: [lse, entropy]"])
def test_heads_too_narrow_for_the_limit_keep_the_least_that_is_needed(
    body: str, head_dim: int
) -> None:
    """Found by `make fuzz`: lse and the ungated sum take more than q, k, v and out of 1 feature."""
    plan = plan_of(f"{LONG}head_dim: {head_dim}\nheads: {{q: 3, kv: 1}}\n{body}")
    assert {"lse"} <= set(plan.kept) <= {"lse", "ungated", "out", "entropy", "entropy_of_keys"}
    assert sum(c.size for c in plan.choices if c.kept and c.name != "out") <= plan.limit
