"""Draw what the benchmarks wrote: results/static.json and results/gpu.json, where they are there.

    pip install matplotlib
    python benchmarks/plots.py [--folder benchmarks/results]

static.svg: predicted cycles for 1000 scores of an unmasked tile (of a masked one where a kernel has
no other), a panel for each target.  gpu.svg: measured TFLOP/s, forward and backward, at the longest
length of each variant.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

RESULTS = Path(__file__).parent / "results"
Bars = dict[str, dict[str, float]]  # a group of bars -> whose bar -> its height


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=RESULTS)
    folder = parser.parse_args().folder
    drawn = [draw(folder) for draw in (draw_static, draw_gpu)]
    if not any(drawn):
        sys.exit(f"{folder} holds neither static.json nor gpu.json")
    print("\n".join(str(path) for path in drawn if path))


def draw_static(folder: Path) -> Path | None:
    """Predicted cycles, ours and FlexAttention's at their own tiles."""
    if (rows := _read(folder / "static.json")) is None:
        return None
    rows = [row for row in rows if "same tile" not in row["kernel"]]
    panels = {target: static_bars(rows, target) for target in _each(rows, "target")}
    words = "predicted cycles for 1000 scores, unmasked tiles (shorter is better)"
    return _draw(panels, words, folder / "static.svg")


def static_bars(rows: Sequence[dict[str, Any]], target: str) -> Bars:
    """The bars of one target."""
    found: Bars = {}
    for row in rows:
        if row["target"] == target:
            unmasked, masked = row["cycles"]
            group = found.setdefault(f"{row['variant']}, D{row['head_dim']}", {})
            group[row["kernel"]] = unmasked or masked
    return found


def draw_gpu(folder: Path) -> Path | None:
    """Measured speeds."""
    if (rows := _read(folder / "gpu.json")) is None:
        return None
    panels = {which: gpu_bars(rows, which) for which in ("forward", "backward")}
    return _draw(panels, "TFLOP/s (longer is better)", folder / "gpu.svg")


def gpu_bars(rows: Sequence[dict[str, Any]], which: str) -> Bars:
    """The bars of forward or backward, at the longest length that has times."""
    found: Bars = {}
    timed = [row for row in rows if not row["problem"]]
    for variant in _each(timed, "variant"):
        longest = max(row["length"] for row in timed if row["variant"] == variant)
        bars = found.setdefault(f"{variant}, {longest}", {})
        for row in timed:
            if (row["variant"], row["length"]) == (variant, longest):
                flops = row["flops"] * (2.5 if which == "backward" else 1.0)
                bars[row["provider"]] = flops / row[which] / 1e12
    return found


def _draw(panels: dict[str, Bars], words: str, path: Path) -> Path:
    groups = max(map(len, panels.values()))
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(6 * len(panels), 1 + 0.45 * groups), squeeze=False
    )
    for axis, (title, bars) in zip(axes[0], panels.items(), strict=True):
        names = list(dict.fromkeys(name for group in bars.values() for name in group))
        height = 0.8 / max(1, len(names))
        for place, name in enumerate(names):
            at = [number + height * place for number in range(len(bars))]
            axis.barh(at, [group.get(name, 0.0) for group in bars.values()], height, label=name)
        middle = 0.4 - height / 2
        axis.set_yticks([number + middle for number in range(len(bars))], list(bars))
        axis.invert_yaxis()
        axis.set_title(title)
        axis.legend()
    figure.supxlabel(words)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    return path


def _read(path: Path) -> list[dict[str, Any]] | None:
    if not path.exists():
        return None
    plain = json.loads(path.read_text(encoding="utf-8"))
    return plain["rows"] if isinstance(plain, dict) else plain


def _each(rows: Iterable[dict[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))


if __name__ == "__main__":
    main()
