"""Our forward kernels and FlexAttention's, compiled for GPUs that are not here, side by side.

    python benchmarks/static.py [--targets sm_80,sm_90] [--output benchmarks/results/static.md]

Both run at their default tiles, and ours at FlexAttention's as well, and at the best of those that
`attnc tune` would compile first.  Cycles are predicted by
attnc/tune/predict.py for one score of a hot loop, with as many blocks as fit on a multiprocessor;
bandwidth and waves are left out.  `unmasked`: tiles in which everything is visible (FlexAttention:
full blocks); `masked`: the others.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from flex_template import HEADS, Mods, flex_resources

from attnc import __version__
from attnc.commands.kernel_shapes import kernel_shapes
from attnc.devices import find_device
from attnc.driver import Compilation, compile_spec
from attnc.explain.report import schedule_for
from attnc.spec import parse_spec
from attnc.targets import find_target
from attnc.tune.occupancy import occupancy_of
from attnc.tune.operands import CHOICES, operands_of
from attnc.tune.predict import loop_cost
from attnc.tune.resources import KernelResources, report
from attnc.tune.space import candidates

RESULTS = Path(__file__).parent / "results" / "static.md"
FLEX = "FlexAttention"
TRIED = 24  # schedules of a variant
CAUSAL = "({m}) >= ({n})"


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant, said to attnc and to FlexAttention."""

    name: str
    head_dim: int
    spec: str  # all but heads and head_dim
    mods: Mods
    kv_heads: int = HEADS


