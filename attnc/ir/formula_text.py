"""Print a formula of the IR as one line of text that says everything about it.

Why not `notation.plain`: that one is for readers and may round; this one writes floats by repr and
never drops anything, because equal text must mean equal programs.
"""

# sympy's own printer promises its one answer as a type
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

from sympy import Expr, Pow
from sympy.logic.boolalg import Boolean
from sympy.printing.precedence import PRECEDENCE, precedence
from sympy.printing.str import StrPrinter

_NAMES = {"Max": "max", "Min": "min", "Abs": "abs", "InverseOrZero": "inverse_or_zero"}


class FormulaPrinter(StrPrinter):
    """Writes sympy in the spec's own language, floats by repr."""

    def _print_Float(self, expr: Any) -> str:
        value = float(expr)
        return repr(value) if expr == value else str(expr)

    def _print_Infinity(self, expr: Any) -> str:
        return "inf"

    def _print_NegativeInfinity(self, expr: Any) -> str:
        return "-inf"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        if expr.base == 2 and not expr.exp.is_number:
            return f"exp2({self._print(expr.exp)})"
        return super()._print_Pow(expr, rational=rational)

    def _print_Function(self, expr: Any) -> str:
        name = type(expr).__name__
        name = _NAMES.get(name, name[:1].lower() + name[1:])
        return f"{name}({self._list(expr.args)})"

    def _print_Exp2(self, expr: Any) -> str:
        # not Pow's "exp2": a lowered exponential and the user's power are different nodes
        return f"fast_exp2({self._print(expr.args[0])})"

    def _print_FloorDiv(self, expr: Any) -> str:
        return self._infix("//", expr.args)

    def _print_FloorMod(self, expr: Any) -> str:
        return self._infix("%", expr.args)

    def _print_Read(self, expr: Any) -> str:
        return f"{self._print(expr.args[0])}[{self._list(expr.args[1:])}]"

    def _print_Max(self, expr: Any) -> str:
        return f"max({self._list(sorted(expr.args, key=str))})"

    def _print_Min(self, expr: Any) -> str:
        return f"min({self._list(sorted(expr.args, key=str))})"

    def _print_Equality(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)} == {self._print(expr.rhs)}"

    def _print_Unequality(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)} != {self._print(expr.rhs)}"

    def _print_BooleanTrue(self, expr: Any) -> str:
        return "true"

    def _print_BooleanFalse(self, expr: Any) -> str:
        return "false"

    def _print_And(self, expr: Any) -> str:
        return " & ".join(sorted(self._operand(arg) for arg in expr.args))

    def _print_Or(self, expr: Any) -> str:
        return " | ".join(sorted(self._operand(arg) for arg in expr.args))

    def _print_Not(self, expr: Any) -> str:
        return f"~{self._operand(expr.args[0])}"

    def _infix(self, sign: str, args: tuple[Expr, ...]) -> str:
        return f"{self._factor(args[0])} {sign} {self._factor(args[1])}"

    def _factor(self, expr: Expr) -> str:
        text = self._print(expr)
        simple = precedence(expr) >= PRECEDENCE["Atom"] and not isinstance(expr, Pow)
        return text if simple and not text.startswith("-") and " " not in text else f"({text})"

    def _operand(self, expr: Any) -> str:
        return self._print(expr) if expr.is_Symbol else f"({self._print(expr)})"

    def _list(self, args: tuple[Any, ...] | list[Any]) -> str:
        return ", ".join(self._print(arg) for arg in args)

    def parenthesize(self, item: Any, level: int, strict: bool = False) -> str:
        """Put parentheses where the surrounding operator binds tighter."""
        # sympy takes every function for an atom; ours that print as infix need parentheses
        if type(item).__name__ in ("FloorDiv", "FloorMod"):
            return f"({self._print(item)})"
        return super().parenthesize(item, level, strict)


_PRINTER = FormulaPrinter()


def formula_text(formula: Expr | Boolean) -> str:
    """Print a formula on one line, completely: different formulas give different texts."""
    return _PRINTER.doprint(formula)
