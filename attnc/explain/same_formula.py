"""Tell when two formulas are the same function, from their text alone."""

from __future__ import annotations

import sympy
from sympy import Basic, Integer
from sympy.core.relational import Relational

from attnc import symbols
from attnc.spec.schema import AttentionSpec
from attnc.symbols import FloorDiv


def same_formula(first: Basic, second: Basic, one: AttentionSpec, other: AttentionSpec) -> bool:
    """Whether two formulas agree everywhere; False where that is not plain to see."""
    left, right = _normal(first, one), _normal(second, other)
    if left != right:
        return False
    reads = {read.args[0].name for read in left.atoms(symbols.Read)}
    declared, theirs = ({tensor.name: tensor for tensor in s.tensors} for s in (one, other))
    return all(
        (declared[name].shape, declared[name].dtype) == (theirs[name].shape, theirs[name].dtype)
        for name in reads
    )


def _normal(formula: Basic, spec: AttentionSpec) -> Basic:
    """Every name written out, comparisons against 0, sums multiplied out."""
    written_out = formula.xreplace(
        {
            symbols.q_pos: symbols.Q_POS,
            symbols.d: Integer(spec.head_dim_qk),
            symbols.h_kv: FloorDiv(symbols.h, Integer(spec.group)),
        }
    )
    if isinstance(written_out, sympy.Expr):
        return sympy.expand(written_out)
    relations = written_out.atoms(Relational)
    return written_out.xreplace({one: _against_zero(one) for one in relations})


def _against_zero(relation: Relational) -> Basic:
    left, right = symbols.arguments(relation)
    if isinstance(relation, sympy.Gt | sympy.Ge):
        left, right = right, left
    difference = sympy.expand(left - right)
    if isinstance(relation, sympy.Eq | sympy.Ne):
        return relation.func(max(difference, -difference, key=sympy.default_sort_key), 0)
    if isinstance(relation, sympy.Lt | sympy.Gt):
        return sympy.Le(difference + 1, 0) if difference.is_integer else sympy.Lt(difference, 0)
    return sympy.Le(difference, 0)
