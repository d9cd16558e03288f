"""Refuse a schedule that a target cannot run, and say which one it can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product

from attnc.errors import UserError
from attnc.tune.operands import Operands
from attnc.tune.resources import FORWARD, KernelResources, report, schedule_text

MOST_TRIES = 12  # smaller schedules compiled in search of one that fits
LEAST_TILE = 16


class ScheduleDoesNotFit(UserError):
    """Report a schedule that a target cannot run, and one that it can."""

    code = "user/schedule-does-not-fit"
    message = "{kernel} at {schedule} in {element} does not fit {target}: {problems}"
    help = "{remedy}"


def checked_report(
    source: str,
    operands: Operands,
    target: str,
    element: str,
    schedule: Mapping[str, int],
    stem: str = "kernel",
    kernel: str = FORWARD,
) -> tuple[KernelResources, ...]:
    """Report, and refuse a schedule that does not fit.

    Raises: ScheduleDoesNotFit, with the largest smaller schedule that fits.
    """
    found = report(source, operands, target, element, schedule, stem, kernel)
    worst = next((one for one in found if not one.fits), None)
    if worst is None:
        return found
    best = largest_that_fits(source, operands, target, element, schedule, stem, kernel)
    smaller = f"this fits: {schedule_text(best)}" if best else "no smaller schedule fits either"
    raise ScheduleDoesNotFit(
        kernel=worst.kernel,
        schedule=schedule_text(schedule),
        element=element,
        target=target,
        problems="; ".join(worst.problems),
        remedy=smaller,
    )


def largest_that_fits(
    source: str,
    operands: Operands,
    target: str,
    element: str,
    schedule: Mapping[str, int],
    stem: str = "kernel",
    kernel: str = FORWARD,
) -> dict[str, int] | None:
    """Find, by compiling, the largest schedule below the given one that the target can run.

    Larger means a larger tile, then more stages.
    """
    for smaller in islice(_smaller(schedule), MOST_TRIES):
        found = report(source, operands, target, element, smaller, stem, kernel)
        if all(one.fits for one in found):
            return smaller
    return None


def _smaller(schedule: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Every schedule no larger in any way and smaller in one, largest tile first."""
    choices = [_halved(schedule[field], LEAST_TILE) for field in ("block_q", "block_kv")]
    stages = range(schedule["stages"], 0, -1)
    tiles = sorted(product(*choices), key=lambda tile: -tile[0] * tile[1])
    for (block_q, block_kv), stage in product(tiles, stages):
        smaller = {**schedule, "block_q": block_q, "block_kv": block_kv, "stages": stage}
        if smaller != dict(schedule):
            yield smaller


def _halved(size: int, least: int) -> list[int]:
    sizes = []
    while size >= least:
        sizes.append(size)
        size //= 2
    return sizes
