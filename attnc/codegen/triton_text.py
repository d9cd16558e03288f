"""Print formulas as Triton expressions over tiles.

Every part is printed over its own axes and widened (`[:, None]`) only where it meets a wider one, so that what
varies by row is computed by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sympy
from sympy import Basic, Expr, Symbol
from sympy.core.relational import Relational
from sympy.logic.boolalg import And, BooleanFalse, BooleanTrue, Not, Or

from attnc.ir.functions import Anchor, Clamp, Exp2, InverseOrZero, Log2
from attnc.ranges import bounds
from attnc.symbols import FloorDiv, FloorMod, Where, sigmoid

SMALLEST_NORMAL, LARGEST = 1.1754943508222875e-38, 3.4028234663852886e38  # float32
PRECISE_FUNCTIONS = {sympy.tanh: "tanh", sympy.exp: "exp", sympy.log: "log", sigmoid: "sigmoid"}
PLAIN_FUNCTIONS = {Exp2: "tl.exp2", Log2: "tl.log2", sympy.Abs: "tl.abs"}
COMPARISON, SUM, PRODUCT, UNARY, ATOM = 0, 1, 2, 3, 4  # how tightly a text binds


@dataclass(frozen=True, slots=True)
class Name:
    """What the printer knows of a name: how it is written, the axes of its tile, whether it holds integers."""

    text: str
    axes: tuple[str, ...] = ()
    integer: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A printed part: its text, how tightly it binds, its axes."""

    text: str
    binds: int
    axes: tuple[str, ...]

    def within(self, binds: int) -> str:
        """The text, in parentheses unless it binds at least so tightly."""
        return self.text if self.binds >= binds else f"({self.text})"


