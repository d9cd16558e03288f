"""Which words each formula knows, and what to say about a word that it does not."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from attnc.spec import formula_mistakes as mistakes
from attnc.spec.arithmetic import EXTREMES, FUNCTIONS
from attnc.spec.blocks import BLOCKS

if TYPE_CHECKING:
    from attnc.spec.formula_reader import FormulaReader

_MASK = ("b", "h", "h_kv", "q_idx", "kv_idx", "q_len", "kv_len", "q_pos", "d")
NAMES: Mapping[str, tuple[str, ...]] = {
    "scale": ("d", "q_len", "kv_len"),
    "mask": _MASK,
    "score": (*_MASK, "score"),
}
_CALLABLE = (*FUNCTIONS, *EXTREMES, "where")
_WHY_NOT = {
    "scale": "a scale is one number; what varies by row, column or head belongs into score",
    "mask": "a mask looks at positions, not at values",
}


def fail_name(reader: FormulaReader, node: ast.Name) -> NoReturn:
    """Raise UnknownName with the best advice for this word."""
    name, role = node.id, reader.role
    known = [*NAMES[role], *reader.declared.params, *reader.declared.tensors, *BLOCKS]
    if name in NAMES["score"]:
        advice = _WHY_NOT[role]
    elif name in _CALLABLE:
        advice = f"{name} is a function: give it arguments in parentheses"
    elif close := get_close_matches(name, known, 1):
        advice = f"did you mean {close[0]}?"
    else:
        more = " and params" if role == "scale" else ", params and tensors"
        advice = f"a {role} may name {', '.join(NAMES[role])}{more}"
    reader.fail(node, mistakes.UnknownName, name=name, where=f"a {role}", advice=advice)


def fail_tensor(reader: FormulaReader, node: ast.Name, example: str) -> NoReturn:
    """Raise with the best advice for what is no tensor; the example declares one."""
    name, tensors = node.id, reader.declared.tensors
    if name in NAMES["score"] or name in reader.declared.params:
        reader.fail(node, mistakes.NotATensor, name=name, known=", ".join(tensors) or "none")
    close = get_close_matches(name, tensors, 1)
    declare = f"declare it, for example tensors: {{{name}: {{{example}}}}}"
    advice = f"did you mean {close[0]}?" if close else declare
    reader.fail(node, mistakes.UnknownName, name=name, where=f"a {reader.role}", advice=advice)


def fail_function(reader: FormulaReader, node: ast.Name) -> NoReturn:
    """Raise UnknownFunction with the best advice for this word."""
    if node.id in reader.declared.tensors:
        advice = f"{node.id} is a tensor: index it with brackets, {node.id}[...]"
    elif close := get_close_matches(node.id, [*_CALLABLE, *BLOCKS], 1):
        advice = f"did you mean {close[0]}?"
    else:
        advice = f"functions: {', '.join(_CALLABLE)}; blocks: {', '.join(BLOCKS)}"
    reader.fail(node, mistakes.UnknownFunction, name=node.id, advice=advice)
