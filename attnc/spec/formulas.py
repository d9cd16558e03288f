"""Read a formula's text into sympy.  Nothing is ever evaluated as Python.

The tree comes from `ast`; this walks it, knows which parts are numbers and which conditions, and
refuses everything that is not in the language of DESIGN 1.1 with its place.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import sympy
from sympy import Expr, Symbol, preorder_traversal
from sympy.logic.boolalg import Boolean

from attnc import symbols
from attnc.errors import SpecError
from attnc.spec import arithmetic, mistakes
from attnc.spec.arithmetic import BINARY, EXTREMES, FUNCTIONS, BadArithmetic
from attnc.spec.block_calls import read_call
from attnc.spec.blocks import BLOCKS
from attnc.spec.formula_text import FormulaText, extent, with_parentheses
from attnc.spec.schema import Param, Tensor
from attnc.symbols import Formula

MAX_DEPTH = 90

_SCALE_NAMES = ("d", "q_len", "kv_len")
_MASK_NAMES = ("b", "h", "h_kv", "q_idx", "kv_idx", "q_len", "kv_len", "q_pos", "d")
_SCORE_NAMES = (*_MASK_NAMES, "score")
NAMES: Mapping[str, tuple[str, ...]] = {"scale": _SCALE_NAMES, "mask": _MASK_NAMES, "score": _SCORE_NAMES}

_NOT_IN_IT: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.Attribute: ("an attribute", "call functions by their plain names, for example tanh(x)"),
    ast.IfExp: ("if and else", "write where(condition, a, b)"),
    ast.Slice: ("a slice", "index one element, for example bias[h, q_idx, kv_idx]"),
    ast.Tuple: ("a list of values", "a comma may stand only between arguments and between indices"),
    ast.List: ("a list", "declare a tensor and index it"),
    ast.Starred: ("a star before a value", "write the arguments out"),
}


@dataclass(frozen=True, slots=True)
class Declared:
    """What a spec's formulas may name besides the fixed words."""

    heads_q: int
    params: Mapping[str, Param]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ReadFormula:
    """A formula in symbols, the declared names it uses, and whether it holds for one head count only."""

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
    formula = reader.condition(tree, "a mask") if role == "mask" else reader.number(tree, f"a {role}")
    reader.check_whole(tree, formula)
    return ReadFormula(formula, frozenset(reader.used), reader.fixes_heads or names_head(formula))


def names_head(formula: Formula) -> bool:
    """Say whether h or h_kv stands outside a tensor index."""
    walk = preorder_traversal(formula)
    for part in walk:
        if isinstance(part, symbols.Read):
            walk.skip()
        elif part in (symbols.h, symbols.h_kv):
            return True
    return False


