"""The head of a generated file: what it means and what was derived, in plain notation."""

from __future__ import annotations

import textwrap

from attnc.ir.formula_text import formula_text
from attnc.ir.functions import without_wide
from attnc.ir.interface import Interface
from attnc.ir.nodes import Formula, Kernel, Let, Loop, Program
from attnc.notation import plain
from attnc.symbols import names_in

WIDTH = 108
AXIS_WORDS = {"q": "queries", "k": "keys"}


def header_lines(program: Program) -> tuple[str, ...]:
    """Lines of the module's docstring after its title; none of them can end it."""
    interface = program.interface
    lines = [*textwrap.wrap(interface.doc, WIDTH), ""] if interface.doc else []
    lines += ["This file needs only torch and triton, and belongs to whoever generated it.", ""]
    lines += [*_meaning(interface), ""]
    lines += _gradients(interface)
    for derived, kernels in _by_text(program.kernels).items():
        lines += [f"{_visits(kernels)}:", *derived]
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
    lines = [
        "What it computes, for batch entry b, query head h, query q_idx, key kv_idx:",
        f"    score   = scale * sum over d of q[{q_row}, d] * k[{k_row}, d]"
        f"      scale = {plain(interface.scale)} by default",
        f"    logits  = {plain(interface.score)}",
        f"    visible = {plain(interface.mask)}",
    ]
    if "q_pos" in names_in(interface.mask, interface.score):
        lines.append(
            "    q_pos   = q_idx + kv_len - q_len        "
            "the position of a query when the queries are the last keys"
        )
    lines.append(f"    out     = sum over visible keys of exp(logits - lse) * v[{k_row}]")
    if interface.dropout:
        number = "random(dropout_seed, b, h, q_idx, kv_idx)"
        lines.append(f"    kept    = {number} >= 2^32 dropout_p - 2^31")
        lines.append("    out     has only weights that are kept, each times 1 / (1 - dropout_p)")
    if interface.head_gate:
        lines.append("    out     is multiplied by head_gate[h]")
        if interface.backward and not interface.outputs:
            lines.append(
                "    keep    = whether a gradient is wanted: else heads of gate 0 are skipped"
            )
    joined = " and the sink" if interface.sink else ""
    lines.append(f"    lse     = natural log of the sum over visible keys{joined} of exp(logits)")
    if interface.sink:
        lines.append("    sink    is the logit sink[h] of a key with value 0 that every query sees")
    empty = "the sink" if interface.sink else "-inf"
    lines.append(
        f"A query that sees no key gives out 0 and lse {empty}.  "
        "What lies in keys hidden from every query never matters."
    )
    return lines


def _gradients(interface: Interface) -> list[str]:
    """How the gradients are made, and of what."""
    if not interface.gradients:
        return []
    return [
        f"Gradients, from {' and '.join(interface.kept)} as the forward wrote them; "
        "all else is made again:",
        *(f"    {line}" for line in interface.derivation),
        "",
    ]


def _by_text(kernels: tuple[Kernel, ...]) -> dict[tuple[str, ...], list[Kernel]]:
    """Kernels by the tile ranges that the mask led to, those that walk anything."""
    found: dict[tuple[str, ...], list[Kernel]] = {}
    for kernel in kernels:
        if derived := _derived(kernel):
            found.setdefault(tuple(derived), []).append(kernel)
    return found


def _visits(kernels: list[Kernel]) -> str:
    """What the kernels hold and what they walk."""
    axis = {axis.role: AXIS_WORDS.get(axis.name, "") for axis in kernels[0].axes}
    names = ", ".join(kernel.name for kernel in kernels)
    return f"Which {axis['columns']} a tile of {axis['rows']} visits ({names})"


def _derived(kernel: Kernel) -> list[str]:
    """The tile ranges of a kernel that has any."""
    lines: list[str] = []
    given = {"h_kv", *(str(axis.first) for axis in kernel.axes)}
    for stmt in kernel.body:
        if (
            isinstance(stmt, Let)
            and isinstance(stmt.value, Formula)
            and not stmt.axes
            and stmt.name not in given
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
