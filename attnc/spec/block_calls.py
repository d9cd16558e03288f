"""Read a call of a building block: bind its arguments, check each, and expand it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import sympy
from sympy import Expr, Symbol

from attnc import symbols
from attnc.errors import SpecError
from attnc.spec import formula_mistakes as mistakes
from attnc.spec.block import REQUIRED, Argument, BadBlock, Block, Kind
from attnc.spec.blocks import BLOCKS
from attnc.spec.tensor_reads import declared_tensor
from attnc.spec.unknown_words import NAMES, fail_tensor
from attnc.symbols import Formula

if TYPE_CHECKING:
    from attnc.spec.formula_reader import FormulaReader

_ALIGNMENTS = ("top_left", "bottom_right")


def read_call(
    reader: FormulaReader,
    block: Block,
    node: ast.expr,
    args: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
) -> Formula:
    """Expand a building block with the arguments given.

    Raises: SpecError at the argument that does not fit, or at the call.
    """
    if reader.role == "scale":
        advice = "what varies by row or head belongs into score"
        reader.fail(node, mistakes.UnknownName, name=block.name, where="a scale", advice=advice)
    given = _bind(reader, block, node, args, keywords)
    values = [
        _argument(reader, block, argument, given.get(argument.name)) for argument in block.arguments
    ]
    try:
        formula = block.build(reader.declared.heads_q, *values)
    except BadBlock as error:
        place = given.get(error.argument, node)
        facts = {
            "argument": error.argument,
            "name": block.name,
            "expected": error.expected,
            "given": error.given,
        }
        reader.fail(place, mistakes.BadArgument, **facts)
    if reader.role == "mask" and formula.has(symbols.score):
        advice = "it makes a score; write it under score"
        reader.fail(node, mistakes.UnknownName, name=block.name, where="a mask", advice=advice)
    reader.fixes_heads = reader.fixes_heads or block.fixes_heads
    return formula


def _bind(
    reader: FormulaReader,
    block: Block,
    node: ast.expr,
    args: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
) -> dict[str, ast.expr]:
    """Match what was given to the block's arguments, as a Python call does."""
    names = [argument.name for argument in block.arguments]
    problem = ""
    if len(args) > len(names):
        problem = (
            f"takes at most {len(names)} argument{'s' if len(names) > 1 else ''}, not {len(args)}"
        )
    given = dict(zip(names, args, strict=False))
    for keyword in keywords:
        if keyword.arg not in names:
            problem = problem or f"has no argument {keyword.arg!r}"
        elif keyword.arg in given:
            problem = problem or f"gets {keyword.arg} twice"
        given[str(keyword.arg)] = keyword.value
    missing = [a.name for a in block.arguments if a.default is REQUIRED and a.name not in given]
    if missing:
        problem = problem or f"needs {' and '.join(missing)}"
    if problem:
        facts = {"name": block.name, "problem": problem, "signature": block.signature}
        reader.fail(node, mistakes.WrongArguments, **facts)
    return given


def _argument(
    reader: FormulaReader, block: Block, argument: Argument, node: ast.expr | None
) -> object:
    """Read one argument by its kind."""
    if node is None:
        return argument.default
    match argument.kind:
        case Kind.NUMBER:
            return reader.number(node, f"{argument.name} of {block.name}")
        case Kind.WHOLE | Kind.POSITIVE:
            return _limited(reader, block, argument, node)
        case Kind.TENSOR if isinstance(node, ast.Name) and node.id in reader.declared.tensors:
            return declared_tensor(reader, node)
        case Kind.TENSOR if isinstance(node, ast.Name) and _word(node) not in NAMES["score"]:
            fail_tensor(reader, node, argument.example)
        case Kind.FLAG if _word(node) in ("true", "false"):
            return _word(node) == "true"
        case Kind.WORD if _word(node) in _ALIGNMENTS:
            return _word(node)
        case _:
            return _refuse(reader, block, argument, node)


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(node.value).lower()
    return node.id if isinstance(node, ast.Name) else ""


def _refuse(
    reader: FormulaReader,
    block: Block,
    argument: Argument,
    node: ast.expr,
    given: str = "",
    kind: type[SpecError] = mistakes.BadArgument,
) -> NoReturn:
    facts = {"argument": argument.name, "name": block.name, "expected": argument.expected()}
    reader.fail(node, kind, **facts, given=given or reader.source(node))


def _limited(reader: FormulaReader, block: Block, argument: Argument, node: ast.expr) -> Expr:
    """Read a number that must be whole or positive, as far as it is known now.

    A param is judged by its default: only `inf` means unlimited, never -1 and never 0.
    """
    if argument.unbounded and _word(node) == "inf":
        return sympy.oo
    value = reader.number(node, f"{argument.name} of {block.name}")
    whole = argument.kind is Kind.WHOLE
    written_as_float = any(
        isinstance(part, ast.Constant) and isinstance(part.value, float) for part in ast.walk(node)
    )
    if whole and (written_as_float or not value.is_integer):
        varies = not (written_as_float or value.is_number)
        kind = mistakes.ArgumentNotWhole if varies else mistakes.BadArgument
        _refuse(reader, block, argument, node, kind=kind)
    if value.has(symbols.kv_idx, symbols.score) or (not whole and value.has(symbols.q_idx)):
        _refuse(reader, block, argument, node)
    known, given = value, ""
    if isinstance(value, Symbol) and (param := reader.declared.params.get(value.name)):
        known = None if param.default is None else sympy.sympify(param.default)
        given = f"{param.name} = {param.default}"
    if (
        known is not None
        and known.is_number
        and not (known >= argument.least if whole else known > 0)
    ):
        _refuse(reader, block, argument, node, given)
    return value


def refuse_doubled_score(reader: FormulaReader, tree: ast.expr) -> None:
    """Refuse `score + alibi`, where bare alibi is alibi(score); `alibi - score` is as it says."""
    inner: set[ast.expr] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.BinOp) or node in inner:
            continue
        terms = list(_terms(node, "+", inner))
        bare = [term for sign, term in terms if sign == "+" and _is_bare(term)]
        others = [(sign, term) for sign, term in terms if term not in bare[:1]]
        signs = {sign for sign, term in others if _names_score(term)}
        if bare and signs == {"+"}:
            rest = "".join(f" {sign} {reader.source(term)}" for sign, term in others)
            facts = {"name": _word(bare[0]), "rest": rest.removeprefix(" + ").strip()}
            reader.fail(bare[0], mistakes.ScoreTwice, **facts)


def _terms(node: ast.expr, sign: str, inner: set[ast.expr]) -> Iterator[tuple[str, ast.expr]]:
    """The terms of a sum with their signs; the sums within it are noted as `inner`."""
    inner.add(node)
    opposite = "-" if sign == "+" else "+"
    match node:
        case ast.UnaryOp(op=ast.USub()):
            yield from _terms(node.operand, opposite, inner)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            yield from _terms(node.left, sign, inner)
            is_sum = isinstance(node.op, ast.Add)
            yield from _terms(node.right, sign if is_sum else opposite, inner)
        case _:
            inner.discard(node)
            yield sign, node


def _is_bare(node: ast.expr) -> bool:
    block = BLOCKS.get(_word(node))
    return block is not None and any(a.default == symbols.score for a in block.arguments)


def _names_score(node: ast.expr) -> bool:
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return any(name.id == "score" or _is_bare(name) for name in names)
