"""Walk the tree of a formula: which parts are numbers, which conditions, what each means.

The tree comes from `ast`.  Everything that is not in the language of docs/spec-language.md is
refused with its place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import sympy
from sympy import Basic, Expr, Symbol
from sympy.logic.boolalg import Boolean

from attnc import symbols
from attnc.errors import SpecError
from attnc.spec import arithmetic, tensor_reads, unknown_words
from attnc.spec import formula_mistakes as mistakes
from attnc.spec.arithmetic import BINARY, EXTREMES, FUNCTIONS, BadArithmetic
from attnc.spec.block_calls import read_call
from attnc.spec.blocks import BLOCKS
from attnc.spec.formula_text import FormulaText, extent, with_parentheses
from attnc.spec.schema import Param, Tensor
from attnc.spec.unknown_words import NAMES
from attnc.symbols import Formula

MAX_DEPTH = 90
MAX_CALLS = 8  # calls within calls; sympy's questions about signs grow steeply with them
MAX_PARTS = (
    3000  # operations of the expanded formula; where() of conditions doubles its first argument
)

_NOT_IN_IT: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.Attribute: ("an attribute", "call functions by their plain names, for example tanh(x)"),
    ast.IfExp: ("if and else", "write where(condition, a, b)"),
    ast.Slice: ("a slice", "index one element, for example bias[h, q_idx, kv_idx]"),
    ast.Tuple: ("a list of values", "a comma may stand only between arguments and between indices"),
    ast.List: ("a list", "declare a tensor and index it"),
    ast.Starred: ("a star before a value", "write the arguments out"),
}
_REST = ("this", "the whole language stands in docs/spec-language.md")


@dataclass(frozen=True, slots=True)
class Declared:
    """What a spec's formulas may name besides the fixed words."""

    heads_q: int
    head_dim: int  # of q and k: what `d` is
    params: Mapping[str, Param]
    tensors: Mapping[str, Tensor]


