"""The head of a generated file: what it means and what was derived, in plain notation."""

from __future__ import annotations

import textwrap

from attnc import symbols
from attnc.ir.formula_text import formula_text
from attnc.ir.functions import without_wide
from attnc.ir.interface import Interface
from attnc.ir.nodes import Formula, Kernel, Let, Loop, Program
from attnc.notation import plain
from attnc.symbols import names_in

WIDTH = 108


def header_lines(program: Program) -> tuple[str, ...]:
    """Lines of the module's docstring after its title; none of them can end it."""
    interface = program.interface
    lines = [*textwrap.wrap(interface.doc, WIDTH), ""] if interface.doc else []
    lines += ["This file needs only torch and triton, and belongs to whoever generated it.", ""]
    lines += [*_meaning(interface), ""]
    for kernel in program.kernels:
        lines += _derived(kernel)
    return tuple(harmless(line) for line in lines)


def spec_lines(interface: Interface) -> tuple[str, ...]:
    """The spec's text, for comment lines."""
    return tuple(visible(line) for line in interface.spec_text.removesuffix("\n").split("\n"))


def path_text(path: str) -> str:
    """A path that can stand in a string literal and in a docstring."""
    return harmless(path).replace('"', "'")


def harmless(line: str) -> str:
    """A line that can neither end a docstring nor escape from it."""
    return visible(line).replace("\\", "\\\\").replace('"""', "'''")


def visible(line: str) -> str:
    """A line without control characters, so that a comment stays on it."""
    return "".join(c if c.isprintable() or c == " " else " " for c in line).rstrip()


def _meaning(interface: Interface) -> list[str]:
    key_head = "h" if interface.group == 1 else f"h // {interface.group}"
    q_row, k_row = ("b, h, q_idx", f"b, {key_head}, kv_idx")
    if interface.layout == "bshd":
        q_row, k_row = ("b, q_idx, h", f"b, kv_idx, {key_head}")
    logits = "score" if interface.score == symbols.score else "logits"
    lines = [
        "What it computes, for batch entry b, query head h, query q_idx, key kv_idx:",
        f"    score   = scale * sum over d of q[{q_row}, d] * k[{k_row}, d]"
        f"      scale = {plain(interface.scale)} by default",
    ]
    if logits == "logits":
        lines.append(f"    logits  = {plain(interface.score)}")
    lines.append(f"    visible = {plain(interface.mask)}")
    if "q_pos" in names_in(interface.mask, interface.score):
        lines.append(
            "    q_pos   = q_idx + kv_len - q_len        "
            "the position of a query when the queries are the last keys"
        )
    lines.append(f"    out     = sum over visible keys of exp({logits} - lse) * v[{k_row}]")
    if interface.head_gate:
        lines.append("    out     is multiplied by head_gate[h]")
    lines.append(f"    lse     = natural log of the sum over visible keys of exp({logits})")
    lines.append(
        "A query that sees no key gives out 0 and lse -inf.  "
        "What lies in keys hidden from every query never matters."
    )
    return lines


def _derived(kernel: Kernel) -> list[str]:
    """The tile ranges that the mask led to."""
    lines = ["Which keys a tile of queries visits:"]
    for stmt in kernel.body:
        if (
            isinstance(stmt, Let)
            and isinstance(stmt.value, Formula)
            and not stmt.axes
            and stmt.name not in ("h_kv", "q_first")
            and _is_range(stmt, kernel)
        ):
            lines.append(
                f"    {stmt.name} = {formula_text(without_wide(stmt.value.expr))}"
                + (f"      ({stmt.note})" if stmt.note else "")
            )
        if isinstance(stmt, Loop):
            ends = ((without_wide(p.start), without_wide(p.stop)) for p in stmt.pieces)
            ranges = ", ".join(f"[{formula_text(a)}, {formula_text(b)})" for a, b in ends)
            masked = any(piece.masked for piece in stmt.pieces)
            otherwise = "tiles in which something may be hidden" if masked else "every tile"
            lines.append(f"    tiles {ranges}: {stmt.note or otherwise}")
    return lines


def _is_range(let: Let, kernel: Kernel) -> bool:
    """Whether a scalar is part of a loop's range."""
    if not isinstance(let.value, Formula):
        return False
    wanted: set[str] = set()
    for stmt in reversed(kernel.body):
        if isinstance(stmt, Loop):
            wanted |= names_in(*(end for piece in stmt.pieces for end in (piece.start, piece.stop)))
        if isinstance(stmt, Let) and stmt.name in wanted and isinstance(stmt.value, Formula):
            wanted |= names_in(stmt.value.expr)
    return let.name in wanted