@dataclass
class TritonText:
    """Prints formulas; remembers which helper functions the file must define."""

    names: Mapping[str, Name]
    ranges: Mapping[str, tuple[int | None, int | None]]
    order: tuple[
        str, ...
    ]  # all axes, in an order; tiles are widened along it unless told otherwise
    wide: bool = False
    scalar: bool = False  # within a formula without axes
    used: set[str] = field(default_factory=set)

    def over(self, formula: Basic, axes: Sequence[str]) -> str:
        """The formula as a text that broadcasts against a tile with these axes."""
        self.scalar = not any(self.names[s.name].axes for s in formula.free_symbols)
        return widen(self.print(formula, tuple(axes)), tuple(axes))

    def print(self, formula: Basic, order: tuple[str, ...]) -> Text:
        """Print over the formula's own axes, ordered as in `order`."""
        match formula:
            case Symbol():
                return self._name(formula)
            case _ if formula.is_number:
                return Text(number(formula), UNARY if formula.is_negative else ATOM, ())
            case sympy.Add():
                return self._sum(formula, order)
            case sympy.Mul():
                return self._product(formula, order)
            case sympy.Pow():
                return self._power(formula, order)
            case And() | Or():
                return self._logic(formula, order)
            case Not():
                return self._not(formula, order)
            case Relational():
                return self._relation(formula, order)
            case BooleanTrue() | BooleanFalse():
                return Text("True" if formula else "False", ATOM, ())
            case _:
                return self._function(formula, order)

    # ------------------------------------------------------------ leaves

    def _name(self, symbol: Symbol) -> Text:
        name = self.names[symbol.name]
        if self.wide and name.integer:
            return Text(f"tl.cast({name.text}, tl.int64)", ATOM, name.axes)
        return Text(name.text, ATOM, name.axes)

    # ------------------------------------------------------------ arithmetic

    def _sum(self, formula: Expr, order: tuple[str, ...]) -> Text:
        positive = [term for term in formula.args if not term.could_extract_minus_sign()]
        negative = [-term for term in formula.args if term.could_extract_minus_sign()]
        signed = [("+", self.print(term, order)) for term in positive]
        signed += [("-", self.print(term, order)) for term in negative]
        signed.sort(key=lambda item: (item[0] == "-", len(item[1].axes) == 0, _rank(item[1])))
        return self._fold(signed, order, SUM)

    def _fold(self, signed: list[tuple[str, Text]], order: tuple[str, ...], binds: int) -> Text:
        """Join what has equal axes first, then the groups, narrow ones widened."""
        axes = _union([part.axes for _, part in signed], order)
        groups: dict[tuple[str, ...], list[tuple[str, Text]]] = {}
        for sign, part in signed:
            groups.setdefault(part.axes, []).append((sign, part))
        joined = [self._join(group, group_axes, binds) for group_axes, group in groups.items()]
        joined.sort(key=lambda item: (item[0] == "-", item[1].axes != axes))
        if len(joined) == 1:
            (sign, text), *_ = joined
            return text if sign == "+" else Text(f"-{text.within(UNARY)}", UNARY, axes)
        widened = [(sign, Text(*_widened(part, axes, binds), axes)) for sign, part in joined]
        sign, text = self._join(widened, axes, binds)
        return text if sign == "+" else Text(f"-{text.within(UNARY)}", UNARY, axes)

    def _join(
        self, signed: list[tuple[str, Text]], axes: tuple[str, ...], binds: int
    ) -> tuple[str, Text]:
        """One text of several; returns its sign too, `-` where every term is subtracted."""
        if len(signed) == 1:
            return signed[0]
        flip = signed[0][0] == "-"
        text = signed[0][1].within(binds)
        for sign, part in signed[1:]:
            plus = (sign == "-") if flip else (sign == "+")
            text += f" {'+' if plus else '-'} {part.within(binds if plus else binds + 1)}"
        return ("-" if flip else "+"), Text(text, SUM, axes)

    def _product(self, formula: Expr, order: tuple[str, ...]) -> Text:
        coefficient = sympy.Mul(*(factor for factor in formula.args if factor.is_number))
        rest = [factor for factor in formula.args if not factor.is_number]
        below = [
            factor.base for factor in rest if isinstance(factor, sympy.Pow) and factor.exp == -1
        ]
        above = [
            factor for factor in rest if not (isinstance(factor, sympy.Pow) and factor.exp == -1)
        ]
        negative = coefficient == -1
        texts = [self.print(factor, order) for factor in above]
        if coefficient != 1 and not negative:
            texts.append(Text(number(coefficient), UNARY if coefficient.is_negative else ATOM, ()))
        top = self._multiply(texts or [Text("1.0", ATOM, ())], order)
        for divisor in below:
            bottom = self.print(divisor, order)
            axes = _union([top.axes, bottom.axes], order)
            top = Text(
                f"{_widened(top, axes, PRODUCT)[0]} / {_widened(bottom, axes, UNARY)[0]}",
                PRODUCT,
                axes,
            )
        return Text(f"-{top.within(PRODUCT)}", PRODUCT, top.axes) if negative else top

    def _multiply(self, texts: list[Text], order: tuple[str, ...]) -> Text:
        axes = _union([text.axes for text in texts], order)
        texts = sorted(texts, key=lambda text: (-len(text.axes), _rank(text)))
        groups: dict[tuple[str, ...], list[Text]] = {}
        for text in texts:
            groups.setdefault(text.axes, []).append(text)
        products = [
            group[0]
            if len(group) == 1
            else Text(" * ".join(t.within(UNARY) for t in group), PRODUCT, group_axes)
            for group_axes, group in groups.items()
        ]
        if len(products) == 1:
            return products[0]
        parts = [Text(*_widened(product, axes, UNARY), axes) for product in products]
        return Text(" * ".join(p.within(UNARY) for p in parts), PRODUCT, axes)

    def _power(self, formula: Expr, order: tuple[str, ...]) -> Text:
        base, exponent = formula.as_base_exp()
        if exponent.is_Integer and 1 < abs(int(exponent)) <= 8:
            factor = self.print(base, order)
            product = " * ".join([factor.within(UNARY)] * abs(int(exponent)))
            if exponent > 0:
                return Text(product, PRODUCT, factor.axes)
            return Text(f"1.0 / ({product})", PRODUCT, factor.axes)
        if exponent == -1:
            below = self.print(base, order)
            return Text(f"1.0 / {below.within(UNARY)}", PRODUCT, below.axes)
        if abs(exponent) == sympy.Rational(1, 2):
            root = self._call("tl.sqrt", [base], order, real=True)
            return root if exponent > 0 else Text(f"1.0 / {root.text}", PRODUCT, root.axes)
        if base == 2:
            return self._call("tl.exp2", [exponent], order, real=True)
        return self._call("tl.exp2", [exponent * Log2(base)], order, real=True)

    # ------------------------------------------------------------ conditions

    def _logic(self, formula: Basic, order: tuple[str, ...]) -> Text:
        symbol = " & " if isinstance(formula, And) else " | "
        parts = [
            self.print(arg, order)
            for arg in sorted(formula.args, key=lambda arg: (not arg.is_Relational, str(arg)))
        ]
        axes = _union([part.axes for part in parts], order)
        groups: dict[tuple[str, ...], list[Text]] = {}
        for part in parts:
            groups.setdefault(part.axes, []).append(part)
        joined = [
            Text(symbol.join(part.within(ATOM) for part in group), COMPARISON, group_axes)
            if len(group) > 1
            else group[0]
            for group_axes, group in groups.items()
        ]
        if len(joined) == 1:
            return joined[0]
        texts = [Text(*_widened(text, axes, ATOM), axes) for text in joined]
        return Text(symbol.join(text.within(ATOM) for text in texts), COMPARISON, axes)

    def _not(self, formula: Basic, order: tuple[str, ...]) -> Text:
        inner = formula.args[0]
        if isinstance(inner, And | Or):
            other = Or if isinstance(inner, And) else And
            return self.print(other(*(Not(arg) for arg in inner.args)), order)
        part = self.print(inner, order)
        return Text(f"{part.within(ATOM)} == 0", COMPARISON, part.axes)

    def _relation(self, formula: Relational, order: tuple[str, ...]) -> Text:
        left, right = formula.lhs, formula.rhs
        if formula.rel_op in ("==", "!=") and isinstance(left, FloorMod) and right == 0:
            first = self._binary(
                "%", *left.args, order
            )  # only the remainder's being zero matters, not its sign
        else:
            first = self.print(left, order)
        second = self.print(right, order)
        axes = _union([first.axes, second.axes], order)
        text = f" {formula.rel_op} ".join(_widened(side, axes, SUM)[0] for side in (first, second))
        if not axes and not self.scalar and not (left.is_integer and right.is_integer):
            text = f"tl.cast({text}, tl.int32) != 0"  # the interpreter cannot widen a scalar comparison of floats
        return Text(text, COMPARISON, axes)

    # ------------------------------------------------------------ functions

    def _function(self, formula: Basic, order: tuple[str, ...]) -> Text:
        match formula:
            case Where():
                return self._where(formula, order)
            case sympy.Min() | sympy.Max():
                name = "tl.minimum" if isinstance(formula, sympy.Min) else "tl.maximum"
                return self._nested(
                    name, sorted(formula.args, key=lambda arg: (arg.is_number, str(arg))), order
                )
            case Clamp():
                x, low, high = formula.args
                return self._nested("tl.minimum", [sympy.Max(x, low, evaluate=False), high], order)
            case FloorDiv() | FloorMod():
                return self._floor(formula, order)
            case Anchor():
                x = self.print(formula.args[0], order)
                return Text(f'tl.where({x.text} == float("-inf"), 0.0, {x.text})', ATOM, x.axes)
            case InverseOrZero():
                x = self.print(formula.args[0], order)
                return Text(f"1.0 / tl.where({x.text} == 0.0, 1.0, {x.text})", PRODUCT, x.axes)
            case _ if type(formula) in PLAIN_FUNCTIONS:
                return self._call(
                    PLAIN_FUNCTIONS[type(formula)],
                    list(formula.args),
                    order,
                    isinstance(formula, Exp2 | Log2),
                )
            case _ if type(formula) in PRECISE_FUNCTIONS:
                name = PRECISE_FUNCTIONS[type(formula)]
                self.used.add(name)
                inner = self._call(name, list(formula.args), order, real=True)
                return Text(f"{inner.text[:-1]}, PRECISE)", ATOM, inner.axes)
        raise NotImplementedError(f"no Triton text for {formula.func.__name__}")

    def _call(
        self, name: str, args: list[Expr], order: tuple[str, ...], real: bool = False
    ) -> Text:
        parts = [self.print(arg, order) for arg in args]
        axes = _union([part.axes for part in parts], order)
        texts = []
        for arg, part in zip(args, parts, strict=True):
            text = widen(part, axes)
            texts.append(
                f"tl.cast({text}, tl.float32)"
                if real and arg.is_integer and not arg.is_number
                else text
            )
        return Text(f"{name}({', '.join(texts)})", ATOM, axes)

    def _nested(self, name: str, args: Sequence[Expr], order: tuple[str, ...]) -> Text:
        """A function of two arguments, applied from left to right."""
        result = self.print(args[0], order)
        for arg in args[1:]:
            part = self.print(arg, order)
            axes = _union([result.axes, part.axes], order)
            result = Text(f"{name}({widen(result, axes)}, {widen(part, axes)})", ATOM, axes)
        return result

    def _where(self, formula: Where, order: tuple[str, ...]) -> Text:
        parts = [self.print(arg, order) for arg in formula.args]
        axes = _union([part.axes for part in parts], order)
        condition, then, otherwise = (widen(part, axes) for part in parts)
        if not axes:
            return Text(f"({then} if {condition} else {otherwise})", ATOM, ())
        return Text(f"tl.where({condition}, {then}, {otherwise})", ATOM, axes)

    def _floor(self, formula: Expr, order: tuple[str, ...]) -> Text:
        """Triton's // and % truncate towards zero; that is the floor where nothing is negative."""
        a, b = formula.args
        divides = isinstance(formula, FloorDiv)
        if not (a.is_integer and b.is_integer):
            quotient = self._call("tl.floor", [a / b], order, real=True)
            if divides:
                return Text(f"tl.cast({quotient.text}, tl.int32)", ATOM, quotient.axes)
            return self._real_remainder(a, b, order)
        low_a, low_b = bounds(a, self.ranges)[0], bounds(b, self.ranges)[0]
        if low_a is not None and low_a >= 0 and low_b is not None and low_b >= 0:
            return self._binary("//" if divides else "%", a, b, order)
        name = "floor_div" if divides else "floor_mod"
        self.used.add(name)
        return self._call(name, [a, b], order)

    def _real_remainder(self, a: Expr, b: Expr, order: tuple[str, ...]) -> Text:
        self.used.add("real_mod")
        return self._call("real_mod", [a, b], order, real=True)

    def _binary(self, operator: str, a: Expr, b: Expr, order: tuple[str, ...]) -> Text:
        first, second = self.print(a, order), self.print(b, order)
        axes = _union([first.axes, second.axes], order)
        text = f"{_widened(first, axes, PRODUCT)[0]} {operator} {_widened(second, axes, UNARY)[0]}"
        return Text(text, PRODUCT, axes)