class FormulaReader:
    """Walk one formula.  Its methods return sympy and raise SpecError."""

    def __init__(self, text: FormulaText, role: str, declared: Declared) -> None:
        self.text = text
        self.role = role
        self.declared = declared
        self.used: set[str] = set()
        self.fixes_heads = False
        self._depth = 0
        self._calls = 0
        self._sizes: dict[object, int] = {}

    def fail(self, node: ast.expr, kind: type[SpecError], **facts: object) -> NoReturn:
        """Raise a mistake at a part of the formula."""
        raise kind(self.text.node_span(node), **facts) from None

    def source(self, node: ast.expr) -> str:
        """The text of a part, shortened for a message."""
        start, end = extent(node)
        shown = " ".join(self.text.text[start:end].split())
        return shown if len(shown) <= 40 else f"{shown[:37]}..."

    def number(self, node: ast.expr, where: str) -> Expr:
        """Read a part that must be a number."""
        return self._as_number(self.value(node), node, where)

    def condition(self, node: ast.expr, where: str) -> Boolean:
        """Read a part that must be a condition."""
        return self._as_condition(self.value(node), node, where)

    def value(self, node: ast.expr) -> Formula:
        """Read any part."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(node, mistakes.FormulaTooDeep, limit=MAX_DEPTH)
        value = self._computed(node, lambda: self._value(node))
        self._depth -= 1
        if self._size(value) > MAX_PARTS:
            self.fail(node, mistakes.FormulaTooLong, limit=MAX_PARTS, what="parts when expanded")
        return value

    def _size(self, formula: Basic) -> int:
        """The number of parts of a formula, each counted as often as it stands there."""
        if formula not in self._sizes:
            self._sizes[formula] = 1 + sum(self._size(arg) for arg in formula.args)
        return self._sizes[formula]

    def _computed(self, node: ast.expr, make: Callable[[], Formula]) -> Formula:
        """Make a value; what arithmetic cannot compute is the mistake of this part."""
        try:
            return make()
        except BadArithmetic as error:
            self.fail(node, error.kind, **error.facts)
        except (TypeError, ValueError):
            self.fail(node, mistakes.NotFinite)  # sympy refuses to order what is not real

    def _as_number(self, value: Formula, node: ast.expr, where: str) -> Expr:
        if is_condition(value):
            self.fail(node, mistakes.NotANumber, where=where)
        assert isinstance(value, Expr)
        return value

    def _as_condition(self, value: Formula, node: ast.expr, where: str) -> Boolean:
        if is_condition(value):
            assert isinstance(value, Boolean)
            return value
        shown = self.source(node)
        example = f"{shown} > 0" if shown.isidentifier() else "kv_idx <= q_pos"
        self.fail(node, mistakes.NotACondition, where=where, example=example)

    def _value(self, node: ast.expr) -> Formula:
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name():
                return self._name(node)
            case ast.BinOp():
                return self._chain(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return self._junction(node)
            case ast.Compare():
                return self._compare(node)
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                return tensor_reads.read_element(self, node)
            case _:
                what, advice = _NOT_IN_IT.get(type(node), _REST)
                self.fail(node, mistakes.NotInTheLanguage, what=what, advice=advice)

    def _constant(self, node: ast.Constant) -> Formula:
        if isinstance(node.value, bool):
            return sympy.true if node.value else sympy.false
        if node.value is None:
            advice = "to leave a bound out, write inf"
            self.fail(node, mistakes.NotInTheLanguage, what="None", advice=advice)
        start, end = extent(node)
        return arithmetic.number(self.text.text[start:end])

    def _name(self, node: ast.Name) -> Formula:
        name = node.id
        if name in NAMES[self.role]:
            return getattr(symbols, name)
        if param := self.declared.params.get(name):
            self.used.add(name)
            return symbols.param_symbol(name, param.kind)
        if name in ("true", "false"):
            return sympy.true if name == "true" else sympy.false
        if name == "inf":
            self.fail(node, mistakes.StrayInfinity)
        if tensor := self.declared.tensors.get(name):
            usual = tensor_reads.usual_index(tensor)
            self.fail(node, mistakes.TensorNotIndexed, name=name, usual=usual)
        if name in BLOCKS:
            return read_call(self, BLOCKS[name], node, (), ())
        unknown_words.fail_name(self, node)

    def _chain(self, node: ast.BinOp) -> Formula:
        """Read a chain of operators, leftmost first, without a recursion per operator."""
        links: list[ast.BinOp] = [node]
        while isinstance(before := links[-1].left, ast.BinOp):
            links.append(before)
        value = self.value(links[-1].left)
        for link in reversed(links):
            value = self._binary(link, value)
        return value

    def _binary(self, node: ast.BinOp, left: Formula) -> Formula:
        sign = type(node.op).__name__
        if sign in ("BitAnd", "BitOr"):
            mark, join = ("&", sympy.And) if sign == "BitAnd" else ("|", sympy.Or)
            a = self._as_condition(left, node.left, f"the left of {mark}")
            return join(a, self.condition(node.right, f"the right of {mark}"))
        if sign not in BINARY:
            advice = "the operators are + - * / // % ** < <= > >= == != & | ~"
            self.fail(node, mistakes.NotInTheLanguage, what="this operator", advice=advice)
        a = self._as_number(left, node.left, "what arithmetic works on")
        b = self.number(node.right, "what arithmetic works on")
        return self._computed(node, lambda: BINARY[sign](a, b))

    def _junction(self, node: ast.BoolOp) -> Boolean:
        word, join = ("and", sympy.And) if isinstance(node.op, ast.And) else ("or", sympy.Or)
        return join(*(self.condition(part, f"each side of {word}") for part in node.values))

    def _unary(self, node: ast.UnaryOp) -> Formula:
        if isinstance(node.op, (ast.Invert, ast.Not)):
            sign = "~" if isinstance(node.op, ast.Invert) else "not"
            return arithmetic.negation(self.condition(node.operand, f"what stands after {sign}"))
        value = self.number(node.operand, "what a sign stands before")
        return -value if isinstance(node.op, ast.USub) else value

    def _compare(self, node: ast.Compare) -> Boolean:
        if rewritten := with_parentheses(self.text, node):
            self.fail(node, mistakes.NeedsParentheses, rewritten=rewritten)
        parts = (node.left, *node.comparators)
        values = [self.value(part) for part in parts]
        signs = [type(sign).__name__ for sign in node.ops]
        if any(sign not in arithmetic.COMPARE for sign in signs):
            advice = "the comparisons are < <= > >= == !="
            self.fail(node, mistakes.NotInTheLanguage, what="in or is", advice=advice)
        as_numbers = len(parts) != 2 or all(isinstance(part, ast.Subscript) for part in parts)
        if not as_numbers and signs[0] in arithmetic.AGREE and all(map(is_condition, values)):
            return arithmetic.AGREE[signs[0]](*values)
        sides = [self._compared(*each) for each in zip(values, parts, strict=True)]
        links = zip(signs, pairwise(sides), strict=True)
        return sympy.And(*(arithmetic.COMPARE[sign](a, b) for sign, (a, b) in links))

    def _compared(self, value: Formula, node: ast.expr) -> Expr:
        """A side of a comparison, where an element of a bool tensor counts as 0 or 1."""
        if isinstance(node, ast.Subscript) and is_condition(value):
            return tensor_reads.element_of(value)
        return self._as_number(value, node, "what is compared")

    def _call(self, node: ast.Call) -> Formula:
        self._calls += 1
        if self._calls > MAX_CALLS:
            self.fail(node, mistakes.FormulaTooDeep, limit=f"{MAX_CALLS} calls")
        value = self._called(node)
        self._calls -= 1
        return value

    def _called(self, node: ast.Call) -> Formula:
        if not isinstance(node.func, ast.Name):
            advice = "only a function's or building block's name can stand before ("
            self.fail(node, mistakes.NotInTheLanguage, what="this call", advice=advice)
        name = node.func.id
        if name in BLOCKS:
            return read_call(self, BLOCKS[name], node, node.args, node.keywords)
        if name in FUNCTIONS:
            (x,) = self._arguments(node, name, 1, 1, f"{name}(x)")
            return FUNCTIONS[name](self.number(x, f"the argument of {name}"))
        if name in EXTREMES:
            parts = self._arguments(node, name, 2, 8, f"{name}(a, b)")
            values = [self.number(part, f"each argument of {name}") for part in parts]
            return arithmetic.checked(EXTREMES[name](*values))
        if name == "where":
            return self._where(*self._arguments(node, name, 3, 3, "where(condition, a, b)"))
        unknown_words.fail_function(self, node.func)

    def _arguments(
        self, node: ast.Call, name: str, least: int, most: int, signature: str
    ) -> list[ast.expr]:
        given = len(node.args) + len(node.keywords)
        problem = "takes its arguments without names" if node.keywords else ""
        if not least <= given <= most:
            count = str(least) if least == most else f"{least} to {most}"
            problem = f"takes {count} argument{'' if most == 1 else 's'}, not {given}"
        if problem:
            facts = {"name": name, "problem": problem, "signature": signature}
            self.fail(node, mistakes.WrongArguments, **facts)
        return node.args

    def _where(self, c: ast.expr, a: ast.expr, b: ast.expr) -> Formula:
        condition = self.condition(c, "the first argument of where")
        yes, third = self.value(a), "the third argument of where, like the second,"
        if is_condition(yes):
            yes, no = self._as_condition(yes, a, "the second argument"), self.condition(b, third)
            return sympy.Or(
                sympy.And(condition, yes), sympy.And(arithmetic.negation(condition), no)
            )
        return symbols.Where(condition, yes, self.number(b, third))


def is_condition(value: Formula) -> bool:
    """Say whether a value is a condition; sympy's symbols are numbers here."""
    return isinstance(value, Boolean) and not isinstance(value, Symbol)
