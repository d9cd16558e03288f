"""Prove for all sizes that a READY program visits, selects and touches what its spec says.

Lengths, params, heads, tile numbers and tensor elements are free; the tile shape is concrete.  A
claim that the solver refutes is evaluated again on the numbers of the counterexample, without the
solver; only if it fails there too is it reported as refuted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import z3

from attnc.ir.nodes import Kernel, Program
from attnc.spec.schema import AttentionSpec
from attnc.symbols import MAX_PARAM
from attnc.verify.access_claims import access_claims, hidden_key_claims
from attnc.verify.ahead_claims import ahead_claims
from attnc.verify.claims import Claim, Tiling, coverage_claims
from attnc.verify.concrete_meaning import ConcreteMeaning
from attnc.verify.descriptor_claims import descriptor_claims
from attnc.verify.integer_claims import overflow_claims
from attnc.verify.meaning import Subject
from attnc.verify.obligations import Obligation
from attnc.verify.output_claims import grid_claims, store_claims
from attnc.verify.owner_claims import owner_claims
from attnc.verify.piece_claims import piece_claims
from attnc.verify.round_claims import round_claims
from attnc.verify.solver_meaning import SolverMeaning
from attnc.verify.source_text import TILES
from attnc.verify.tightness import tightness_claims

Blocks = tuple[int, int]  # BLOCK_Q, BLOCK_KV

WIDE = (32, 128)
EVERY_SHAPE = tuple(product(TILES, TILES))  # all that a generated launcher accepts
EFFORT = 4_000_000  # z3's own resource count: about a second or two
Order = tuple[int, int]  # z3's random seed; its arithmetic: 2 is the older simplex, 6 the newer
# z3's luck varies a thousandfold: one order of search finds what another misses
ORDERS: tuple[Order, ...] = ((0, 6), (0, 2), (1, 6), (1, 2))
WORST_FIRST = ("refuted", "undecided", "proved")
SMALL_LENGTH, SMALL_PARAM = 300, 40


def prove(
    spec: AttentionSpec, program: Program, blocks: Iterable[Blocks] | None = None
) -> tuple[Obligation, ...]:
    """Discharge every claim about every kernel of a READY program.

    `blocks`: tile shapes; those of `shapes_of` when left out.
    Returns: an obligation for each claim, over all tile shapes together; `effort` is z3's resource
    count, which depends on nothing but the program and the spec.
    """
    given = list(dict.fromkeys(blocks or ()))
    found: list[Obligation] = []
    for kernel in program.kernels:
        shapes = given or shapes_of(program, kernel)
        for claim in claims_of(Tiling(kernel)):
            name = claim.name if len(program.kernels) == 1 else f"{kernel.name}: {claim.name}"
            found.append(replace(_over_shapes(claim, spec, kernel, shapes), name=name))
    return tuple(found)


def shapes_of(program: Program, kernel: Kernel) -> list[Blocks]:
    """The distinct tile shapes of a kernel's schedules, and one that is wide, not tall.

    A call may bring a schedule of its own, so a program must not live on tiles being tall.
    """
    rows = program.interface.schedules
    schedules = (row.schedule for row in rows if row.kernel == kernel.name and row.is_listed)
    return list(dict.fromkeys([*((s.block_q, s.block_kv) for s in schedules), WIDE]))


def claims_of(tiling: Tiling) -> list[Claim]:
    """All claims about a kernel."""
    return [
        *coverage_claims(tiling),
        *round_claims(tiling),
        *owner_claims(tiling),
        *piece_claims(tiling),
        *ahead_claims(tiling),
        *descriptor_claims(tiling),
        *access_claims(tiling),
        *hidden_key_claims(tiling),
        *overflow_claims(tiling),
        *grid_claims(tiling),
        *store_claims(tiling),
        *tightness_claims(tiling),
    ]


def _over_shapes(
    claim: Claim, spec: AttentionSpec, kernel: Kernel, shapes: list[Blocks]
) -> Obligation:
    """Prove a claim at every tile shape; report what refutes it, else where it is undecided.

    Once a shape is undecided, the others are looked at in one order of search each, for a
    refutation, and until that has cost as much as one search may.  A proof that read one size of
    the tile alone, or none, is one for every shape that has it.
    """
    found: list[Obligation] = []
    read: set[str] = set()  # the sizes that a claim reads do not depend on what they are
    covered: set[tuple[int, ...]] = set()
    doubted = 0  # effort after the first shape in doubt
    for block_q, block_kv in shapes if claim.depends_on_tiles else shapes[:1]:
        sizes = {"BLOCK_Q": block_q, "BLOCK_KV": block_kv}
        if tuple(sizes[name] for name in sorted(read)) in covered:
            continue
        in_doubt = any(not one.ok for one in found)
        orders = ORDERS[:1] if in_doubt else ORDERS
        one = prove_claim(claim, Subject(spec, kernel, block_q, block_kv), orders, read)
        covered.add(tuple(sizes[name] for name in sorted(read)))
        where = "" if one.ok else f"{block_q}x{block_kv}: "
        found.append(replace(one, detail=where + one.detail))
        doubted += one.effort if in_doubt else 0
        if one.status == "refuted" or doubted > EFFORT:
            break
    worst = min(found, key=lambda one: (WORST_FIRST.index(one.status), not one.detail))
    return replace(worst, effort=sum(one.effort for one in found))


def prove_claim(
    claim: Claim,
    subject: Subject,
    orders: tuple[Order, ...] = ORDERS,
    read: set[str] | None = None,
) -> Obligation:
    """Prove a claim at one tile shape; `read` receives the sizes of the tile that it depends on.

    Integer tensors may hold any 32-bit number; where a claim needs less, it is proved for elements
    of at most the size of a param, and says so.
    """
    read = set() if read is None else read
    result = _attempt(claim, subject, orders, read)
    if result.status == "proved" or not _holds_integers(subject):
        return result
    modest = _attempt(claim, replace(subject, largest_element=MAX_PARAM), orders, read)
    if modest.status != "proved":
        return result
    note = f"for integer tensor elements up to {MAX_PARAM} in size"
    return replace(modest, detail=note, effort=result.effort + modest.effort)


def _holds_integers(subject: Subject) -> bool:
    return any(tensor.dtype in ("int32", "int64") for tensor in subject.spec.tensors)


def _attempt(
    claim: Claim, subject: Subject, orders: tuple[Order, ...], read: set[str]
) -> Obligation:
    """Search in one order after another until one of them decides."""
    first, *others = orders
    found = _search(claim, subject, first, read)
    for order in others:
        if found.status != "undecided":
            break
        again = _search(claim, subject, order, read)
        found = replace(again, effort=found.effort + again.effort)
    return found


def _search(claim: Claim, subject: Subject, order: Order, read: set[str]) -> Obligation:
    """In a context of its own: what was tried before changes z3's order of search."""
    meaning = SolverMeaning(subject)
    conclusion = claim.build(meaning)
    read |= meaning.sizes_read
    solver = z3.Solver(ctx=meaning.z3.context)
    solver.set("rlimit", EFFORT)
    seed, arithmetic = order
    solver.set("random_seed", seed)
    solver.set("arith.solver", arithmetic)
    solver.add(*meaning.hypotheses, *meaning.z3.facts, meaning.negate(conclusion))
    answer = _answer(solver)
    effort = int(solver.statistics().get_key_value("rlimit count"))
    if answer == z3.unsat:
        return Obligation(claim.name, "proved", "", effort)
    if answer == z3.unknown:
        return Obligation(claim.name, "undecided", f"z3: {solver.reason_unknown()}", effort)
    status, detail = _judge(claim, meaning, _readable_model(meaning, solver))
    return Obligation(claim.name, status, detail, effort)


