"""Print functions as Triton expressions: selects, extrema, floors, exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import sympy
from sympy import Basic, Expr

from attnc.codegen.texts import ATOM, PRODUCT, UNARY, Text, number, union, widen
from attnc.ir.functions import Anchor, Clamp, Exp2, InverseOrZero, Log2
from attnc.ir.position_ranges import Range
from attnc.ranges import bounds
from attnc.symbols import FloorDiv, FloorMod, Random, Where, arguments, sigmoid

PRECISE = {sympy.tanh: "tanh", sympy.exp: "exp", sympy.log: "log", sigmoid: "sigmoid"}
PLAIN = {Exp2: "tl.exp2", Log2: "tl.log2", sympy.Abs: "tl.abs"}
Order = tuple[str, ...]
MOST_FACTORS = 8  # of a power that is written out


class Printer(Protocol):
    """What a function's arguments are printed by."""

    ranges: dict[str, Range]
    used: set[str]  # helper functions that the file must define

    def print(self, formula: Basic, order: Order) -> Text:
        """Print over the formula's own axes."""
        ...

    def is_switch(self, formula: Basic) -> bool:
        """Whether a condition is known when the kernel is compiled."""
        ...

    def is_long(self, formula: Basic) -> bool:
        """Whether a formula reads a 64-bit integer."""
        ...


def print_function(printer: Printer, formula: Basic, order: Order) -> Text:
    """Print a formula that is a function of its arguments."""
    args = formula.args
    match formula:
        case Where():
            return _where(printer, formula, order)
        case sympy.Min() | sympy.Max():
            name = "tl.minimum" if isinstance(formula, sympy.Min) else "tl.maximum"
            numbers_last = sorted(args, key=lambda arg: (arg.is_number, str(arg)))
            return _nested(printer, name, numbers_last, order)
        case Clamp():
            raised = sympy.Max(args[0], args[1], evaluate=False)
            return _nested(printer, "tl.minimum", [raised, args[2]], order)
        case FloorDiv() | FloorMod():
            return _floor(printer, formula, order)
        case Anchor():
            x = printer.print(args[0], order)
            return Text(f'tl.where({x.text} == float("-inf"), 0.0, {x.text})', ATOM, x.axes)
        case InverseOrZero():
            x = printer.print(args[0], order)
            return Text(f"1.0 / tl.where({x.text} == 0.0, 1.0, {x.text})", PRODUCT, x.axes)
        case Random():
            printer.used.add("random_number")
            return call(printer, "random_number", args, order)
        case _ if type(formula) in PLAIN:
            real = isinstance(formula, Exp2 | Log2)
            return call(printer, PLAIN[type(formula)], args, order, real)
        case _ if type(formula) in PRECISE:
            name = PRECISE[type(formula)]
            printer.used.add(name)
            inner = call(printer, name, args, order, real=True)
            return Text(f"{inner.text[:-1]}, PRECISE)", ATOM, inner.axes)
    raise NotImplementedError(f"no Triton text for {formula.func.__name__}")


def print_power(printer: Printer, formula: Expr, order: Order) -> Text:
    """Print a power: whole ones by products, half ones by roots, others by exp2 and log."""
    base, exponent = formula.as_base_exp()
    if base.is_number:
        return _constant_base(printer, sympy.Rational(base), exponent, order)
    if exponent.is_negative:
        below = printer.print(base**-exponent, order)
        return Text(f"1.0 / {below.within(UNARY)}", PRODUCT, below.axes)
    if exponent.is_Integer:
        return _whole_power(printer, base, int(exponent), order)
    whole = sympy.floor(exponent)
    root = _root(printer, base, exponent - whole, order)
    if whole == 0:
        return root
    product = _whole_power(printer, base, int(whole), order)
    return Text(f"{product.within(PRODUCT)} * {root.within(UNARY)}", PRODUCT, root.axes)


def _root(printer: Printer, base: Expr, exponent: Expr, order: Order) -> Text:
    """A power between 0 and 1."""
    if 2 * exponent == 1:
        return call(printer, "tl.sqrt", [base], order, real=True)
    printer.used.add("root_power")
    inner = call(printer, "root_power", [base], order, real=True)
    return Text(f"{inner.text[:-1]}, {_split(exponent)}, PRECISE)", ATOM, inner.axes)


def _constant_base(printer: Printer, base: Expr, exponent: Expr, order: Order) -> Text:
    """2 to the exponent times log2 of the base, which is exact for some bases and split for others.

    A whole base to a whole exponent is compared with whole numbers, so it must not be off by a bit.
    """
    if base < 1:
        base, exponent = 1 / base, -exponent
    digits = sympy.log(base, 2)
    if digits.is_Integer and (exponent.is_integer or sympy.log(digits, 2).is_Integer):
        return call(printer, "tl.exp2", [digits * exponent], order, real=True)
    is_whole = bool(base.is_Integer and exponent.is_integer)
    name, precise = ("whole_exp", "") if is_whole else ("base_exp", ", PRECISE")
    printer.used.add(name)
    inner = call(printer, name, [exponent], order, real=True)
    return Text(f"{inner.text[:-1]}, {_split(digits)}{precise})", ATOM, inner.axes)


