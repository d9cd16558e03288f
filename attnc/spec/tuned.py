"""Read NAME.tuned.json, the schedules that `attnc tune --bake` wrote beside a spec.

A user may edit it, so it is read as carefully as a spec: JSON is YAML, and every mistake shows its
line.  Only block_q, block_kv, warps, stages, skew, tma and last_first of a row decide anything; the
rest says where they come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnc.errors import SpecErrors
from attnc.spec.fields import CHOICES, TILE_VALUES
from attnc.spec.frozen import FrozenMap
from attnc.spec.kinds import Choice, Integer, Line, Real, Report
from attnc.spec.schema import AttentionSpec, Tuned, TunedRow
from attnc.spec.sections import Field, List, Section
from attnc.spec.text_file import read_text
from attnc.spec.yaml_reader import read_yaml
from attnc.targets import TARGET_NAMES

_SCHEDULE = (*TILE_VALUES, *(field.name for field in CHOICES))
_ROW = Section(
    "a tuned row",
    (
        Field("target", Choice(TARGET_NAMES), "device class", required=True),
        Field("element_bytes", Integer(2, 4, (2, 4)), "size of q, k and v", required=True),
        Field("kernel", Line(), "forward, or a kernel of the backward", required=True),
        *(
            Field(name, Integer(min(values), max(values), values), doc, required=True)
            for name, (values, doc) in TILE_VALUES.items()
        ),
        *CHOICES,
        Field("device", Line(), "the chip it was chosen for"),
        Field("by", Choice(("prediction", "measurement", "hand")), "how it was chosen"),
        Field("microseconds", Real(), "what it takes there, at the spec's nominal sizes"),
        Field("kernels", Line(), "SHA-256 of the kernels it was found for"),
    ),
)
_FILE = Section(
    "a file of tuned schedules",
    (Field("schedules", List(_ROW, most=128), "a row for each schedule", required=True),),
)


def with_tuned(spec: AttentionSpec, path: Path) -> AttentionSpec:
    """The spec with the schedules that stand beside its file, where there are any.

    Raises: SpecErrors with every mistake in them, UserError when they cannot be read.
    """
    beside = tuned_path(path)
    return replace(spec, tuned=parse_tuned(read_text(beside), beside)) if beside.exists() else spec


def tuned_path(path: Path) -> Path:
    """Where the tuned schedules of a spec's file are kept: NAME.yaml -> NAME.tuned.json."""
    return path.with_name(f"{path.stem}.tuned.json")


def parse_tuned(text: str, path: Path | str = "spec.tuned.json") -> Tuned:
    """Check the text of a file of tuned schedules.

    Raises: SpecErrors with every mistake.
    """
    report: Report = []
    values = _FILE.read(read_yaml(text, str(path)), "", report)
    if report:
        raise SpecErrors(report)
    return Tuned(tuple(_row(row) for row in values["schedules"]))


def print_tuned(tuned: Tuned) -> str:
    """The text of the file, a line for each row."""
    rows = ",\n".join(f"    {json.dumps(_plain(row))}" for row in tuned.rows)
    return f'{{\n  "schedules": [\n{rows}\n  ]\n}}\n'


def _row(values: Mapping[str, Any]) -> TunedRow:
    made = [name for name in _SCHEDULE if name in values]
    about = {name: values[name] for name in values if name not in _SCHEDULE}
    return TunedRow(schedule=FrozenMap({name: values[name] for name in made}), **about)


def _plain(row: TunedRow) -> dict[str, Any]:
    where = {"target": row.target, "element_bytes": row.element_bytes, "kernel": row.kernel}
    about = {"device": row.device, "by": row.by, "microseconds": row.microseconds}
    return {**where, **row.schedule, **about, "kernels": row.kernels}
