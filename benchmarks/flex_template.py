"""FlexAttention's own Triton template, filled in without inductor and cross-compiled for a GPU.

The templates come from the installed torch (torch/_inductor/kernel/flex/templates); nothing of them
is copied.  What inductor's hooks would print (arguments, sizes and strides as numbers, the lowered
score_mod and mask_mod) is printed here, as it does for static shapes: 1 batch entry, `HEADS` heads,
a length of 4096, bf16.  The score and mask lines of each variant are written by hand, in its way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import Any

import jinja2
import torch

from attnc.runtime.loader import load_text
from attnc.targets import find_target
from attnc.tune.crosscompile import capture
from attnc.tune.resources import KernelResources, measure

LENGTH = 4096
HEADS = 8
INDENT = "    "
BLOCK = 128  # of a block mask
WHOLE = 1 << 30  # of the block mask that stands for none
PARTS = ("flex_attention", "utilities", "common")
# Defaults of torch/_inductor/template_heuristics/triton.py: block_m, block_n, stages, warps.
TILES = {
    ("sm_80", 64): (128, 64, 3, 4),
    ("sm_80", 128): (128, 64, 3, 8),
    ("sm_90", 64): (128, 128, 3, 4),
    ("sm_90", 128): (128, 64, 3, 8),
}
INPUTS = ("Q", "K", "V", "LSE", "MAX", "KV_NUM_BLKS", "KV_IDX", "FULL_KV_NUM_BLKS", "FULL_KV_IDX")
HEAD = """import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

