"""Run the backward of a generated module on its cases and hold every gradient against autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case, gradient_cases
from attnc.verify.far_memory import NoRoom
from attnc.verify.gradient_calls import Pull, Pulled, build_pull, pull, pull_fake
from attnc.verify.gradient_truth import GradientTruth, differentiable, true_gradients
from attnc.verify.inputs import build_call
from attnc.verify.rows import FAKE, NumberRow, title_of
from attnc.verify.tolerance import Comparison, compare_gradient
from attnc.verify.ways import Misbehaved, Way, layout_of, run, same_tensor

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Question:
    """One backward with its right answer; ways on the CPU share it."""

    spec: AttentionSpec
    case: Case
    asked: Pull
    truth: GradientTruth

    @property
    def names(self) -> tuple[str, ...]:
        """All gradients that it asks for."""
        return self.asked.names

    def has_value(self, name: str) -> bool:
        """Whether a gradient has a value on these inputs; on ordinary ones it must."""
        found = (self.truth.exact[name], self.truth.plain[name])
        return not (self.case.cruel and any(not bool(g.isfinite().all()) for g in found))


def compare_gradients(
    spec: AttentionSpec,
    ways: Sequence[Way],
    *,
    cases: tuple[Case, ...] | None = None,
    progress: Progress | None = None,
) -> Iterator[NumberRow]:
    """Compare gradients with the reference, case by case; stop reading to stop working."""
    if not spec.backward:
        return
    wanted = differentiable(build_call(spec, gradient_cases(spec)[0]))
    for case in gradient_cases(spec) if cases is None else cases:
        fitting = [way for way in ways if not case.apart or way.name == "interpreter"]
        yield from _compare_case(spec, case, wanted, fitting, progress)


def _compare_case(
    spec: AttentionSpec,
    case: Case,
    wanted: tuple[str, ...],
    ways: Sequence[Way],
    progress: Progress | None,
) -> Iterator[NumberRow]:
    title = title_of(case)
    try:
        question = _pose(spec, case, wanted)
    except NoRoom as error:
        unknown = Comparison("gradients", note=f"not run: {error}", undecided=True)
        yield from (NumberRow(title, case.dtype, way.name, unknown) for way in ways)
        return
    for way in ways:
        if progress:
            progress(f"{way.name}: gradients, {title}, {case.dtype}")
        for comparison in _judge(question, way):
            yield NumberRow(title, case.dtype, way.name, comparison)


def judge_gradients(spec: AttentionSpec, way: Way, case: Case) -> list[Comparison]:
    """Run one case by one way."""
    return _judge(_pose(spec, case, differentiable(build_call(spec, case))), way)


def _pose(spec: AttentionSpec, case: Case, names: tuple[str, ...]) -> Question:
    asked = build_pull(spec, case, names)
    truth = true_gradients(asked.call, asked.cotangents, names)
    return Question(spec, case, asked, truth)


def _judge(question: Question, way: Way) -> list[Comparison]:
    """Judge one way; whatever the module raises is a failure of the case."""
    try:
        return list(_compare(question, way))
    except Misbehaved as error:
        if isinstance(error.__cause__, NoRoom):  # for its results
            return [Comparison("gradients", note=f"not run: {error.__cause__}", undecided=True)]
        return [Comparison("gradients", problem=f"raised {error}")]


def _compare(question: Question, way: Way) -> Iterator[Comparison]:
    case = question.case
    found = pull(way, _asked(question, way), case)
    yield from _against(question, found)
    if found.overrun:  # a GPU does not refuse stray accesses
        yield Comparison("memory", problem="the backward wrote outside its results")
    if case.repeated:
        yield from _results(question, way, found)
        yield from _repeat(question, way, found)
        yield from _parts(question, way)
    if case.repeated and way.has_fake:
        yield Comparison(FAKE, problem=_fake_problem(question, way, found))


def _asked(
    question: Question, way: Way, names: tuple[str, ...] = (), poisoned: bool = True
) -> Pull:
    """The question as it is put to a way: all of its gradients, or some."""
    names = names or question.names
    if way.device == "cpu" and poisoned:
        return replace(question.asked, names=names)
    spec, case = question.spec, question.case
    return build_pull(spec, case, names, poisoned=poisoned, device=way.device)


def _against(question: Question, found: Pulled) -> Iterator[Comparison]:
    truth = question.truth
    for name in question.names:
        what = f"grad {name}"
        if not question.has_value(name):
            yield Comparison(what, note="the derivative has no value on these inputs")
        elif name in found.gradients:
            yield compare_gradient(name, found.gradients[name].cpu(), truth)
        elif truth.exact[name].count_nonzero():
            yield Comparison(what, problem="no gradient came")


def _repeat(question: Question, way: Way, first: Pulled) -> Iterator[Comparison]:
    """A second run, one without the NaNs, and runs for fewer gradients give the same bits."""
    case, names = question.case, question.names
    again = pull(way, _asked(question, way), case)
    clean = pull(way, _asked(question, way, poisoned=False), case)
    yield from _same(again, first, "a second run gave other bits")
    yield from _same(clean, first, "what nothing may see changed the result")
    for some in (*((name,) for name in names), ("q", names[-1])):
        part = pull(way, _asked(question, way, some), case)
        words = f"asked alone, {' and '.join(dict.fromkeys(some))} gave other bits"
        yield from _same(part, first, words, some)


def _results(question: Question, way: Way, pulled: Pulled) -> Iterator[Comparison]:
    """A call that wants gradients gives the results of one that wants none."""
    plain = run(way, _asked(question, way).call, question.case)
    for name, result in plain.results.items():
        if not same_tensor(pulled.results[name], result):
            yield Comparison(name, problem="where a gradient is wanted, it has other bits")


def _same(
    one: Pulled, other: Pulled, problem: str, names: tuple[str, ...] = ()
) -> Iterator[Comparison]:
    for name in names or other.gradients:
        came, wanted = one.gradients.get(name), other.gradients.get(name)
        if came is None or wanted is None:
            if came is not wanted:
                yield Comparison(f"grad {name}", problem="it does not always come")
        elif not same_tensor(came, wanted):
            yield Comparison(f"grad {name}", problem=problem)


def _parts(question: Question, way: Way) -> Iterator[Comparison]:
    """With a cotangent of one output only: autograd hands None for the others."""
    cotangents = question.asked.cotangents
    for name in cotangents if len(cotangents) > 1 else ():
        given = {name: cotangents[name]}
        truth = true_gradients(question.asked.call, given, question.names)
        alone = _asked(question, way)
        alone = replace(alone, cotangents={name: alone.cotangents[name]})
        found = pull(way, alone, question.case)
        for result in _against(replace(question, truth=truth), found):
            yield replace(result, what=f"{result.what} of {name} alone")


def _fake_problem(question: Question, way: Way, real: Pulled) -> str:
    promised = pull_fake(way, _asked(question, way), question.case)
    for name, fake in promised.items():
        came = layout_of(real.gradients[name])
        for what, value in layout_of(fake).items():
            if came[what] != value:
                return f"grad {name} has {what} {came[what]}, its fake {value}"
    return ""
