"""Gather everything there is to say about a spec, as values that print as text or as JSON."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from attnc.explain.contracts import contracts, lints
from attnc.explain.costs import attention_matrix_table, caches_of, costs_of, flops_per_pair
from attnc.explain.gradients import gradients_of
from attnc.explain.masks import valued
from attnc.explain.pictures import Picture, draw, tile_map
from attnc.explain.situation import Situation, example_rule
from attnc.explain.tiles import (
    Needed,
    TileCount,
    count_tiles,
    needed_tiles,
    range_lets,
    tensors_in_ranges,
)
from attnc.ir.formula_text import formula_text
from attnc.ir.functions import without_wide
from attnc.ir.interface import Schedule
from attnc.ir.nodes import Formula, Kernel, Loop, Program, Value
from attnc.ir.printer import print_value
from attnc.notation import plain
from attnc.spec.blocks import BLOCKS
from attnc.spec.schema import AttentionSpec

PICTURE = (8, 12)  # queries and keys of a picture when the sizes asked for are too large to draw
PROOFS = (
    "every visible pair is visited exactly once",
    "phases without mask code contain visible pairs only",
    "every access stays inside its tensor",
    "no 32-bit offset overflows where 32 bits are used",
    "the streaming step keeps the meaning: the state of a union is the merge of the states",
    "score and scale in the final program equal the spec's",
)


def explain(
    spec: AttentionSpec, program: Program, situation: Situation, device: str = "sm_80"
) -> dict[str, Any]:
    """Describe a spec and its READY program at one situation."""
    schedule = schedule_for(spec, program, device)
    kernel = program.kernels[0]
    with valued(spec, "mask", situation):
        tiles = count_tiles(kernel, situation, schedule.block_q, schedule.block_kv)
        needed = needed_tiles(spec, situation, schedule.block_q, schedule.block_kv)
    with valued(spec, "score", situation):
        warnings = lints(spec, situation)
    decide = sorted(tensors_in_ranges(kernel))  # their contents decide what is visited
    return {
        "name": spec.name,
        "doc": spec.doc,
        "formulas": formulas(spec),
        "blocks": blocks(spec),
        "contracts": contracts(spec),
        "lints": warnings,
        "sizes": _sizes(situation),
        "plan": {
            "kernels": [_kernel(one) for one in program.kernels],
            "schedule": {"device": device, **asdict(schedule)},
            "strategy": strategy(kernel),
        },
        "gradients": gradients_of(spec),
        "backward_flops": {
            one.name: flops_per_pair(one) * tiles.visited_pairs for one in program.kernels[1:]
        },
        "tiles": {**_tiles(tiles, needed), "example_contents": _made_up(spec, decide)},
        "tile_map": tile_map(tiles, -(-situation.kv_len // schedule.block_kv)),
        "picture": _picture(small_picture(spec, situation)),
        "costs": {**costs_of(spec, situation, tiles).as_json(), "example_contents": decide},
        "examples": {name: example_rule(tensor) for name, tensor in situation.tensors.items()},
        "kv_cache": [asdict(cache) for cache in caches_of(spec, situation)],
        "attention_matrix_fp16": dict(attention_matrix_table()),
        "proofs": list(PROOFS),
    }


def _made_up(spec: AttentionSpec, decide: list[str]) -> dict[str, list[str]]:
    """The tensors on whose example contents counts rest: of tiles visited, of visible pairs."""
    named = {str(symbol) for symbol in spec.mask.free_symbols}
    return {"visited": decide, "visible": sorted(t.name for t in spec.tensors if t.name in named)}


def schedule_for(
    spec: AttentionSpec, program: Program, device: str, kernel: str = "forward"
) -> Schedule:
    """The schedule of a kernel that a device class would run at the nominal element size."""
    width = {"fp16": 2, "bf16": 2, "fp32": 4}[spec.dtype]
    rows = [row for row in program.interface.schedules if row.element_bytes == width]
    rows = [row for row in rows if row.kernel == kernel]
    return next((row.schedule for row in rows if row.device == device), rows[0].schedule)


def formulas(spec: AttentionSpec) -> dict[str, dict[str, str]]:
    """The three formulas: as written, and with every building block written out."""
    return {
        "scale": {"written": spec.scale_text, "means": plain(spec.scale)},
        "score": {"written": spec.score_text, "means": plain(spec.score)},
        "mask": {"written": spec.mask_text or "everything", "means": plain(spec.mask)},
    }


def blocks(spec: AttentionSpec) -> dict[str, dict[str, str]]:
    """The building blocks that the formulas name, with their definitions."""
    words = re.findall(r"[A-Za-z_]\w*", f"{spec.score_text} {spec.mask_text}")
    used = [BLOCKS[word] for word in dict.fromkeys(words) if word in BLOCKS]
    return {
        block.name: {"formula": block.formula, "meaning": block.meaning, "source": block.source}
        for block in used
    }


def strategy(kernel: Kernel) -> str:
    """Say how the loops find the keys that matter."""
    pieces = [p for stmt in kernel.body if isinstance(stmt, Loop) for p in stmt.pieces]
    loops = sum(isinstance(stmt, Loop) for stmt in kernel.body)
    phases = {p.masked for p in pieces}
    if not pieces:
        return "no loop over keys"
    text = "one phase" if loops == 1 else f"{loops} phases"
    if phases == {True}:
        return f"{text}, every tile with the mask: no tile is known to be wholly visible"
    if phases == {False}:
        return f"{text} without mask code"
    return f"{text}: tiles that are wholly visible run without mask code, the rest with it"


def _sizes(at: Situation) -> dict[str, Any]:
    return {
        "batch": at.batch,
        "heads": at.heads,
        "kv_heads": at.kv_heads,
        "q_len": at.q_len,
        "kv_len": at.kv_len,
        "params": dict(at.params),
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    lets = range_lets(kernel)
    return {
        "name": kernel.name,
        "grid": {str(dim.index): formula_text(dim.extent) for dim in kernel.grid},
        "where": {let.name: _plain(let.value) for let in lets},
        "loops": [
            {
                "axis": stmt.axis,
                "note": stmt.note,
                "pieces": [
                    {
                        "start": formula_text(without_wide(piece.start)),
                        "stop": formula_text(without_wide(piece.stop)),
                        "masked": piece.masked,
                    }
                    for piece in stmt.pieces
                ],
            }
            for stmt in kernel.body
            if isinstance(stmt, Loop)
        ],
    }


def _plain(value: Value) -> str:
    """A scalar's value; in which width it is counted is no news to a reader."""
    return print_value(Formula(without_wide(value.expr)) if isinstance(value, Formula) else value)