def _answer(solver: z3.Solver) -> z3.CheckSatResult:
    """What z3 says; it catches the user's interrupt, and calls that unknown."""
    answer = solver.check()
    if answer == z3.unknown and solver.reason_unknown() == "interrupted from keyboard":
        raise KeyboardInterrupt
    return answer


def _readable_model(meaning: SolverMeaning, solver: z3.Solver) -> Any:
    """A counterexample with small numbers if there is one."""
    model = solver.model()
    solver.push()
    for name, term in meaning.picked.items():
        limit = SMALL_LENGTH if name in ("q_len", "kv_len") else SMALL_PARAM
        if z3.is_int(term) and meaning.subject.limits(name) is not None:
            solver.add(-limit <= term, term <= limit)
    small = solver.model() if _answer(solver) == z3.sat else model
    solver.pop()
    return small


def _judge(claim: Claim, meaning: SolverMeaning, model: Any) -> tuple[str, str]:
    """Evaluate the claim on the counterexample's numbers."""
    values = {name: _number(model, term) for name, term in meaning.picked.items()}
    text = ", ".join(f"{name} = {value}" for name, value in values.items())

    def element(tensor: str, indices: list[int]) -> Any:
        inside = meaning.z3.truth_value(True)
        terms = [meaning.z3.number(index) for index in indices]
        return _number(model, meaning.element(tensor, terms, inside))

    concrete = ConcreteMeaning(meaning.subject, values, element)
    try:
        conclusion = claim.build(concrete)
    except LookupError as missing:
        return "undecided", f"z3's counterexample cannot be evaluated ({missing}): {text}"
    if all(concrete.hypotheses) and not conclusion:
        return "refuted", text
    return "undecided", f"z3's counterexample holds only for opaque parts: {text}"


def _number(model: Any, term: Any) -> int | float:
    value = model.eval(term, model_completion=True)
    if z3.is_int_value(value):
        return value.as_long()
    if z3.is_rational_value(value):
        return float(value.as_fraction())
    raise LookupError(f"{term} has no value")