def _rank(text: Text) -> tuple[bool, bool, str]:
    """Order of terms and factors: values, then constants of the kernel, then numbers."""
    return text.text[0] in "-0123456789", text.text.isupper(), text.text.lstrip("(")


def _union(many: Sequence[tuple[str, ...]], order: tuple[str, ...]) -> tuple[str, ...]:
    found = {axis for axes in many for axis in axes}
    return tuple(axis for axis in order if axis in found)


def widen(part: Text, axes: tuple[str, ...]) -> str:
    """The text, indexed so that it broadcasts against `axes`."""
    return _widened(part, axes, 0)[0]


def _widened(part: Text, axes: tuple[str, ...], binds: int) -> tuple[str, int]:
    if not part.axes or part.axes == axes or len(axes) == 1:
        return part.within(binds), max(part.binds, binds) if part.binds < binds else part.binds
    index = ", ".join(":" if axis in part.axes else "None" for axis in axes)
    return f"{part.within(ATOM)}[{index}]", ATOM


def number(value: Basic) -> str:
    """A number as Triton may read it: a float below the normal range would turn its expression into float64."""
    if value.is_Integer:
        return str(int(value))
    if value in (sympy.oo, -sympy.oo):
        return 'float("inf")' if value == sympy.oo else 'float("-inf")'
    real = float(value)
    if abs(real) > LARGEST:
        return 'float("inf")' if real > 0 else 'float("-inf")'
    return repr(real) if abs(real) >= SMALLEST_NORMAL else "0.0"