"""


@dataclass(frozen=True, slots=True)
class Mods:
    """A variant, as inductor lowers it: expressions of score, b, h, m, n and captured tensors."""

    score: str = "{score}"
    mask: str = ""  # none: there is no block mask
    captured: tuple[str, ...] = ()  # dtypes of in_ptr0, in_ptr1 ...


def flex_resources(
    mods: Mods, head_dim: int, target: str, kv_heads: int = HEADS
) -> KernelResources:
    """Compile FlexAttention's forward kernel at its default tile."""
    block_m, block_n, stages, warps = TILES[target, head_dim]
    text = rendered(mods, head_dim, block_m, block_n, kv_heads)
    module = load_text(text, "flex_attention", interpret=False)
    schedule = {"block_q": block_m, "block_kv": block_n, "warps": warps, "stages": stages}

    def call() -> None:
        grid = (-(-LENGTH // block_m), 1, HEADS)
        arguments = _arguments(mods, head_dim, kv_heads)
        module.flex_attention[grid](*arguments, num_warps=warps, num_stages=stages)

    (launch,) = capture(module, call)
    return measure(launch, find_target(target), "bf16", tuple(schedule.items()))


def rendered(mods: Mods, head_dim: int, block_m: int, block_n: int, kv_heads: int) -> str:
    """Fill in the template; gives a module with the kernel and its helpers."""
    names = [f"arg_{name}" for name in INPUTS]
    names += [f"in_ptr{number}" for number in range(len(mods.captured))] + ["out_ptr0"]
    defines = _defines(mods, head_dim, block_m, block_n, kv_heads)
    shapes = _shapes(head_dim, kv_heads)
    hooks: dict[str, Any] = {
        "def_kernel": functools.partial(_def_kernel, names, defines),
        "gen_argdefs": lambda: ", ".join(names),
        "gen_defines": lambda: defines,
        "size": lambda name, axis: str(shapes[name][axis]),
        "stride": functools.partial(_stride, shapes),
        "modification": functools.partial(_modification, mods),
        "store_output": functools.partial(_store_output, head_dim),
        "USE_TMA": False,
        "HAS_FULL_BLOCKS": bool(mods.mask),
    }
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["indent_except_first"] = lambda text, levels: text.replace(
        "\n", "\n" + INDENT * levels
    )
    return HEAD + environment.from_string(_source()).render(hooks)


def _source() -> str:
    found = find_spec("torch._inductor.kernel.flex")
    assert found and found.origin
    folder = Path(found.origin).parent / "templates"
    return "".join((folder / f"{part}.py.jinja").read_text(encoding="utf-8") for part in PARTS)


def _defines(mods: Mods, head_dim: int, block_m: int, block_n: int, kv_heads: int) -> str:
    block = BLOCK if mods.mask else WHOLE
    values = {
        "PRESCALE_QK": False, "ROWS_GUARANTEED_SAFE": False, "BLOCKS_ARE_CONTIGUOUS": False,
        "OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False, "FLOAT32_PRECISION": "'ieee'",
        "IS_DIVISIBLE": True, "SM_SCALE": head_dim**-0.5, "GQA_SHARED_HEADS": HEADS // kv_heads,
        "HAS_FULL_BLOCKS": bool(mods.mask), "QK_HEAD_DIM": head_dim,
        "QK_HEAD_DIM_ROUNDED": head_dim, "V_HEAD_DIM": head_dim, "V_HEAD_DIM_ROUNDED": head_dim,
        "SAFE_HEAD_DIM": True, "USE_TMA": False, "BLOCK_M": block_m, "BLOCK_N": block_n,
        "SPARSE_Q_BLOCK_SIZE": block, "SPARSE_KV_BLOCK_SIZE": block, "INDEX_DTYPE": "tl.int32",
    }  # fmt: skip
    return "\n".join(f"{name} : tl.constexpr = {value}" for name, value in values.items())


def _shapes(head_dim: int, kv_heads: int) -> dict[str, tuple[int, ...]]:
    q, kv = (1, HEADS, LENGTH, head_dim), (1, kv_heads, LENGTH, head_dim)
    blocks = LENGTH // BLOCK
    numbers, indices = (1, 1, blocks), (1, 1, blocks, blocks)
    rows = (1, HEADS, LENGTH)
    return dict(
        zip(INPUTS, (q, kv, kv, rows, rows, numbers, indices, numbers, indices), strict=True)
    )


def _stride(shapes: dict[str, tuple[int, ...]], name: str, axis: int | None = None) -> str:
    strides = torch.empty(shapes[name], device="meta").stride()
    return ", ".join(map(str, strides)) if axis is None else str(strides[axis])


def _def_kernel(names: list[str], defines: str, *inputs: str) -> str:
    aliases = "\n".join(f"{INDENT}{name} = arg_{name}" for name in inputs)
    head = f"@triton.jit\ndef flex_attention({', '.join(names)}):"
    return f"{head}\n{indent(defines, INDENT)}\n{aliases}\n"


def _modification(mods: Mods, subgraph_number: int, output_name: str, **given: Any) -> str:
    places = {name: given[name] for name in ("score", "b", "h", "m", "n")}
    formula = (mods.score, mods.mask or "tl.full([1], True, tl.int1)")[subgraph_number]
    return f"{output_name} = {formula.format(**places)}"


def _store_output(
    head_dim: int, indices: tuple[str, ...], value: str, mask: str, **_: object
) -> str:
    z, h, m, d = indices
    place = f"{d} + {head_dim}*{m} + {head_dim * LENGTH}*{h} + {head_dim * LENGTH * HEADS}*{z}"
    return f"tl.store(out_ptr0 + ({place}), {value}, {mask})"


def _arguments(mods: Mods, head_dim: int, kv_heads: int) -> list[torch.Tensor]:
    kinds: dict[str, Callable[[tuple[int, ...]], torch.Tensor]] = {
        "half": functools.partial(torch.empty, dtype=torch.bfloat16),
        "float": functools.partial(torch.empty, dtype=torch.float32),
        "int": functools.partial(torch.empty, dtype=torch.int32),
    }
    shapes = _shapes(head_dim, kv_heads)
    of = (
        dict.fromkeys(INPUTS, "int")
        | dict.fromkeys("QKV", "half")
        | {"LSE": "float", "MAX": "float"}
    )
    found = [kinds[of[name]](shapes[name]) for name in INPUTS]
    found += [kinds[kind]((LENGTH,)) for kind in mods.captured]
    return [*found, kinds["half"](shapes["Q"])]
