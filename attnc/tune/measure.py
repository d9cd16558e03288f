"""Measure schedules of a module on the device at hand, once each has proved right there.

A schedule counts only where outputs and, for a kernel of the backward, gradients stay within the
tolerance of `attnc verify` under it: one that is fast and wrong must not win.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from types import ModuleType
from unittest import mock

import torch

from attnc.spec.schema import AttentionSpec
from attnc.tune.choose import Candidate, ranked
from attnc.verify.cases import Case, cases_for, gradient_cases
from attnc.verify.gradient_numbers import judge_gradients
from attnc.verify.gradient_truth import differentiable
from attnc.verify.inputs import DTYPES, long_call
from attnc.verify.numbers import judge
from attnc.verify.reference import Call
from attnc.verify.tolerance import Comparison
from attnc.verify.ways import Way, ask

Schedule = Mapping[str, int]
Stopwatch = Callable[[Callable[[], object]], float]  # seconds of one run of a piece of work
ENOUGH = 3  # cases that a schedule must pass
MEASURED = 4  # schedules of each kernel, the best by prediction


@dataclass(frozen=True, slots=True)
class Bench:
    """A module, loaded to run on a device, with what it is measured by.

    way: cuda, or interpreter where there is none.  element: fp16 | bf16 | fp32.
    """

    spec: AttentionSpec
    module: ModuleType
    way: str
    element: str
    stopwatch: Stopwatch

    def problem(self, kernel: str, schedule: Schedule) -> str:
        """What is wrong under a schedule of one kernel; empty if nothing is."""
        with self._scheduled({kernel: schedule}):
            for case in self._cases(kernel):
                for found in self._judged(kernel, case):
                    if not found.ok:
                        return f"{case.name}: {found.what} {found.problem or 'is out of tolerance'}"
        return ""

    def seconds(self, kernel: str, schedules: Mapping[str, Schedule], case: Case) -> float:
        """Time the pass that runs a kernel, under a schedule of each kernel.

        Kernels of a pass run one after another, so that a difference between two schedules of one
        is a difference between two passes.
        """
        device = "cuda" if self.way == "cuda" else "cpu"
        call = long_call(self.spec, case, device)
        with self._scheduled(schedules):
            return self.stopwatch(self._work(kernel, call, case))

    def _work(self, kernel: str, call: Call, case: Case) -> Callable[[], object]:
        way = Way(self.module, self.way)
        if not kernel.startswith("backward"):
            return lambda: ask(way, call.tensors, call, case)
        wanted = [name for name in differentiable(call) if name in call.tensors]
        leaves = {name: call.tensors[name].detach().requires_grad_() for name in wanted}
        answer = ask(way, {**call.tensors, **leaves}, call, case)
        results = [result for result in answer.results.values() if result.requires_grad]
        cotangents = [torch.randn_like(result) for result in results]

        def pull() -> object:
            return torch.autograd.grad(
                results, [*leaves.values()], cotangents, retain_graph=True, allow_unused=True
            )

        return pull

    def _cases(self, kernel: str) -> Iterator[Case]:
        every = gradient_cases(self.spec) if kernel.startswith("backward") else cases_for(self.spec)
        size = DTYPES[self.element].itemsize
        usual = (case for case in every if case.tiles is None and not case.apart)
        fitting = (case for case in usual if DTYPES[case.dtype].itemsize == size)
        yield from (replace(case, repeated=False) for case in islice(fitting, ENOUGH))

    def _judged(self, kernel: str, case: Case) -> Sequence[Comparison]:
        if kernel.startswith("backward"):
            return judge_gradients(self.spec, Way(self.module, self.way), case)
        return judge(self.spec, self.module, case, self.way)

    @contextmanager
    def _scheduled(self, schedules: Mapping[str, Schedule]) -> Iterator[None]:
        """The module with these schedules in place of every row of its table for the element."""
        size = DTYPES[self.element].itemsize
        table: dict[tuple[str, int, str], Schedule] = self.module.SCHEDULES
        wanted = (key for key in table if key[1] == size and key[2] in schedules)
        forget: Callable[[], None] = self.module.default_schedule.cache_clear
        with mock.patch.dict(table, {key: dict(schedules[key[2]]) for key in wanted}):
            forget()  # what the table said before
            try:
                yield
            finally:
                forget()


def measured(
    bench: Bench,
    found: Sequence[Candidate],
    case: Case,
    seconds: float,
    progress: Callable[[str], None],
) -> tuple[Candidate, ...]:
    """The candidates, with times and faults of the best few of each kernel.

    seconds: of all measuring together; what it does not suffice for keeps its prediction.
    """
    until = time.monotonic() + seconds
    kernels = dict.fromkeys(one.kernel for one in found)
    known = {name: [one for one in found if one.kernel == name] for name in kernels}
    best = {name: dict(ranked(ones)[0].schedule) for name, ones in known.items() if ranked(ones)}
    for name in best:
        for one in ranked(known[name])[:MEASURED]:
            if time.monotonic() > until:
                return _flat(known)
            progress(f"{name} {one.text} on the device")
            now = _tried(bench, one, best, case)
            known[name][known[name].index(one)] = now
        if winners := ranked(known[name]):
            best[name] = dict(winners[0].schedule)
    return _flat(known)


def _tried(bench: Bench, one: Candidate, best: Mapping[str, Schedule], case: Case) -> Candidate:
    schedule = dict(one.schedule)
    if problem := bench.problem(one.kernel, schedule):
        return replace(one, problem=f"wrong on the device: {problem}")
    return replace(one, measured=bench.seconds(one.kernel, {**best, one.kernel: schedule}, case))


def _flat(known: Mapping[str, Sequence[Candidate]]) -> tuple[Candidate, ...]:
    return tuple(one for ones in known.values() for one in ones)


def device_stopwatch(budget: float) -> Stopwatch:
    """Median of repetitions by CUDA events, L2 flushed before each (Triton's do_bench)."""
    from triton.testing import do_bench

    def seconds(work: Callable[[], object]) -> float:
        milliseconds = do_bench(work, warmup=25, rep=int(1e3 * budget), return_mode="median")
        assert isinstance(milliseconds, float)
        return 1e-3 * milliseconds

    return seconds
