from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import sympy
from sympy import Float, Integer, Rational, Symbol, true
from sympy.logic.boolalg import Boolean

from attnc.ir.formula_text import formula_text
from attnc.ir.functions import Anchor, Clamp, Exp2, InverseOrZero
from attnc.ir.nodes import Ahead, Formula, Let, Node, Rounds
from attnc.ir.printer import print_ir
from attnc.symbols import FloorDiv, FloorMod, Read, Where, exp2, kv_idx, q_idx, q_pos
from tests.ir.programs import body, kernel, loop, reductions

x = Symbol("x", real=True)


def test_prints_a_kernel(golden: Callable[[str], None]) -> None:
    golden(print_ir(kernel()))


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (Float(0.1) * x, "0.1*x"),
        (Float(2.0), "2.0"),
        (Integer(2), "2"),
        (Rational(1, 3), "1/3"),
        (FloorDiv(q_idx + 3, 4) * 4, "4*((q_idx + 3) // 4)"),
        (FloorMod(q_idx, 5), "q_idx % 5"),
        (FloorDiv(FloorMod(q_idx, 8), 3), "(q_idx % 8) // 3"),
        (exp2(x), "exp2(x)"),
        (Exp2(x), "fast_exp2(x)"),
        (sympy.exp(x), "exp(x)"),
        (Anchor(x), "anchor(x)"),
        (InverseOrZero(x), "inverse_or_zero(x)"),
        (Clamp(q_idx, 0, 3), "clamp(q_idx, 0, 3)"),
        (Where(x < 1, x, 0), "where(x < 1, x, 0)"),
        (Read(Symbol("bias"), q_idx, kv_idx), "bias[q_idx, kv_idx]"),
        ((kv_idx <= q_pos) & (kv_idx > 3), "(kv_idx <= q_pos) & (kv_idx > 3)"),
        (~sympy.Symbol("p"), "~p"),
        (-sympy.oo, "-inf"),
        (sympy.true, "true"),
    ],
)
def test_prints_formulas(formula: sympy.Basic, text: str) -> None:
    assert formula_text(formula) == text  # type: ignore[arg-type]


def test_floats_keep_every_digit() -> None:
    nearly = 1.4426950408889634
    assert formula_text(Float(nearly)) == repr(nearly)
    assert formula_text(Float(0.1)) != formula_text(Float(0.1 + 2e-17 + 1e-17))


ROUNDS = Rounds(Symbol("member"), Integer(4), (Let("h", Formula(x)),))


def every_field_changed() -> list[tuple[str, Node, Node]]:
    """Each kind of node beside the same node with one field changed."""
    first, second, _, last = body()
    nodes: list[Node] = [first, second, last, loop(), reductions()[1], kernel(), *kernel().axes]
    nodes += [kernel().buffers[0], kernel().scalars[0], kernel().grid[0], loop().pieces[0]]
    found = []
    for node in nodes:
        for one in fields(node):
            if one.name == "span":
                continue
            other = ROUNDS if one.name == "rounds" else _another(getattr(node, one.name), one.name)
            found.append(
                (f"{type(node).__name__}.{one.name}", node, replace(node, **{one.name: other}))
            )
    for one in fields(ROUNDS):
        other = replace(ROUNDS, **{one.name: _another(getattr(ROUNDS, one.name), one.name)})
        whole, changed = (replace(loop(), rounds=rounds) for rounds in (ROUNDS, other))
        found.append((f"Rounds.{one.name}", whole, changed))
    return found


AHEAD = Ahead(("p",), "p", Integer(-1), Integer(4), Integer(1), true, true)


def _another(value: object, name: str) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "_2"
        case sympy.Basic():
            return sympy.Not(value) if isinstance(value, Boolean) else value + 1  # type: ignore[operator]
        case tuple():
            return value[1:]
        case None:
            return AHEAD if name == "ahead" else "z"
        case Formula():
            return Formula(Integer(99))
        case _:
            return Let("z", Formula(x)).value


CHANGES = every_field_changed()


@pytest.mark.parametrize(("name", "one", "other"), CHANGES, ids=[name for name, *_ in CHANGES])
def test_equal_text_means_equal_nodes(name: str, one: Node, other: Node) -> None:
    assert one == other or print_ir(one) != print_ir(other)


def test_spans_do_not_show() -> None:
    from attnc.source import Span

    placed = replace(loop(), span=Span("a.yaml", 1, 1, 2, "x"))
    assert print_ir(placed) == print_ir(loop())
