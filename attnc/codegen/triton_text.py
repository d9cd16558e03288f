"""Print formulas as Triton expressions over tiles.

Every part is printed over its own axes and widened (`[:, None]`) only where it meets a wider one,
so that what varies by row is computed by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import sympy
from sympy import Basic, Expr, Symbol
from sympy.core.relational import Relational
from sympy.logic.boolalg import And, BooleanFalse, BooleanTrue, Not, Or

from attnc.codegen.texts import (
    ATOM,
    COMPARISON,
    PRODUCT,
    SUM,
    UNARY,
    Name,
    Text,
    by_axes,
    number,
    rank,
    union,
    widen,
)
from attnc.codegen.triton_functions import Order, binary, print_function, print_power
from attnc.ir.functions import Wide
from attnc.ir.position_ranges import Range
from attnc.symbols import FloorMod, arguments, names_in, sign_of

Signed = tuple[str, Text]


@dataclass
class TritonText:
    """Prints formulas; remembers which helper functions the file must define."""

    names: dict[str, Name]
    ranges: dict[str, Range]
    scalar: bool = False  # within a formula without axes
    casting: bool = False  # within Wide
    used: set[str] = field(default_factory=set)

    def over(self, formula: Basic, axes: Sequence[str]) -> str:
        """The formula as a text that broadcasts against a tile with these axes."""
        self.scalar = not any(self.names[name].axes for name in names_in(formula))
        return widen(self.print(formula, tuple(axes)), tuple(axes))

    def print(self, formula: Basic, order: Order) -> Text:
        """Print over the formula's own axes, ordered as in `order`."""
        if not isinstance(formula, Wide):
            return self._print(formula, order)
        self.casting = True
        text = self._print(arguments(formula)[0], order)
        self.casting = False
        return text

    def is_switch(self, formula: Basic) -> bool:
        """Whether a condition is known when the kernel is compiled."""
        names = names_in(formula)
        return bool(names) and all(self.names[name].switch for name in names)

    def is_long(self, formula: Basic) -> bool:
        """Whether a formula holds a 64-bit integer, which makes what it meets 64-bit too."""
        return (
            self.casting
            or formula.has(Wide)
            or any(self.names[name].long for name in names_in(formula))
        )

    def _print(self, formula: Basic, order: Order) -> Text:
        match formula:
            case Symbol():
                return self._name(formula)
            case _ if formula.is_number:
                return Text(number(cast(Expr, formula)), UNARY if formula.is_negative else ATOM, ())
            case sympy.Add():
                return self._sum(formula, order)
            case sympy.Mul():
                return self._product(formula, order)
            case sympy.Pow():
                return print_power(self, formula, order)
            case And() | Or():
                return self._logic(formula, order)
            case Not():
                return self._not(formula, order)
            case Relational():
                return self._relation(formula, order)
            case BooleanTrue() | BooleanFalse():
                return Text("True" if formula else "False", ATOM, ())
            case _:
                return print_function(self, formula, order)

    def _name(self, symbol: Symbol) -> Text:
        name = self.names[symbol.name]
        if self.casting and name.integer:
            return Text(f"tl.cast({name.text}, tl.int64)", ATOM, name.axes)
        return Text(name.text, ATOM, name.axes)

    # ------------------------------------------------------------ arithmetic

    def _sum(self, formula: Expr, order: Order) -> Text:
        signed: list[Signed] = []
        for term in arguments(formula):
            negative = term.could_extract_minus_sign()
            signed.append(
                ("-" if negative else "+", self.print(-term if negative else term, order))
            )
        signed.sort(key=lambda item: (item[0] == "-", len(item[1].axes) == 0, rank(item[1])))
        axes = union([part for _, part in signed], order)
        groups: dict[Order, list[Signed]] = {}
        for sign, part in signed:
            groups.setdefault(part.axes, []).append((sign, part))
        joined = [_join(group, group_axes) for group_axes, group in groups.items()]
        joined.sort(key=lambda item: (item[0] == "-", item[1].axes != axes))
        if len(joined) > 1:
            joined = [_join([(sign, part.widened(axes, SUM)) for sign, part in joined], axes)]
        ((sign, text),) = joined
        return text if sign == "+" else Text(f"-{text.within(UNARY)}", UNARY, axes)

    def _product(self, formula: Expr, order: Order) -> Text:
        factors = arguments(formula)
        coefficient = sympy.Mul(*(factor for factor in factors if factor.is_number))
        rest = [factor for factor in factors if not factor.is_number]
        divisors = [f.base for f in rest if isinstance(f, sympy.Pow) and f.exp == -1]
        above = [f for f in rest if not (isinstance(f, sympy.Pow) and f.exp == -1)]
        negative = coefficient == -1
        texts = [self.print(factor, order) for factor in above]
        if coefficient != 1 and not negative:
            texts.append(self.print(coefficient, order))
        top = _multiply(texts or [Text("1.0", ATOM, ())], order)
        for divisor in divisors:
            bottom = self.print(divisor, order)
            axes = union([top, bottom], order)
            left, right = top.widened(axes, PRODUCT), bottom.widened(axes, UNARY)
            top = Text(f"{left.text} / {right.text}", PRODUCT, axes)
        return Text(f"-{top.within(PRODUCT)}", PRODUCT, top.axes) if negative else top

    # ------------------------------------------------------------ conditions

    def _logic(self, formula: Basic, order: Order) -> Text:
        symbol = " & " if isinstance(formula, And) else " | "
        args = sorted(formula.args, key=lambda arg: (not arg.is_Relational, str(arg)))
        parts = [self.print(arg, order) for arg in args]
        axes = union(parts, order)
        joined = [
            Text(symbol.join(part.within(ATOM) for part in group), COMPARISON, group_axes)
            if len(group) > 1
            else group[0]
            for group_axes, group in by_axes(parts).items()
        ]
        if len(joined) == 1:
            return joined[0]
        texts = (text.widened(axes, ATOM).text for text in joined)
        return Text(symbol.join(texts), COMPARISON, axes)

    def _not(self, formula: Basic, order: Order) -> Text:
        inner = formula.args[0]
        if isinstance(inner, And | Or):
            other = Or if isinstance(inner, And) else And
            return self.print(other(*(Not(arg) for arg in inner.args)), order)
        part = self.print(inner, order)
        return Text(f"{part.within(ATOM)} == 0", COMPARISON, part.axes)

    def _relation(self, formula: Relational, order: Order) -> Text:
        left, right, sign = formula.lhs, formula.rhs, sign_of(formula)
        if sign in ("==", "!=") and isinstance(left, FloorMod) and right == 0:
            # whether a remainder is zero does not depend on the sign that Triton gives it
            first = binary(self, "%", left.args[0], left.args[1], order)
        else:
            first = self.print(left, order)
        second = self.print(right, order)
        axes = union([first, second], order)
        sides = (side.widened(axes, SUM).text for side in (first, second))
        text = f" {sign} ".join(sides)
        if not axes and not self.scalar and not (left.is_integer and right.is_integer):
            # the interpreter cannot widen a scalar comparison of floats
            text = f"tl.cast({text}, tl.int32) != 0"
        return Text(text, COMPARISON, axes)


def _join(signed: list[Signed], axes: Order) -> Signed:
    """One text of several terms; its sign is `-` where every term is subtracted."""
    if len(signed) == 1:
        return signed[0]
    flip = signed[0][0] == "-"
    text = signed[0][1].within(SUM)
    for sign, part in signed[1:]:
        plus = (sign == "-") if flip else (sign == "+")
        text += f" {'+' if plus else '-'} {part.within(SUM if plus else PRODUCT)}"
    return ("-" if flip else "+"), Text(text, SUM, axes)


def _multiply(texts: list[Text], order: Order) -> Text:
    axes = union(texts, order)
    groups = by_axes(sorted(texts, key=lambda text: (-len(text.axes), rank(text))))
    products = [
        group[0]
        if len(group) == 1
        else Text(" * ".join(text.within(UNARY) for text in group), PRODUCT, group_axes)
        for group_axes, group in groups.items()
    ]
    if len(products) == 1:
        return products[0]
    return Text(" * ".join(part.widened(axes, UNARY).text for part in products), PRODUCT, axes)
