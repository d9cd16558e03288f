"""A hash-consing table of operations: an equal operation is the same value.

It is what lets forward and backward share: exp(t - lse), met again by the derivative, is p.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from attnc.graph.operations import Operation


@dataclass
class ValueTable:
    """Values in order of definition; names that the spec has declared stay the spec's."""

    declared: frozenset[str] = frozenset()
    values: dict[str, Operation] = field(default_factory=dict)
    known: dict[Operation, str] = field(default_factory=dict)

    def add(self, name: str, operation: Operation) -> str:
        """The name of the value that the operation computes: `name`, unless that is taken."""
        if operation in self.known:
            return self.known[operation]
        unique = self._unique(name, getattr(operation, "tensor", ""))
        self.values[unique] = operation
        self.known[operation] = unique
        return unique

    def axes(self, name: str) -> tuple[str, ...]:
        """The axes of a value."""
        return self.values[name].axes

    def _unique(self, name: str, tensor: str) -> str:
        unique, count = name, 1
        while unique in self.values or (unique in self.declared and unique != tensor):
            count += 1
            unique = f"{name}_{count}"
        return unique

    @classmethod
    def of(cls, values: Iterable[tuple[str, Operation]], declared: frozenset[str]) -> ValueTable:
        """A table that goes on from values that exist."""
        made = dict(values)
        return cls(declared, made, {operation: name for name, operation in made.items()})