class FormulaReader:
    """Walk one formula.  Its methods return sympy and raise SpecError."""

    def __init__(self, text: FormulaText, role: str, declared: Declared) -> None:
        self.text = text
        self.role = role
        self.declared = declared
        self.used: set[str] = set()
        self.fixes_heads = False
        self.depth = 0

    def fail(self, node: ast.expr, kind: type[SpecError], **facts: object) -> NoReturn:
        raise kind(self.text.node_span(node), **facts) from None

    def source(self, node: ast.expr) -> str:
        """The text of a part, shortened for a message."""
        start, end = extent(node)
        shown = " ".join(self.text.text[start:end].split())
        return shown if len(shown) <= 40 else f"{shown[:37]}..."

    def number(self, node: ast.expr, where: str) -> Expr:
        """Read a part that must be a number."""
        value = self.value(node)
        if isinstance(value, Boolean) and not isinstance(value, Symbol):
            self.fail(node, mistakes.NotANumber, where=where)
        if not isinstance(value, Expr) or value is sympy.oo:
            self.fail(node, mistakes.StrayInfinity)
        return value

    def condition(self, node: ast.expr, where: str) -> Boolean:
        """Read a part that must be a condition."""
        value = self.value(node)
        if not isinstance(value, Boolean) or isinstance(value, Symbol):
            shown = self.source(node)
            example = f"{shown} > 0" if shown.isidentifier() else "kv_idx <= q_pos"
            self.fail(node, mistakes.NotACondition, where=where, example=example)
        return value

    def value(self, node: ast.expr) -> Formula:
        """Read any part."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(node, mistakes.FormulaTooDeep, limit=MAX_DEPTH)
        try:
            return self._value(node)
        except BadArithmetic as error:
            self.fail(node, error.kind, **error.facts)
        finally:
            self.depth -= 1

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
                join = sympy.And if isinstance(node.op, ast.And) else sympy.Or
                word = "and" if isinstance(node.op, ast.And) else "or"
                return join(*(self.condition(part, f"each side of {word}") for part in node.values))
            case ast.Compare():
                return self._compare(node)
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                return self._index(node)
            case _:
                what, advice = _NOT_IN_IT.get(type(node), ("this", "the language is that of docs/spec-language.md"))
                self.fail(node, mistakes.NotInTheLanguage, what=what, advice=advice)

    def _constant(self, node: ast.Constant) -> Formula:
        if isinstance(node.value, bool):
            return sympy.true if node.value else sympy.false
        if node.value is None:
            self.fail(node, mistakes.NotInTheLanguage, what="None", advice="to leave a bound out, write inf")
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
            shape = ", ".join(map(str, tensor.shape))
            self.fail(node, mistakes.TensorNotIndexed, name=name, shape=shape)
        if name in BLOCKS:
            return read_call(self, BLOCKS[name], node, (), ())
        self._unknown_name(node)

    def _unknown_name(self, node: ast.Name) -> NoReturn:
        name, role = node.id, self.role
        known = [*NAMES[role], *self.declared.params, *self.declared.tensors, *BLOCKS]
        advice = f"a {role} may name {', '.join(NAMES[role])}, params and tensors"
        if name in _SCORE_NAMES:
            advice = f"a {role} cannot depend on it; " + (
                "what varies by row or head belongs into score"
                if role == "scale"
                else "a mask looks at positions, not at values"
            )
        elif name in FUNCTIONS or name in EXTREMES or name == "where":
            advice = f"{name} is a function: give it arguments in parentheses"
        elif close := difflib.get_close_matches(name, known, 1):
            advice = f"did you mean {close[0]}?"
        self.fail(node, mistakes.UnknownName, name=name, where=f"a {role}", advice=advice)

    def _chain(self, node: ast.BinOp) -> Formula:
        """Read a chain of operators, leftmost first, without a recursion per operator."""
        links: list[ast.BinOp] = [node]
        while isinstance(links[-1].left, ast.BinOp):
            links.append(links[-1].left)
        value = self.value(links[-1].left)
        for link in reversed(links):
            value = self._binary(link, value)
        return value

    def _binary(self, node: ast.BinOp, left: Formula) -> Formula:
        sign = type(node.op).__name__
        if sign in ("BitAnd", "BitOr"):
            mark = "&" if sign == "BitAnd" else "|"
            a = self._as_condition(left, node.left, f"the left of {mark}")
            b = self.condition(node.right, f"the right of {mark}")
            return sympy.And(a, b) if mark == "&" else sympy.Or(a, b)
        if sign not in BINARY:
            advice = "the operators are + - * / // % ** < <= > >= == != & | ~"
            self.fail(node, mistakes.NotInTheLanguage, what="this operator", advice=advice)
        if isinstance(left, Boolean) and not isinstance(left, Symbol):
            self.fail(node.left, mistakes.NotANumber, where="what arithmetic works on")
        right = self.number(node.right, "what arithmetic works on")
        try:
            return BINARY[sign](left, right)
        except BadArithmetic as error:
            self.fail(node, error.kind, **error.facts)

    def _as_condition(self, value: Formula, node: ast.expr, where: str) -> Boolean:
        if isinstance(value, Boolean) and not isinstance(value, Symbol):
            return value
        shown = self.source(node)
        example = f"{shown} > 0" if shown.isidentifier() else "kv_idx <= q_pos"
        self.fail(node, mistakes.NotACondition, where=where, example=example)

    def _unary(self, node: ast.UnaryOp) -> Formula:
        if isinstance(node.op, (ast.Invert, ast.Not)):
            sign = "~" if isinstance(node.op, ast.Invert) else "not"
            return sympy.Not(self.condition(node.operand, f"what stands after {sign}"))
        value = self.number(node.operand, "what a sign stands before")
        return -value if isinstance(node.op, ast.USub) else value

    def _compare(self, node: ast.Compare) -> Boolean:
        if rewritten := with_parentheses(self.text, node):
            self.fail(node, mistakes.NeedsParentheses, rewritten=rewritten)
        sides = [self._compared(part) for part in (node.left, *node.comparators)]
        signs = [type(sign).__name__ for sign in node.ops]
        if any(sign not in arithmetic.COMPARE for sign in signs):
            advice = "the comparisons are < <= > >= == !="
            self.fail(node, mistakes.NotInTheLanguage, what="in or is", advice=advice)
        links = zip(signs, sides, sides[1:], strict=False)
        return sympy.And(*(arithmetic.compare(sign, a, b) for sign, a, b in links))

    def _compared(self, node: ast.expr) -> Expr:
        """Read a side of a comparison, where an element of a bool tensor counts as 0 or 1."""
        if isinstance(node, ast.Subscript):
            return self._element(node)
        return self.number(node, "what is compared")

    def _call(self, node: ast.Call) -> Formula:
        if not isinstance(node.func, ast.Name):
            advice = "only a function's or building block's name can stand before ("
            self.fail(node, mistakes.NotInTheLanguage, what="this call", advice=advice)
        name = node.func.id
        if name in BLOCKS:
            return read_call(self, BLOCKS[name], node, node.args, node.keywords)
        if name in FUNCTIONS:
            (x,) = self._arguments(node, name, 1, f"{name}(x)")
            return FUNCTIONS[name](self.number(x, f"the argument of {name}"))
        if name in EXTREMES:
            return self._extreme(node, name)
        if name == "where":
            return self._where(node)
        self._unknown_function(node.func)

    def _arguments(self, node: ast.Call, name: str, count: int, signature: str) -> list[ast.expr]:
        if node.keywords or len(node.args) != count:
            given = len(node.args) + len(node.keywords)
            problem = f"takes {count} argument{'s' if count > 1 else ''} without names, not {given}"
            if node.keywords and given == count:
                problem = "takes its arguments without names"
            self.fail(node, mistakes.WrongArguments, name=name, problem=problem, signature=signature)
        return node.args

    def _extreme(self, node: ast.Call, name: str) -> Expr:
        if node.keywords or len(node.args) < 2 or len(node.args) > 8:
            problem = f"takes 2 to 8 arguments without names, not {len(node.args) + len(node.keywords)}"
            self.fail(node, mistakes.WrongArguments, name=name, problem=problem, signature=f"{name}(a, b)")
        values = [self.number(part, f"each argument of {name}") for part in node.args]
        return self._guarded(lambda: arithmetic.checked(EXTREMES[name](*values)))

    def _guarded(self, make: Callable[[], Expr]) -> Expr:
        try:
            return make()
        except (TypeError, ValueError):  # sympy refuses to order what is not real
            raise BadArithmetic(mistakes.NotFinite) from None

    def _where(self, node: ast.Call) -> Formula:
        c, a, b = self._arguments(node, "where", 3, "where(condition, a, b)")
        condition = self.condition(c, "the first argument of where")
        yes = self.value(a)
        if isinstance(yes, Boolean) and not isinstance(yes, Symbol):
            no = self.condition(b, "the third argument of where, like the second,")
            return sympy.Or(sympy.And(condition, yes), sympy.And(sympy.Not(condition), no))
        no = self.number(b, "the third argument of where, like the second,")
        return symbols.Where(condition, yes, no)

    def _unknown_function(self, node: ast.Name) -> NoReturn:
        known = [*FUNCTIONS, *EXTREMES, "where", *BLOCKS]
        close = difflib.get_close_matches(node.id, known, 1)
        advice = f"did you mean {close[0]}?" if close else f"functions: {', '.join([*FUNCTIONS, *EXTREMES])}, where"
        if node.id in self.declared.tensors:
            advice = f"{node.id} is a tensor: index it with brackets, {node.id}[...]"
        self.fail(node, mistakes.UnknownFunction, name=node.id, advice=advice)

    def _index(self, node: ast.Subscript) -> Formula:
        read = self._element(node)
        tensor = self.declared.tensors[read.tensor]
        return sympy.Ne(read, 0) if tensor.dtype == "bool" else read

    def _element(self, node: ast.Subscript) -> symbols.Read:
        if not isinstance(node.value, ast.Name):
            advice = "only a declared tensor can be indexed"
            self.fail(node, mistakes.NotInTheLanguage, what="this index", advice=advice)
        tensor = self.tensor(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        shape = ", ".join(map(str, tensor.shape))
        if len(parts) != len(tensor.shape):
            facts = {"name": tensor.name, "rank": len(tensor.shape), "count": len(parts), "shape": shape}
            self.fail(node, mistakes.WrongIndexCount, **facts)
        indices = [self._whole_index(part, at, tensor.name) for at, part in enumerate(parts, 1)]
        return symbols.Read(symbols.tensor_symbol(tensor.name, tensor.dtype), *indices)

    def tensor(self, node: ast.Name) -> Tensor:
        """The declared tensor that a name stands for."""
        tensor = self.declared.tensors.get(node.id)
        if self.role == "scale" or tensor is None:
            known = ", ".join(self.declared.tensors) or "none"
            advice = "what a tensor holds belongs into score" if tensor else f"declared tensors: {known}"
            self.fail(node, mistakes.UnknownName, name=node.id, where=f"a {self.role}", advice=advice)
        self.used.add(node.id)
        return tensor

    def _whole_index(self, node: ast.expr, at: int, name: str) -> Expr:
        index = self.number(node, f"index {at} of {name}")
        if not index.is_integer:
            advice = f"write ({self.source(node)}) // 1 to round down"
            self.fail(node, mistakes.IndexNotInteger, position=at, name=name, advice=advice)
        return index

    def check_whole(self, node: ast.expr, formula: Formula) -> None:
        """Check what only the finished formula shows."""
        if formula.has(*arithmetic.INFINITE):
            self.fail(node, mistakes.NotFinite)
        in_indices = [i for read in formula.atoms(symbols.Read) for i in read.indices]
        exact = [formula] if self.role == "mask" else in_indices
        if any(arithmetic.large_integers(part) for part in exact):
            self.fail(node, mistakes.NumberTooLarge, limit="whole numbers go up to 2**53")
        if self.role == "scale" and not formula.is_positive and formula.is_number and formula.is_zero:
            self.fail(node, mistakes.ZeroScale)
