"""Find in a sum of products a sum that already exists.

    sum_k p (sum_e grad_out v)   ->   sum_e (sum_k p v) grad_out   =   sum_e out grad_out

Why: what exists costs nothing, and the sum over the keys saves a pass of its own.  Nested
contractions and products are opened into one list of factors; a value that is the sum of some of
them, however it was built, takes their place if the axes that it has summed occur in no other
factor and not in the result, so that nothing is captured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sympy import Add, Integer, Mul, Symbol, exp, true
from sympy.logic.boolalg import Boolean

from attnc.graph.operations import Contract, LogSumExp, Map, Operation
from attnc.symbols import value_symbol

Values = Mapping[str, Operation]


def reassociate(operation: Operation, values: Values) -> Operation:
    """The operation over values that exist, where a contraction nests another."""
    if not isinstance(operation, Contract):
        return operation
    product = _Product.of(operation, values)
    if not product.opened:
        return operation
    if (total := _of_weights(product.factors, operation.axes, values)) is not None:
        return total
    for name, value in values.items():
        if isinstance(value, Contract) and name not in product.opened | {*operation.operands}:
            rest = _less(product.factors, _Product.of(value, values).factors)
            if rest is not None and _is_free(value, rest, operation.axes, values):
                return replace(operation, operands=(name, *_closed(rest, product.opened, values)))
    return operation


def _closed(factors: tuple[str, ...], opened: set[str], values: Values) -> tuple[str, ...]:
    """Factors with the products among them as the values that they are."""
    for name in sorted(opened):
        rest = _less([*factors], [*_parts(values[name], values)])
        if isinstance(values[name], Map) and rest is not None:
            factors = (*rest, name)
    return factors


def _of_weights(factors: list[str], axes: tuple[str, ...], values: Values) -> Operation | None:
    """A sum of weights alone: 1 less the shares of the sinks, whatever stands before it.

    In a row without a key it may be any number: it meets weights of 0 alone.
    """
    for name, value in values.items():
        if not isinstance(value, LogSumExp) or set(value.axes) != set(axes):
            continue
        first, *sinks = (
            exp(value_symbol(operand) - value_symbol(name)) for operand in value.operands
        )
        by_formula = {op.formula: v for v, op in values.items() if isinstance(op, Map)}
        weights = by_formula.get(first)
        rest = [factor for factor in factors if factor != weights]
        varies = {axis for factor in rest for axis in values[factor].axes}
        if len(rest) == len(factors) - 1 and varies <= set(axes):
            if all(sink in by_formula for sink in sinks):
                total = Integer(1) - Add(*(value_symbol(by_formula[sink]) for sink in sinks))
                return Map(Mul(*map(value_symbol, rest), total), axes)
    return None


@dataclass
class _Product:
    """The factors of a contraction, those of nested products and contractions among them.

    A contraction whose bound axes others use stays closed.  hidden: conditions of opened maps: they
    go without saying where a factor that remains is 0 outside of them.
    """

    values: Values
    factors: list[str] = field(default_factory=list)
    opened: set[str] = field(default_factory=set)
    hidden: set[Boolean] = field(default_factory=set)

    @classmethod
    def of(cls, contract: Contract, values: Values) -> _Product:
        product = cls(values)
        product.open(contract.operands, set(contract.axes))
        shown = {true, *(getattr(values[name], "where", true) for name in product.factors)}
        return product if product.hidden <= shown else cls(values, [*contract.operands])

    def open(self, operands: tuple[str, ...], used: set[str]) -> None:
        """Add the factors of a product; `used`: axes that stand for something outside of it."""
        for i, name in enumerate(operands):
            others = (*operands[:i], *operands[i + 1 :])
            outside = used.union(*(self.values[other].axes for other in others))
            value = self.values[name]
            parts = _parts(value, self.values)
            bound = _bound(value, self.values) if isinstance(value, Contract) else set[str]()
            if not parts or bound & outside:
                self.factors.append(name)
                continue
            self.opened.add(name)
            if isinstance(value, Map):
                self.hidden.add(value.where)
            self.open(parts, outside | set(value.axes))
            used = used | bound


def _parts(value: Operation, values: Values) -> tuple[str, ...]:
    """The values that a value is the product of; none for what is no product."""
    if isinstance(value, Contract):
        return value.operands
    if isinstance(value, Map) and isinstance(value.formula, Mul):
        factors = value.formula.args
        if all(isinstance(factor, Symbol) and factor.name in values for factor in factors):
            return tuple(str(factor) for factor in factors)
    return ()


def _bound(contract: Contract, values: Values) -> set[str]:
    """The axes that a contraction sums over."""
    return {axis for name in contract.operands for axis in values[name].axes} - set(contract.axes)


def _less(factors: list[str], taken: list[str]) -> tuple[str, ...] | None:
    """The factors without those taken, or None where one is missing."""
    left = Counter(factors)
    left.subtract(taken)
    if min(left.values()) < 0:
        return None
    return tuple(left.elements())


def _is_free(value: Contract, rest: tuple[str, ...], axes: tuple[str, ...], values: Values) -> bool:
    """Whether what a value has summed over is nobody else's."""
    used = {axis for other in rest for axis in values[other].axes} | set(axes)
    return bool(rest) and not _bound(value, values) & used