def _split(value: Expr) -> str:
    """A positive number as two: its first 12 bits, whose product with 12 others is exact."""
    shift = 11 - int(sympy.floor(sympy.log(value, 2)))
    head = sympy.floor(value * sympy.Integer(2) ** shift) / sympy.Integer(2) ** shift
    return f"{float(head)!r}, {float(value - head)!r}"


def _whole_power(printer: Printer, base: Expr, exponent: int, order: Order) -> Text:
    """A product of equal factors; exp2 of a logarithm would lose the sign of the base."""
    factor = printer.print(base, order)
    if exponent <= MOST_FACTORS:
        return Text(" * ".join([factor.within(UNARY)] * exponent), PRODUCT, factor.axes)
    printer.used.add("whole_power")
    return Text(f"whole_power({factor.text}, {exponent})", ATOM, factor.axes)


def call(
    printer: Printer, name: str, args: Sequence[Basic], order: Order, real: bool = False
) -> Text:
    """A call of a function; `real`: whole arguments become floats first."""
    parts = [printer.print(arg, order) for arg in args]
    axes = union(parts, order)
    texts = []
    for arg, part in zip(args, parts, strict=True):
        whole = real and arg.is_integer and not arg.is_number
        text = widen(part, axes)
        texts.append(f"tl.cast({text}, tl.float32)" if whole else text)
    return Text(f"{name}({', '.join(texts)})", ATOM, axes)


def binary(printer: Printer, operator: str, a: Basic, b: Basic, order: Order) -> Text:
    """Two operands around // or %."""
    first, second = printer.print(a, order), printer.print(b, order)
    axes = union([first, second], order)
    left, right = first.widened(axes, PRODUCT), second.widened(axes, UNARY)
    return Text(f"{left.text} {operator} {right.text}", PRODUCT, axes)


def _nested(printer: Printer, name: str, args: Sequence[Basic], order: Order) -> Text:
    """A function of two arguments, applied from left to right."""
    result = printer.print(args[0], order)
    for arg in args[1:]:
        part = printer.print(arg, order)
        axes = union([result, part], order)
        result = Text(f"{name}({widen(result, axes)}, {widen(part, axes)})", ATOM, axes)
    return result


def _where(printer: Printer, formula: Where, order: Order) -> Text:
    parts = [printer.print(arg, order) for arg in formula.args]
    axes = union(parts, order)
    if printer.is_switch(formula.args[0]):
        condition, then, otherwise = (part.text for part in parts)
        return Text(f"({then} if {condition} else {otherwise})", ATOM, axes)
    condition, then, otherwise = (widen(part, axes) for part in parts)
    if not axes and formula.is_integer and printer.is_long(formula):
        # the two sides of a conditional must be of one type
        then, otherwise = (f"tl.cast({side}, tl.int64)" for side in (then, otherwise))
    if not axes and not formula.is_integer:
        then, otherwise = map(_as_real, arguments(formula)[1:], (then, otherwise))
    if not axes:
        return Text(f"({then} if {condition} else {otherwise})", ATOM, ())
    return Text(f"tl.where({condition}, {then}, {otherwise})", ATOM, axes)


def _as_real(formula: Expr, text: str) -> str:
    """The text of a scalar as a float."""
    if not formula.is_integer:
        return text
    return number(sympy.Float(formula)) if formula.is_number else f"tl.cast({text}, tl.float32)"


def _floor(printer: Printer, formula: Basic, order: Order) -> Text:
    """Triton's // and % truncate towards zero; that is the floor where nothing is negative."""
    a, b = arguments(formula)
    divides = isinstance(formula, FloorDiv)
    if not (a.is_integer and b.is_integer):
        return _real_floor(printer, a, b, divides, order)
    lows = [bounds(part, printer.ranges)[0] for part in (a, b)]
    if all(low is not None and low >= 0 for low in lows):
        return binary(printer, "//" if divides else "%", a, b, order)
    name = "floor_div" if divides else "floor_mod"
    printer.used.add(name)
    return call(printer, name, [a, b], order)


def _real_floor(printer: Printer, a: Expr, b: Expr, divides: bool, order: Order) -> Text:
    if not divides:
        printer.used.add("real_mod")
        return call(printer, "real_mod", [a, b], order, real=True)
    printer.used.add("real_floor")
    whole = call(printer, "real_floor", [a / b], order, real=True)
    if printer.is_long(FloorDiv(a, b)):
        return whole
    return Text(f"tl.cast({whole.text}, tl.int32)", ATOM, whole.axes)
