"""`attnc tune`: choose the schedule of every kernel of a spec for a device, here or not.

Without the device, schedules are compiled for it and ranked by a cost model; with it, the best few
are measured as well.  What was found is kept (`tune/records.py`), so that a second run answers at
once; --bake writes the winners beside the spec, where `compile` finds them, and compiles.
"""

from __future__ import annotations

import gc
import json
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.artifact import write_all
from attnc.commands.compile_specs import refuse_to_lose
from attnc.commands.inputs import read_one
from attnc.commands.judges import require
from attnc.commands.kernel_shapes import kernels_on
from attnc.commands.meter import Meter
from attnc.commands.outputs import writing
from attnc.devices import Device, find_device
from attnc.driver import Compilation, compile_spec
from attnc.errors import UserError
from attnc.plan.schedule import TENSOR_BYTES
from attnc.spec import with_tuned
from attnc.spec.frozen import FrozenMap
from attnc.spec.schema import AttentionSpec, Tuned, TunedRow
from attnc.spec.tuned import print_tuned, tuned_path
from attnc.targets import check_target, find_target
from attnc.verify.source_parts import kernels_hash

if TYPE_CHECKING:
    from attnc.tune.choose import Candidate
    from attnc.tune.records import Record


class NoDevice(UserError):
    """Report that no device was named and none is here."""

    code = "user/no-device"
    message = "no GPU is here to tune for"
    help = "name one that need not be here: --target h200; `attnc list devices` knows them"


class BadCount(UserError):
    """Report a number of things that is none."""

    code = "user/bad-count"
    message = "{option} must be at least 1, not {value}"


class NothingFits(UserError):
    """Report a kernel that no schedule makes run on a device."""

    code = "user/nothing-fits"
    message = "no schedule of {kernel} that was tried runs on {device}: {problem}"
    help = "widen `schedule:` of the spec, or try more: --candidates"


def run(options: Namespace) -> int:
    """Find, print, and where asked bake."""
    gc.enable()  # off since the start, for the sake of short commands
    require("tune", "numpy", "torch", "triton")
    path = Path(options.spec)
    spec = read_one(options.spec, options.settings, tuned=False)
    before = with_tuned(spec, path).tuned or Tuned(())  # its mistakes, before minutes are spent
    device = find_device(options.target) if options.target else _device_here()
    if options.candidates < 1:
        raise BadCount(option="--candidates", value=options.candidates)
    began = time.perf_counter()
    spec_of_dtype = replace(spec, dtype=options.dtype or spec.dtype)
    check_target(find_target(device.target), "forward", spec_of_dtype.dtype)
    made = compile_spec(spec_of_dtype)
    record, place = _record(made, device, options)
    winners = _winners(made, device, record)
    baked = None
    if options.bake:
        found = _rows(made, device, winners)
        baked = _bake(path, replace(spec, tuned=before.with_rows(found)), options)
    seconds = round(time.perf_counter() - began, 1)
    if options.json:
        head = {"spec": spec.path, "device": device.name, "target": device.target}
        head |= {"dtype": made.spec.dtype, "record": str(place), "seconds": seconds}
        print(json.dumps({**head, "baked": baked, **_as_json(winners, record)}, indent=2))
        return 0
    from attnc.commands.tune_table import tuning_lines

    print("\n".join(tuning_lines(made, device, record)))
    print(f"{len(record.candidates)} schedules, {seconds} s; record: {place}")
    for what, file in (baked or {}).items():
        print(f"{what} -> {file}")
    return 0


def _record(made: Compilation, device: Device, options: Namespace) -> tuple[Record, Path]:
    """What is known, found out where it is not."""
    from attnc.commands.tuning import Tuning
    from attnc.tune.here import device_here
    from attnc.tune.records import load, record_path, save

    here = device_here()
    tuning = Tuning(made, device, options.candidates, options.seconds, here == device)
    place = record_path(tuning.key)
    record = None if options.fresh else load(tuning.key, place)
    if record is None:
        meter = Meter(made.spec.name)
        try:
            record = tuning.find(meter)
        finally:
            meter.clear()
        with writing(place):
            save(record, place)
    return record, place


def _device_here() -> Device:
    from attnc.tune.here import device_here

    found = device_here()
    if found is None:
        raise NoDevice
    return found


def _winners(made: Compilation, device: Device, record: Record) -> dict[str, Candidate]:
    """The best of each kernel."""
    from attnc.tune.choose import ranked

    winners: dict[str, Candidate] = {}
    for kernel in kernels_on(made.program, device.target):
        tried = record.of(kernel.name)
        best = ranked(tried)
        if not best:
            problem = tried[0].problem if tried else "none is known"
            raise NothingFits(kernel=kernel.name, device=device.name, problem=problem)
        winners[kernel.name] = best[0]
    return winners


def _rows(made: Compilation, device: Device, winners: Mapping[str, Candidate]) -> list[TunedRow]:
    """The winners as they stand beside the spec."""
    text = kernels_hash(made.module.source)
    return [
        TunedRow(
            target=device.target,
            element_bytes=TENSOR_BYTES[made.spec.dtype],
            kernel=name,
            schedule=FrozenMap({name: value for name, value in best.schedule if value}),
            device=device.name,
            by="prediction" if best.measured is None else "measurement",
            microseconds=round(1e6 * best.time, 1),
            kernels=text,
        )
        for name, best in winners.items()
    ]


def _bake(path: Path, spec: AttentionSpec, options: Namespace) -> dict[str, str]:
    """Write the schedules beside the spec, and the kernels with them; both or none."""
    assert spec.tuned is not None
    module = compile_spec(spec).module
    beside, kernel = tuned_path(path), Path(options.output) / module.filename
    if not options.force:
        refuse_to_lose({kernel: module.source})
    with writing(beside):
        write_all({beside: print_tuned(spec.tuned), kernel: module.source})
    return {"schedules": str(beside), "file": str(kernel)}


def _as_json(winners: Mapping[str, Candidate], record: Record) -> dict[str, Any]:
    def plain(one: Candidate) -> dict[str, Any]:
        return asdict(one) | {"schedule": dict(one.schedule)}

    return {
        "winners": {name: plain(best) for name, best in winners.items()},
        "candidates": [plain(one) for one in record.candidates],
    }
