"""Search schedules for a device that need not be here: compile, read and predict them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from attnc.targets import Target, find_target
from attnc.tune.choose import Candidate
from attnc.tune.parallel import Attempt, Source, compile_all
from attnc.tune.predict import Prediction
from attnc.tune.resources import KernelResources
from attnc.tune.space import KernelShape, candidates

TURNED = "last_first"
Progress = Callable[[str], None]
Predict = Callable[[KernelResources], Prediction]


def search(
    source: Source,
    shapes: Sequence[KernelShape],
    target: Target,
    predict: Predict,
    *,
    element_bytes: int,
    most: int,
    workers: int,
    progress: Progress,
) -> tuple[Candidate, ...]:
    """Compile and judge schedules of every kernel; at most `most` of all kernels together.

    Returns: the rule's own of each kernel first, then its neighbours, nearest first; each followed
    by itself with the last tiles first, where that is predicted to take less.
    """
    choices = {shape.name: candidates(shape, target, element_bytes, most) for shape in shapes}
    turned = {one.name for one in shapes if TURNED in one.fields and TURNED not in one.asked}
    wanted = list(islice(_in_turn(choices), most))
    compiled: list[Candidate] = []
    also: dict[Candidate, tuple[Candidate, ...]] = {}
    for attempt in compile_all(source, wanted, workers):
        compiled.append(judged(attempt, source.element, predict))
        if attempt.kernel in turned and attempt.resources and not compiled[-1].problem:
            last_first = judged(_turned(attempt, attempt.resources), source.element, predict)
            pays = last_first.predicted < compiled[-1].predicted
            also[compiled[-1]] = (last_first,) if pays else ()
        progress(f"{len(compiled)} of {len(wanted)} schedules compiled")
    order = [(name, tuple(schedule.items())) for name, schedule in wanted]
    compiled.sort(key=lambda one: order.index((one.kernel, one.schedule)))
    return tuple(chain.from_iterable((one, *also.get(one, ())) for one in compiled))


def judged(attempt: Attempt, element: str, predict: Predict) -> Candidate:
    """What is known of a schedule once it is compiled."""
    blank = Candidate(attempt.kernel, attempt.schedule)
    code = attempt.resources
    if code is None:
        return replace(blank, problem=attempt.problem)
    known = replace(
        blank,
        registers=code.registers,
        spills=code.spills,
        loop_spills=sum(loop.count("spill") for loop in code.loops),
        shared_bytes=code.shared_bytes,
    )
    if code.problems:
        return replace(known, problem="; ".join(code.problems))
    has_products = find_target(code.target).matrix_unit != "none"
    if has_products and code.is_loop and element != "fp32" and not code.matrix_instructions:
        return replace(known, problem="no matrix instructions: its products run on the FP32 units")
    cost = predict(code)
    return replace(
        known, predicted=cost.seconds, limited_by=cost.limited_by, blocks=cost.blocks, why=cost.text
    )


def _turned(attempt: Attempt, code: KernelResources) -> Attempt:
    """The same loops, the last tiles launched first."""
    schedule = tuple((name, value or name == TURNED) for name, value in attempt.schedule)
    code = replace(code, schedule=(*code.schedule, (TURNED, True)))
    return replace(attempt, schedule=schedule, resources=code)


def _in_turn(
    choices: Mapping[str, Sequence[Mapping[str, int]]],
) -> Iterator[tuple[str, Mapping[str, int]]]:
    """One schedule of each kernel in turn, nearest first."""
    for turn in range(max(map(len, choices.values()))):
        for name, schedules in choices.items():
            if turn < len(schedules):
                yield name, schedules[turn]
