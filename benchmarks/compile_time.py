"""Time from a spec to a kernel: attnc, FlexAttention from a cold start, and its block masks.

    python benchmarks/compile_time.py [--quick] [--output benchmarks/results/compile_time.md]

Every measurement is a process of its own, start included, with empty caches.  FlexAttention is
compiled for the CPU (the same machine; attnc's kernel needs no GPU to be written either).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPECS = sorted((ROOT / "specs").glob("*.yaml"))

# The same variants, written for FlexAttention: spec -> (score_mod, mask_mod), heads, head dim.
VARIANTS = {
    "causal_mha": ("None", "lambda b, h, i, j: i >= j"),
    "mistral_window": ("None", "lambda b, h, i, j: (i >= j) & (i - j < 4096)"),
    "gemma2_local": (
        "lambda s, b, h, i, j: 50 * torch.tanh(s / 50)",
        "lambda b, h, i, j: (i >= j) & (i - j < 4096)",
    ),
    "alibi": ("lambda s, b, h, i, j: s + (j - i) * torch.exp2(-(h + 1.0))", "None"),
}

FLEX = """
    import time, torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    score_mod, mask_mod = {score}, {mask}
    q, k, v = (torch.randn(1, 8, 1024, 64) for _ in range(3))
    block_mask = create_block_mask(mask_mod, None, None, 1024, 1024, "cpu") if mask_mod else None
    torch.compile(flex_attention)(q, k, v, score_mod=score_mod, block_mask=block_mask)
"""

BLOCK_MASK = """
    import json, resource, time, torch
    from torch.nn.attention.flex_attention import create_block_mask

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    create_block_mask(lambda b, h, i, j: i >= j, None, None, {n}, {n}, "cpu")
    seconds = time.perf_counter() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([seconds, grown * 1024]))
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    what: str
    seconds: float
    note: str = ""


def timed(command: Sequence[str], **environment: str) -> tuple[float, str]:
    """Run a command in a process of its own; wall seconds and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, cwd=ROOT
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{done.stderr[-2000:]}")
    return seconds, done.stdout


def median_of(repeats: int, command: Sequence[str]) -> float:
    return statistics.median(timed(command)[0] for _ in range(repeats))


def ours(repeats: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        attnc = [sys.executable, "-m", "attnc", "compile"]
        each = {spec.stem: median_of(repeats, [*attnc, str(spec), "-o", folder]) for spec in SPECS}
        slowest = max(each, key=each.__getitem__)
        _, text = timed([*attnc, "specs/", "-o", folder, "--json"])
        together = json.loads(text)
    per_spec = together["seconds"] / len(together["compiled"])
    return [
        Row(
            "attnc compile SPEC, process start included",
            statistics.median(each.values()),
            f"median of {len(each)} specs; slowest {slowest}: {each[slowest]:.2f} s",
        ),
        Row("attnc compile specs/, one process, per spec", per_spec, "after start-up"),
    ]


def flex(names: Sequence[str]) -> list[Row]:
    rows = []
    for name in names:
        score, mask = VARIANTS[name]
        text = textwrap.dedent(FLEX).format(score=score, mask=mask)
        with tempfile.TemporaryDirectory() as folder:
            seconds, _ = timed(
                [sys.executable, "-c", text],
                TORCHINDUCTOR_CACHE_DIR=folder,
                TRITON_CACHE_DIR=folder,
            )
        rows.append(Row(f"FlexAttention, cold start, {name}", seconds, "torch.compile on CPU"))
    return rows


def block_masks(lengths: Sequence[int]) -> list[Row]:
    rows = []
    for n in lengths:
        text = textwrap.dedent(BLOCK_MASK).format(n=n)
        seconds, grown = json.loads(timed([sys.executable, "-c", text])[1])
        note = f"{grown / 2**30:.1f} GB more memory; attnc: no time, no bytes, at any length"
        rows.append(Row(f"create_block_mask, causal, {n} x {n}", seconds, note))
    return rows


def table(rows: Sequence[Row]) -> str:
    lines = ["| what | seconds | note |", "| --- | ---: | --- |"]
    lines += [f"| {row.what} | {row.seconds:.2f} | {row.note} |" for row in rows]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="one variant, no block mask over 4096")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    import torch

    rows = ours(options.repeats)
    rows += flex(list(VARIANTS)[:1] if options.quick else list(VARIANTS))
    rows += block_masks((4096,) if options.quick else (4096, 16384, 32768))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    text = f"{table(rows)}\n\n{machine}, torch {torch.__version__}\n"
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(f"# Time from a spec to a kernel\n\n{text}")


if __name__ == "__main__":
    main()
