"""`attnc compile --target`: what the kernel costs on devices that are not here."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from attnc.commands.columns import aligned
from attnc.commands.judges import require
from attnc.commands.kernel_shapes import kernels_on
from attnc.driver import Compilation
from attnc.explain.report import schedule_for
from attnc.targets import find_target

if TYPE_CHECKING:
    from attnc.tune.resources import KernelResources

Reports = dict[str, list["KernelResources"]]  # by the spec's name


def target_reports(made: Sequence[Compilation], targets: str) -> Reports:
    """Cross-compile every kernel for every target of a comma-separated list, in its nominal dtype.

    Raises: UnknownTarget, RefusedTarget, NeedsPackages; ScheduleDoesNotFit, with what would fit.
    """
    names = [find_target(name.strip()).name for name in targets.split(",")]
    require("--target", "torch", "triton")
    gc.enable()  # off since the start, for the sake of short commands
    return {one.spec.name: _reports(one, names) for one in made}


def _reports(one: Compilation, targets: Iterable[str]) -> list[KernelResources]:
    from attnc.tune.fit import checked_report
    from attnc.tune.operands import operands_of

    found: list[KernelResources] = []
    wanted = [(name, kernel) for name in targets for kernel in kernels_on(one.program, name)]
    for target, kernel in wanted:
        found += checked_report(
            one.module.source,
            operands_of(one.spec),
            target,
            one.spec.dtype,
            asdict(schedule_for(one.spec, one.program, target, kernel.name)),
            one.spec.name,
            kernel.name,
        )
    return found


def report_lines(rows: Sequence[KernelResources]) -> list[str]:
    """Print the resources of each kernel, then what its hot loops are made of."""
    from attnc.tune.tables import COLUMNS, MIX_COLUMNS, mix_table, resource_table

    lines = aligned([COLUMNS, *resource_table(rows)])
    lines += ["", *aligned([MIX_COLUMNS, *mix_table(rows)])]
    return lines + [f"  {row.target}: {finding}" for row in rows for finding in row.findings]
