"""`attnc list`: the building blocks, the specs in sight, the targets, the devices."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from attnc.commands.columns import aligned
from attnc.devices import DEVICES
from attnc.errors import AttncError
from attnc.spec import read_spec
from attnc.spec.blocks import BLOCKS
from attnc.targets import TARGETS


def run(options: Namespace) -> int:
    """List one kind of thing, or all of them."""
    kinds = {"blocks": _blocks, "specs": _specs, "targets": _targets, "devices": _devices}
    wanted = [options.what] if options.what else list(kinds)
    found = {kind: kinds[kind]() for kind in wanted}
    if options.json:
        print(json.dumps(found[options.what] if options.what else found, indent=2))
        return 0
    for kind, rows in found.items():
        print(f"{kind}\n{_table(rows)}" if len(found) > 1 else _table(rows))
    return 0


def _blocks() -> list[dict[str, Any]]:
    return [
        {
            "name": one.signature,
            "formula": one.formula,
            "meaning": one.meaning,
            "source": one.source,
        }
        for one in BLOCKS.values()
    ]


def _specs() -> list[dict[str, Any]]:
    folder = Path("specs") if Path("specs").is_dir() else Path()
    return [_spec(path) for path in sorted(folder.glob("*.yaml"))]


def _spec(path: Path) -> dict[str, Any]:
    try:
        spec = read_spec(path)
    except AttncError:  # one broken file must not hide the others
        return {"name": str(path), "heads": "", "meaning": "is no valid spec"}
    heads = f"{spec.heads_q}:{spec.heads_kv}"
    return {"name": str(path), "heads": heads, "meaning": spec.doc or spec.mask_text}


def _targets() -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "shared": f"{one.shared_bytes // 1024} KB",
            "unit": one.matrix_unit,
            "meaning": one.meaning + ("" if one.by_default else ": forward, by `attnc tune` alone"),
        }
        for one in TARGETS
    ]


def _devices() -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "target": one.target,
            "multiprocessors": one.multiprocessors,
            "products": f"{one.tensor_tflops:.0f} TFLOP/s",
            "memory": f"{one.memory_gbs} GB/s",
            "meaning": one.meaning,
            "source": one.source,
        }
        for one in DEVICES
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    return "\n".join(aligned([[str(cell) for cell in row.values()] for row in rows]) or ["  none"])