VARIANTS = (
    Variant("causal", 64, "mask: causal", Mods(mask=CAUSAL)),
    Variant("causal", 128, "mask: causal", Mods(mask=CAUSAL)),
    Variant("full", 64, "", Mods()),
    Variant("full", 128, "", Mods()),
    Variant("grouped heads, causal", 128, "mask: causal", Mods(mask=CAUSAL), kv_heads=2),
    Variant(
        "window of 1024", 128, "mask: causal & sliding_window(1024)",
        Mods(mask=f"({CAUSAL}) & (({{m}}) - ({{n}}) < 1024)"),
    ),
    Variant(
        "softcap, causal", 128, "score: softcap(score, 50)\nmask: causal",
        Mods("libdevice.tanh(({score}) * 0.02) * 50.0", CAUSAL),
    ),
    Variant(
        "ALiBi, causal", 64, "score: alibi\nmask: causal",
        Mods("({score}) + tl.load(in_ptr0 + ({h})) * (({n}) - ({m}))", CAUSAL, ("float",)),
    ),
    Variant(
        "prefix of 1024", 64, "mask: causal | prefix(1024)",
        Mods(mask=f"({CAUSAL}) | (({{n}}) < 1024)"),
    ),
    Variant(
        "documents, causal", 64,
        "mask: causal & documents(ids)\ntensors: {ids: {shape: [batch, kv_len], dtype: int32}}",
        Mods("{score}", f"({CAUSAL}) & (tl.load(in_ptr0 + ({{m}})) == tl.load(in_ptr0 + ({{n}})))",
             ("int",)),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Side:
    """What one side's kernel takes; the first of a pair is of unmasked tiles, the second masked."""

    tile: str
    registers: int
    shared_bytes: int
    spills: int  # in the hot loops
    instructions: tuple[float, float]  # per 1000 scores; 0 where there is no such loop
    cycles: tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", default="sm_80,sm_90")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    targets = options.targets.split(",")
    cases = list(product(range(len(VARIANTS)), targets))
    with ProcessPoolExecutor(max_workers=2) as pool:
        sides = list(pool.map(measured, *zip(*cases, strict=True)))
    rows = [(VARIANTS[n], target, found) for (n, target), found in zip(cases, sides, strict=True)]
    lines = page(rows)
    print("\n".join(lines))
    options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps(plain(rows), indent=1) + "\n"
    options.output.with_suffix(".json").write_text(text, encoding="utf-8")


def plain(rows: Sequence[tuple[Variant, str, Mapping[str, Side]]]) -> list[dict[str, Any]]:
    """The table for a program: a row for each kernel."""
    return [
        {"variant": variant.name, "head_dim": variant.head_dim, "target": target, "kernel": name}
        | asdict(one)
        for variant, target, sides in rows
        for name, one in sides.items()
    ]


def measured(number: int, target: str) -> dict[str, Side]:
    """Compile a variant: ours, tuned, at FlexAttention's tile where that is another; its own."""
    variant = VARIANTS[number]
    theirs = flex_resources(variant.mods, variant.head_dim, target, variant.kv_heads)
    made = compile_spec(parse_spec(text_of(variant)))
    usual = asdict(schedule_for(made.spec, made.program, target))
    found = {"attnc": ours(made, target, usual)}
    if found["attnc"].schedule != theirs.schedule:
        found["attnc, same tile"] = ours(made, target, dict(theirs.schedule))
    sides = {name: side(one, ("unmasked", "masked")) for name, one in found.items()}
    sides["attnc, tuned"] = tuned(made, target, [sides["attnc"]])
    return sides | {FLEX: side(theirs, ("masked", "unmasked"))}


def text_of(variant: Variant) -> str:
    """Its spec."""
    heads = f"heads: {{q: {HEADS}, kv: {variant.kv_heads}}}\nhead_dim: {variant.head_dim}\n"
    return f"{heads}{variant.spec}\noutputs: [lse]\nbackward: false\n"


def ours(made: Compilation, target: str, schedule: Mapping[str, int]) -> KernelResources:
    """Compile a forward of ours."""
    operands = operands_of(made.spec)
    (found,) = report(made.module.source, operands, target, "bf16", schedule)
    return found


def tuned(made: Compilation, target: str, known: Sequence[Side]) -> Side:
    """The fewest cycles in unmasked tiles, without spills where that can be."""
    (shape,) = kernel_shapes(made.spec, made.program, target)
    _, *others = candidates(shape, find_target(target), 2, TRIED)
    compiled = [ours(made, target, schedule) for schedule in others]
    fitting = [side(one, ("unmasked", "masked")) for one in compiled if one.fits]
    return min([*known, *fitting], key=lambda one: (one.spills, one.cycles[0] or one.cycles[1]))


def side(kernel: KernelResources, order: Sequence[str]) -> Side:
    """Sum up one kernel; order: which of two loops stands first."""
    schedule, device = dict(kernel.schedule), find_device(kernel.target)
    warps, scores = schedule["warps"], schedule["block_q"] * schedule["block_kv"]
    fits = occupancy_of(device, kernel.registers, kernel.shared_bytes, warps)
    loops = [loop_cost(body, device, warps, max(1, fits.blocks), 0) for body in kernel.bodies]
    names = order if len(loops) == 2 else [_only(kernel)]
    per_score = {name: loop.shared / scores * 1000 for name, loop in zip(names, loops, strict=True)}
    counts = {
        name: len(body) * warps / scores * 1000
        for name, body in zip(names, kernel.bodies, strict=True)
    }
    tile = f"{schedule['block_q']}x{schedule['block_kv']} w{warps} s{schedule['stages']}"
    return Side(
        tile=" ".join([tile, *(name for name in CHOICES if schedule.get(name))]),
        registers=kernel.registers,
        shared_bytes=kernel.shared_bytes,
        spills=sum(loop.spills for loop in loops),
        instructions=(counts.get("unmasked", 0.0), counts.get("masked", 0.0)),
        cycles=(per_score.get("unmasked", 0.0), per_score.get("masked", 0.0)),
    )


def _only(kernel: KernelResources) -> str:
    """Ours has one loop where no tile is known to be visible; FlexAttention's, where all are."""
    return "unmasked" if kernel.kernel == "flex_attention" else "masked"


COLUMNS = (
    "variant", "D", "target", "kernel", "tile", "registers", "shared KB", "spills",
    "instructions, unmasked / masked", "cycles, unmasked / masked", "ratio",
)  # fmt: skip


def page(rows: Sequence[tuple[Variant, str, Mapping[str, Side]]]) -> list[str]:
    """Write the whole page in Markdown."""
    lines = [
        "# Forward kernels, compiled but not run",
        "",
        f"attnc {__version__}, torch {torch.__version__}, triton {triton.__version__}, "
        f"Python {platform.python_version()}; bf16.",
        "Instructions of warps and predicted cycles of a multiprocessor are for 1000 scores. "
        "Ratio: FlexAttention's cycles over ours, above 1 where ours has fewer.",
        "Spills are instructions in the hot loops. Tiles are queries x keys, warps, stages.",
        "Predictions are rough: differences under a tenth say nothing.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + " --- |" * len(COLUMNS),
    ]
    for variant, target, sides in rows:
        for name, one in sides.items():
            cells = [variant.name, str(variant.head_dim), target, name, one.tile]
            cells += [str(one.registers), f"{one.shared_bytes / 1024:.0f}", str(one.spills)]
            cells += [_pair(one.instructions, ".1f"), _pair(one.cycles, ".0f")]
            cells += ["" if name == FLEX else _ratio(one, sides[FLEX])]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _pair(values: tuple[float, float], form: str) -> str:
    return " / ".join(f"{value:{form}}" if value else "-" for value in values)


def _ratio(mine: Side, flex: Side) -> str:
    """Phase by phase; where ours has no unmasked loop, its only one against both of theirs."""
    first, second = mine.cycles
    found = [theirs / (own or second or first) for own, theirs in
             zip((first, second), flex.cycles, strict=True) if theirs]  # fmt: skip
    return " / ".join(f"{ratio:.2f}" for ratio in found)


if __name__ == "__main__":
    main()
