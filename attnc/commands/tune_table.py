"""The ranked tables that `attnc tune` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from attnc.commands.columns import aligned
from attnc.commands.kernel_shapes import kernels_on
from attnc.devices import Device
from attnc.driver import Compilation
from attnc.explain.report import schedule_for
from attnc.tune.choose import Candidate, rank_correlation, ranked, reason, time_text, with_reasons
from attnc.tune.records import Record

SHOWN = 8  # rows of a kernel
COLUMNS = (
    "", "schedule", "predicted", "measured", "limited by", "registers", "spills", "shared", "blocks"
)  # fmt: skip


def tuning_lines(made: Compilation, device: Device, record: Record) -> Iterator[str]:
    """A table for each kernel, its winner and why, and what is out and why."""
    spec = made.spec
    sizes = f"batch {spec.sizes.batch}, {spec.sizes.q_len} queries, {spec.sizes.kv_len} keys"
    yield f"{spec.name} on {device.name} ({device.target}), {spec.dtype}, {sizes}"
    for kernel in kernels_on(made.program, device.target):
        usual = asdict(schedule_for(spec, made.program, device.target, kernel.name))
        yield f"\n{kernel.name}"
        yield from _kernel_lines(record.of(kernel.name), tuple(usual.items()))


def _kernel_lines(
    candidates: Sequence[Candidate], usual: tuple[tuple[str, int], ...]
) -> Iterator[str]:
    best, *others = ranked(candidates)
    rows = [_row(place, one) for place, one in enumerate([best, *others][:SHOWN], 1)]
    yield from aligned([COLUMNS, *rows])
    if len(others) >= SHOWN:
        yield f"  and {len(others) + 1 - SHOWN} slower ones"
    yield f"  {reason(best, others, usual)}"
    yield f"  why: {best.why}"
    if (rho := rank_correlation(candidates)) is not None:
        yield f"  predictions rank what was measured with a correlation of {rho:.2f}"
    out = Counter(one.problem for one in with_reasons(candidates) if one.problem)
    for problem, count in out.most_common():
        yield f"  out, {count}: {problem}"


def _row(place: int, one: Candidate) -> tuple[str, ...]:
    return (
        str(place),
        one.text,
        time_text(one.predicted),
        "" if one.measured is None else time_text(one.measured),
        one.limited_by,
        str(one.registers),
        str(one.spills),
        str(one.shared_bytes),
        str(one.blocks),
    )
