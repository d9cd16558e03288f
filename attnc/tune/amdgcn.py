"""Read AMD assembly, as LLVM prints it: registers, spills and the hot loops.

LLVM writes beside every block which loop it belongs to; those comments are what the loops are
found by, because the blocks of a loop need not stand together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^(?:\.L|; %)(?P<name>[Bb]{1,2}\d*[_.]?\d*):(?P<comment>.*)$")
_HEADER = re.compile(r"=>\s*This Inner Loop Header")
_MEMBER = re.compile(r"in Loop: Header=(\w+)")
_INSTRUCTION = re.compile(r"^\s+([a-z]\w+)")

# The first pattern that matches an opcode names its class.
_CLASSES = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"v_s?mfmac?_|v_wmma_", "mma"),
        (r"v_exp_f", "exp2"),
        (r"v_(rcp|log|sqrt|rsq|sin|cos|div)", "special"),
        (r"scratch_|v_(read|write)lane", "spill"),
        (r"v_(pk_)?(min|max)", "max"),
        (r"[vs]_cmpx?_", "compare"),
        (r"v_cndmask|s_cselect", "select"),
        (r"v_cvt|v_perm_", "convert"),
        (r"v_(pk_)?(fma|fmac|mul|add|sub|mac|mad|ldexp|dot\w*)_(legacy_)?(f|bf)", "fma"),
        (r"ds_(bpermute|permute|swizzle)|v_(permlane|mov_b32_dpp)", "shuffle"),
        (r"ds_(read|load)", "shared load"),
        (r"ds_(write|store)", "shared store"),
        (r"(buffer|global|flat)_", "global"),
        (r"s_barrier|s_waitcnt", "barrier"),
        (r"[vs]_", "integer"),
    )
)


@dataclass(frozen=True, slots=True)
class Assembly:
    """What the assembly of one kernel says about it."""

    opcodes: tuple[str, ...]
    loops: tuple[tuple[str, ...], ...]  # opcodes of every innermost loop, in order
    registers: int  # vector registers, the accumulation registers among them
    spills: int

    def matrix_instructions(self) -> list[str]:
        """Every matrix instruction, with its shape."""
        return [opcode for opcode in self.opcodes if kind_of(opcode) == "mma"]

    def hot_loops(self) -> list[tuple[str, ...]]:
        """The loops that hold a matrix product or an exponential."""
        return [loop for loop in self.loops if {"mma", "exp2"} & {kind_of(one) for one in loop}]


def kind_of(opcode: str) -> str:
    """Name the class of an opcode, a word of `mix.CLASSES`."""
    return next((kind for pattern, kind in _CLASSES if pattern.match(opcode)), "other")


def parse_amdgcn(text: str) -> Assembly:
    """Read the assembly of one kernel."""
    opcodes: list[str] = []
    loops: dict[str, list[str]] = {}
    loop: list[str] | None = None
    label = ""
    for line in text.splitlines():
        if block := _BLOCK.match(line):
            label = block["name"]
            name = _loop_of(label, block["comment"])
            loop = loops.setdefault(name, []) if name else None
        elif loop is None and (name := _loop_of(label, _comment(line))):
            loop = loops.setdefault(name, [])  # the label's comment goes on
        elif found := _INSTRUCTION.match(line):
            opcodes.append(found[1])
            if loop is not None:
                loop.append(found[1])
    return Assembly(
        tuple(opcodes),
        tuple(tuple(body) for body in loops.values()),
        _figure(text, "vgpr_count"),
        _figure(text, "vgpr_spill_count"),
    )


def _comment(line: str) -> str:
    text = line.strip()
    return text if text.startswith(";") else ""


def _loop_of(block: str, comment: str) -> str:
    if _HEADER.search(comment):
        return block
    member = _MEMBER.search(comment)
    return member[1] if member else ""


def _figure(text: str, key: str) -> int:
    found = re.search(rf"\.{key}:\s+(\d+)", text)
    return int(found[1]) if found else 0