def _tiles(tiles: TileCount, needed: Needed | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "total": tiles.total,
        "query_tiles": tiles.differing,
        "query_tiles_counted": len(tiles.visits),
        "visited": tiles.visited,
        "masked": tiles.masked,
        "unmasked": tiles.unmasked,
        "tile_density": tiles.density,
        "visited_area": tiles.visited_area,
        "needed": None if needed is None else needed.tiles,
        "visible_pairs": None if needed is None else needed.pairs,
        "total_pairs": tiles.total_pairs,
    }
    if needed is not None:
        pairs = tiles.total_pairs
        found["density"] = needed.pairs / pairs if pairs else 0.0
        found["visited_per_needed"] = tiles.visited / needed.tiles if needed.tiles else None
    else:
        found["density_at_least"] = tiles.unmasked_pairs / tiles.total_pairs
        found["density_at_most"] = tiles.visited_area
    return found


def small_picture(spec: AttentionSpec, at: Situation) -> Picture:
    """Draw the mask at the sizes asked for, or at a few rows and columns when those are large."""
    if at.q_len > 40 or at.kv_len > 96:
        at = at.at(*PICTURE)
    return draw(spec, at)


def _picture(picture: Picture) -> dict[str, Any]:
    return {
        "q_len": picture.q_len,
        "kv_len": picture.kv_len,
        "head": picture.head,
        "rows": ["".join("#" if cell else "." for cell in row) for row in picture.rows],
        "visible": list(picture.visible),
        "examples": list(picture.examples),
    }
