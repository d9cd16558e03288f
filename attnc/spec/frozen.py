"""A mapping that can be hashed, pickled and copied: what a frozen AttentionSpec holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

V = TypeVar("V")


class FrozenMap(Mapping[str, V]):
    """Hold string keys in the order given.  Equal contents are equal and hash alike."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"

    def __reduce__(self) -> tuple[type[FrozenMap[V]], tuple[dict[str, V]]]:
        return FrozenMap, (self._items,)


def frozen(mapping: Mapping[str, Any]) -> FrozenMap[Any]:
    """Freeze a mapping with the mappings that it holds."""
    return FrozenMap({k: frozen(v) if isinstance(v, Mapping) else v for k, v in mapping.items()})
