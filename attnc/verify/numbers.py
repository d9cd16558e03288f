"""Run a generated module on its cases and hold every result against the dense reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case, cases_for
from attnc.verify.far_memory import NoRoom
from attnc.verify.inputs import DTYPES, build_call, crowded_call
from attnc.verify.reference import Call, Dense, dense
from attnc.verify.rows import FAKE, NumberRow, title_of
from attnc.verify.tolerance import Comparison, compare_aux, compare_out
from attnc.verify.ways import (
    Answer,
    Misbehaved,
    Way,
    launch_of,
    other_layout,
    run,
    run_fake,
    same_bits,
)

Progress = Callable[[str], None]
GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)  # programs that CUDA launches along each axis
CROWD = "more programs than a grid holds"

INTERPRETER_CANNOT_SHOW = (
    "bf16 arithmetic (computed in float32 around the interpreter)",
    "TF32 products (always full float32)",
    "races between programs (they run one after another)",
    "shared memory, registers, warps and pipeline stages",
    "limits of the launch grid and of the smallest matrix product",
    "what a masked load without `other` returns (0 here; the source is scanned for it)",
    "a NaN score inside a row maximum (dropped here and on the GPU alike)",
)


@dataclass(frozen=True, slots=True)
class Question:
    """One case with its right answer; ways on the CPU share its call."""

    spec: AttentionSpec
    case: Case
    call: Call
    truth: Dense
    plain: Dense

    @property
    def has_value(self) -> bool:
        """Whether the formula has a value on these inputs; on ordinary ones it must."""
        results = (self.truth.out, self.plain.out)
        return not (self.case.cruel and any(bool(out.isnan().any()) for out in results))


def compare_numbers(
    spec: AttentionSpec,
    ways: Sequence[Way],
    *,
    cases: tuple[Case, ...] | None = None,
    progress: Progress | None = None,
) -> Iterator[NumberRow]:
    """Compare ways into a module with the reference, case by case; stop reading to stop working."""
    for case in cases_for(spec) if cases is None else cases:
        fitting = [way for way in ways if not case.apart or way.name == "interpreter"]
        yield from _compare_case(spec, case, fitting, progress)
    for way in (way for way in ways if way.name == "interpreter" and cases is None):
        yield NumberRow(CROWD, "fp16", way.name, judge_grid(spec, way))


def _compare_case(
    spec: AttentionSpec, case: Case, ways: Sequence[Way], progress: Progress | None
) -> Iterator[NumberRow]:
    title = title_of(case)
    try:
        question = _pose(spec, case)
    except NoRoom as error:
        yield from (NumberRow(title, case.dtype, way.name, _not_run(error)) for way in ways)
        return
    for way in ways:
        if progress:
            progress(f"{way.name}: {title}, {case.dtype}")
        for comparison in _judge(question, way):
            yield NumberRow(title, case.dtype, way.name, comparison)


def judge_grid(spec: AttentionSpec, way: Way) -> Comparison:
    """Judge a call that no grid has room for: it must be refused, or cut to what one holds."""
    try:
        grid = launch_of(way, crowded_call(spec))
    except Misbehaved as error:
        return Comparison("grid", problem=f"raised {error}")
    if grid is None:
        return Comparison("grid", note="refused by name")
    if not grid:
        return Comparison("grid", problem="launched nothing")
    full = any(size > most for size, most in zip(grid, GRID, strict=False))
    named = " x ".join(map(str, grid))
    return Comparison("grid", problem=f"would launch {named} programs" if full else "")


def judge(
    spec: AttentionSpec, module: ModuleType, case: Case, way: str = "interpreter"
) -> list[Comparison]:
    """Run one case by one way."""
    return _judge(_pose(spec, case), Way(module, way))


def _pose(spec: AttentionSpec, case: Case) -> Question:
    call = build_call(spec, case)
    return Question(spec, case, call, dense(call), dense(call, DTYPES[case.dtype]))


def _judge(question: Question, way: Way) -> list[Comparison]:
    """Judge one way; whatever the module raises is a failure of the case."""
    if not question.has_value:
        return [Comparison("out", note="the formula has no value on these inputs")]
    try:
        return _compare(question, way)
    except Misbehaved as error:
        if isinstance(error.__cause__, NoRoom):  # for its results
            return [_not_run(error.__cause__)]
        return [Comparison("out", problem=f"raised {error}")]


def _not_run(error: NoRoom) -> Comparison:
    return Comparison("out", note=f"not run: {error}", undecided=True)


def _compare(question: Question, way: Way) -> list[Comparison]:
    case, truth, plain = question.case, question.truth, question.plain
    call = question.call
    if way.device != "cpu":
        call = build_call(question.spec, case, device=way.device)
    answer = run(way, call, case)
    results = [compare_out(answer.out.cpu(), truth, plain)]
    for name, tensor in answer.aux.items():
        results.append(compare_aux(name, tensor.cpu(), truth, plain))
    if answer.overrun:  # a GPU does not refuse stray accesses
        results.append(Comparison("memory", problem="wrote outside its output"))
    if case.repeated:
        results += _repeat(question, way, answer)
    if way.has_fake and not case.apart:
        results.append(Comparison(FAKE, problem=other_layout(run_fake(way, call, case), answer)))
    return results


def _repeat(question: Question, way: Way, first: Answer) -> Iterator[Comparison]:
    spec, case = question.spec, question.case
    again = run(way, build_call(spec, case, device=way.device), case)
    clean = run(way, build_call(spec, case, poisoned=False, device=way.device), case)
    if not same_bits(again, first):
        yield Comparison("out", problem="a second run gave other bits")
    if not same_bits(clean, first):
        yield Comparison("out", problem="what nothing may see changed the result")
