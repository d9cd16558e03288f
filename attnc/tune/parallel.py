"""Compile many schedules at once, each in a process of its own: Triton's compiler holds the GIL."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from attnc.tune.operands import Operands
from attnc.tune.resources import KernelResources, report

Wanted = tuple[str, Mapping[str, int]]  # a kernel and a schedule of it


@dataclass(frozen=True, slots=True)
class Source:
    """A generated module and what its kernels are compiled for."""

    text: str
    stem: str
    operands: Operands
    target: str
    element: str  # fp16 | bf16 | fp32


@dataclass(frozen=True, slots=True)
class Attempt:
    """A schedule of a kernel, compiled; `problem` says why it was not."""

    kernel: str
    schedule: tuple[tuple[str, int], ...]
    resources: KernelResources | None
    problem: str = ""


def compile_all(source: Source, wanted: Sequence[Wanted], workers: int) -> Iterator[Attempt]:
    """Compile every kernel and schedule, and yield each as it is done, in no certain order.

    A compiler that dies takes its pool along; what was not done by then is compiled one by one.
    """
    if workers == 1:
        yield from (attempt(source, kernel, schedule) for kernel, schedule in wanted)
        return
    left = list(wanted)
    try:
        for done in _pooled(source, left, workers):
            left.remove((done.kernel, dict(done.schedule)))
            yield done
    except BrokenProcessPool:
        for kernel, schedule in left:
            yield _alone(source, kernel, schedule)


def attempt(source: Source, kernel: str, schedule: Mapping[str, int]) -> Attempt:
    """Compile one schedule; whatever Triton's compiler raises is a schedule it cannot take."""
    fields = tuple(schedule.items())
    try:
        found = report(
            source.text, source.operands, source.target, source.element, schedule,
            source.stem, kernel,
        )  # fmt: skip
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        return Attempt(kernel, fields, None, f"{type(error).__name__}: {lines[-1][:200]}")
    return Attempt(kernel, fields, found[0])


def _pooled(source: Source, wanted: Sequence[Wanted], workers: int) -> Iterator[Attempt]:
    # spawned, not forked: a fork of a process that has torch's threads may hang
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(wanted)), context) as pool:
        futures = [pool.submit(attempt, source, kernel, schedule) for kernel, schedule in wanted]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _alone(source: Source, kernel: str, schedule: Mapping[str, int]) -> Attempt:
    try:
        (done,) = _pooled(source, [(kernel, schedule)], 1)
    except BrokenProcessPool:
        return Attempt(kernel, tuple(schedule.items()), None, "the compiler died")
    return done
