"""Find in a sum of products a sum that already exists.

    sum_k p (sum_e grad_out v)   ->   sum_e (sum_k p v) grad_out   =   sum_e out grad_out

Why: what exists costs nothing, and the sum over the keys saves a pass of its own.  Nested
contractions are opened into one list of factors; a value that is the sum of some of them takes
their place if the axes that it has summed occur in no other factor and not in the result, so that
nothing is captured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from attnc.graph.operations import Contract, Operation


def reassociate(operation: Operation, values: Mapping[str, Operation]) -> Operation:
    """The operation over values that exist, where a contraction nests another."""
    if not isinstance(operation, Contract):
        return operation
    opened = _open(operation.operands, operation.axes, values)
    if len(opened) == len(operation.operands):
        return operation
    for name, value in values.items():
        if isinstance(value, Contract) and name not in operation.operands:
            rest = _less(opened, value.operands)
            if rest is not None and _is_free(value, rest, operation.axes, values):
                return replace(operation, operands=(name, *rest))
    return operation


def _open(
    operands: tuple[str, ...], axes: tuple[str, ...], values: Mapping[str, Operation]
) -> tuple[str, ...]:
    """The factors of a product of contractions; one whose bound axes others use stays closed."""
    found: list[str] = []
    for i, name in enumerate(operands):
        value = values[name]
        others = {
            axis for other in (*operands[:i], *operands[i + 1 :]) for axis in values[other].axes
        }
        if isinstance(value, Contract) and not _bound(value, values) & (others | set(axes)):
            found += value.operands
        else:
            found.append(name)
    return tuple(found)


def _bound(contract: Contract, values: Mapping[str, Operation]) -> set[str]:
    """The axes that a contraction sums over."""
    return {axis for name in contract.operands for axis in values[name].axes} - set(contract.axes)


def _less(factors: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...] | None:
    """The factors without those taken, or None where one is missing."""
    left = Counter(factors)
    left.subtract(taken)
    if min(left.values()) < 0:
        return None
    return tuple(left.elements())


def _is_free(
    value: Contract,
    rest: tuple[str, ...],
    axes: tuple[str, ...],
    values: Mapping[str, Operation],
) -> bool:
    """Whether what a value has summed over is nobody else's."""
    used = {axis for other in rest for axis in values[other].axes} | set(axes)
    return bool(rest) and not _bound(value, values) & used
