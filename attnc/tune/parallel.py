"""Compile many schedules at once, each in a process of its own: Triton's compiler holds the GIL."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from attnc.tune.operands import Operands
from attnc.tune.resources import KernelResources, report


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


def compile_all(
    source: Source, wanted: Sequence[tuple[str, Mapping[str, int]]], workers: int
) -> Iterator[Attempt]:
    """Compile every (kernel, schedule), and yield each as it is done, in no certain order."""
    if workers == 1:
        yield from (_compile(source, kernel, schedule) for kernel, schedule in wanted)
        return
    # spawned, not forked: a fork of a process that has torch's threads may hang
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        futures: list[Future[Attempt]] = [
            pool.submit(_compile, source, kernel, dict(schedule)) for kernel, schedule in wanted
        ]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _compile(source: Source, kernel: str, schedule: Mapping[str, int]) -> Attempt:
    fields = tuple(schedule.items())
    try:
        found = report(
            source.text, source.operands, source.target, source.element, schedule,
            source.stem, kernel,
        )  # fmt: skip
    except Exception as error:  # whatever Triton's compiler raises, a schedule it cannot take
        first_line = (str(error).splitlines() or [""])[0][:200]
        return Attempt(kernel, fields, None, f"{type(error).__name__}: {first_line}")
    return Attempt(kernel, fields, found[0])
