"""Print formulas as dense PyTorch, for the reference that a generated file carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import sympy
from sympy import Basic, Expr, Symbol
from sympy.core.relational import Relational
from sympy.logic.boolalg import And, BooleanFalse, BooleanTrue, Not, Or

from attnc.symbols import FloorDiv, FloorMod, Read, Where, arguments, sigmoid, sign_of

FUNCTIONS = {
    sympy.tanh: "torch.tanh",
    sympy.exp: "torch.exp",
    sympy.log: "torch.log",
    sympy.Abs: "torch.abs",
    sigmoid: "torch.sigmoid",
}


@dataclass
class TorchText:
    """Prints formulas over names that are tensors; remembers which helpers the file must define.

    taken: texts of the conditions under which a part counts.  Elsewhere its derivative may be
    infinite, and a gradient of 0 times that is NaN: so no gradient passes from there.
    """

    used: set[str] = field(default_factory=set)
    taken: tuple[str, ...] = ()

    def print(self, formula: Basic) -> str:
        """The formula as one expression, in parentheses where it is compound."""
        match formula:
            case Symbol():
                return self._leaf(formula, str(formula))
            case BooleanTrue() | BooleanFalse():
                return f"torch.tensor({bool(formula)})"
            case _ if formula.is_number:
                return _number(cast(Expr, formula))
            case sympy.Add():
                return self._sum(formula)
            case sympy.Mul():
                return self._product(formula)
            case sympy.Pow():
                return self._power(formula)
            case And() | Or():
                sign = " & " if isinstance(formula, And) else " | "
                return f"({sign.join(self.print(arg) for arg in sorted(formula.args, key=str))})"
            case Not():
                return f"~{self.print(formula.args[0])}"
            case Relational():
                left, right = self.print(formula.lhs), self.print(formula.rhs)
                return f"({left} {sign_of(formula)} {right})"
            case _:
                return self._function(formula)

    def _leaf(self, formula: Expr, text: str) -> str:
        """What gradients may flow to."""
        if formula.is_integer or not self.taken:
            return text
        self.used.add("taken")
        return f"_taken({text}, {', '.join(self.taken)})"

    def _within(self, condition: str, formula: Basic) -> str:
        outer, self.taken = self.taken, (*self.taken, condition)
        text = self.print(formula)
        self.taken = outer
        return text

    def _condition(self, formula: Basic) -> str:
        outer, self.taken = self.taken, ()
        text = self.print(formula)
        self.taken = outer
        return text

    def _divisor(self, formula: Expr) -> str:
        """A pair that does not count may divide by zero; torch raises where numbers are whole."""
        text = self.print(formula)
        if formula.is_number or formula.is_positive or not formula.is_integer:
            return text
        self.used.add("divisor")
        return f"_divisor({text})"

    def _sum(self, formula: Expr) -> str:
        terms = sorted(
            arguments(formula), key=lambda term: (term.could_extract_minus_sign(), str(term))
        )
        text = self.print(terms[0])
        for term in terms[1:]:
            minus = term.could_extract_minus_sign()
            text += f" - {self.print(-term)}" if minus else f" + {self.print(term)}"
        return f"({text})"

    def _product(self, formula: Expr) -> str:
        above = [
            factor
            for factor in formula.args
            if not (isinstance(factor, sympy.Pow) and factor.exp == -1)
        ]
        below = [
            factor.base
            for factor in formula.args
            if isinstance(factor, sympy.Pow) and factor.exp == -1
        ]
        if above[:1] == [sympy.S.NegativeOne] and len(above) > 1:
            _, first, *others = arguments(formula)
            positive = sympy.Mul(first, *others)
            text = self._product(positive) if others else self.print(first)
            return f"(-{text})"
        text = " * ".join(self.print(factor) for factor in above) or "1.0"
        for divisor in below:
            text += f" / {self.print(divisor)}"
        return f"({text})"

    def _power(self, formula: Expr) -> str:
        base, exponent = formula.as_base_exp()
        if exponent == sympy.Rational(1, 2):
            return f"torch.sqrt({self.print(base)})"
        if base.is_number and sympy.Rational(base) == 2:
            return f"torch.exp2({self.print(exponent)})"
        if exponent.is_Integer and exponent < 0:
            # torch refuses whole numbers to negative whole powers
            return f"(1.0 / {self.print(sympy.Pow(base, -exponent))})"
        text = repr(float(base)) if base.is_number else self.print(base)
        return f"({text} ** {self.print(exponent)})"

    def _function(self, formula: Basic) -> str:
        match formula:
            case Where():
                condition = self._condition(formula.args[0])
                then = self._within(bare(condition), formula.args[1])
                otherwise = self._within(f"~{condition}", formula.args[2])
                return f"torch.where({condition}, {then}, {otherwise})"
            case sympy.Min() | sympy.Max():
                name = "torch.minimum" if isinstance(formula, sympy.Min) else "torch.maximum"
                args = [
                    f"torch.tensor({self.print(a)})" if a.is_number else self.print(a)
                    for a in formula.args
                ]
                text = args[0]
                for arg in args[1:]:
                    text = f"{name}({text}, {arg})"
                return text
            case FloorDiv(args=(a, b)):
                above, below = self.print(a), self._divisor(b)
                if a.is_integer and b.is_integer:
                    return f"({above} // {below})"
                return f"torch.floor({above} / {below}).clamp(-(2**62), 2**62).long()"
            case FloorMod(args=(a, b)):
                return f"({self.print(a)} % {self._divisor(b)})"
            case Read():
                self.used.add("read")
                indices = ", ".join(self.print(index) for index in formula.indices)
                return self._leaf(formula, f"_read({formula.tensor}, {indices})")
            case _:
                args = ", ".join(self.print(arg) for arg in formula.args)
                return f"{FUNCTIONS[type(formula)]}({args})"


def _number(value: Expr) -> str:
    if value.is_Integer and abs(int(value)) < 2**63:
        return f"({int(value)})" if int(value) < 0 else str(int(value))
    text = repr(float(value))
    return f"({text})" if value.is_negative else text


class MathText(TorchText):
    """Prints formulas of plain numbers, for the launcher."""

    def _power(self, formula: Expr) -> str:
        base, exponent = formula.as_base_exp()
        if abs(exponent) == sympy.Rational(1, 2):
            root = f"math.sqrt({self.print(base)})"
            return root if exponent > 0 else f"(1.0 / {root})"
        return f"({self.print(base)} ** {self.print(exponent)})"

    def _function(self, formula: Basic) -> str:
        args = [self.print(arg) for arg in formula.args]
        match formula:
            case Where():
                return f"({args[1]} if {bare(args[0])} else {args[2]})"
            case sympy.Min() | sympy.Max():
                return f"{'min' if isinstance(formula, sympy.Min) else 'max'}({', '.join(args)})"
            case FloorDiv():
                return f"({args[0]} // {args[1]})"
            case FloorMod():
                return f"({args[0]} % {args[1]})"
            case sympy.Abs():
                return f"abs({args[0]})"
            case sigmoid():
                x = args[0]  # no power of e above 1, which might be infinite
                return f"(math.exp(min({x}, 0.0)) / (1.0 + math.exp(-abs({x}))))"
            case _:
                return f"math.{FUNCTIONS[type(formula)].removeprefix('torch.')}({', '.join(args)})"


def math_text(formula: Expr) -> str:
    """A formula of numbers as plain Python: the default scale."""
    return bare(MathText().print(formula))


def bare(text: str) -> str:
    """The text without a pair of parentheses around the whole of it."""
    depth = 0
    for i, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 and i > 0 and text[0] == "(" else text
    return text
