"""Read a formula's text into sympy.  Nothing is ever evaluated as Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sympy import Basic, Integer, preorder_traversal

from attnc import symbols
from attnc.spec import arithmetic
from attnc.spec import formula_mistakes as mistakes
from attnc.spec.block_calls import refuse_doubled_score
from attnc.spec.formula_reader import Declared, FormulaReader
from attnc.spec.formula_text import FormulaText
from attnc.symbols import Formula

__all__ = ["Declared", "FormulaText", "ReadFormula", "read_formula"]


@dataclass(frozen=True, slots=True)
class ReadFormula:
    """A formula in symbols, the declared names it uses, and whether it fixes the head count."""

    formula: Formula
    used: frozenset[str]
    fixes_heads: bool


def read_formula(text: FormulaText, role: str, declared: Declared) -> ReadFormula:
    """Read the formula of a role: `mask`, `score` or `scale`.

    Returns: a Boolean for a mask, an expression otherwise, with every constant folded exactly.
    Raises: SpecError at the first mistake.
    """
    tree = text.parse()
    reader = FormulaReader(text, role, declared)
    refuse_doubled_score(reader, tree)
    read = reader.condition if role == "mask" else reader.number
    formula = cast(Formula, arithmetic.settled(read(tree, f"a {role}")))
    _check_finished(text, role, formula, declared.head_dim)
    fixes_heads = reader.fixes_heads or _names_head(formula)
    return ReadFormula(formula, frozenset(reader.used), fixes_heads)


def _names_head(formula: Formula) -> bool:
    """Say whether h or h_kv stands outside a tensor index."""
    walk = preorder_traversal(formula)
    for part in walk:
        if isinstance(part, symbols.Read):
            walk.skip()
        elif part in (symbols.h, symbols.h_kv):
            return True
    return False


def _check_finished(text: FormulaText, role: str, formula: Formula, head_dim: int) -> None:
    """Check what only the finished formula shows."""
    place = text.span(*text.bounds())
    if formula.has(*arithmetic.INFINITE):
        raise mistakes.NotFinite(place)
    in_indices = [index for read in formula.atoms(symbols.Read) for index in read.args[1:]]
    exact = [formula] if role == "mask" else in_indices
    numbers = [n for part in exact for n in part.atoms(Integer)]
    if any(abs(n) > arithmetic.MAX_INTEGER for n in numbers):
        raise mistakes.NumberTooLarge(place, limit="whole numbers go up to 2**53")
    known: Basic = formula
    if formula.has(symbols.d) and head_dim:
        try:
            known = arithmetic.at_head_dim(formula, head_dim)
        except arithmetic.BadArithmetic as error:
            raise error.kind(place, **error.facts) from None
    if role == "scale" and known.is_zero:
        raise mistakes.ZeroScale(place)
