"""Refuse values for params that a spec writes down and its own launcher would refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnc.divisors import divisors_of, is_zero_at
from attnc.errors import SpecErrors
from attnc.notation import plain
from attnc.spec import mistakes
from attnc.spec.schema import AttentionSpec
from attnc.spec.yaml_reader import Mapping, Node, Sequence
from attnc.symbols import names_in

Written = dict[str, tuple[Any, Node]]  # by name of a param: its value, and where it stands


def check_param_values(spec: AttentionSpec, root: Mapping) -> None:
    """See that no default, and no size with the defaults, makes a divisor 0.

    Raises: SpecErrors.
    """
    params = [param.name for param in spec.params]
    divisors = divisors_of((spec.score, spec.mask), params, spec.head_dim_qk)
    defaults, *sizes = _written(spec, root)
    mistaken = [
        mistakes.DivisorIsZero(written[first][1].span, divisor=plain(divisor))
        for written in (defaults, *sizes)
        for divisor in divisors
        for first in sorted(names_in(divisor) & set(written))[:1]
        if is_zero_at(divisor, {name: value for name, (value, _) in (defaults | written).items()})
    ]
    if mistaken:
        raise SpecErrors(mistaken)


def _written(spec: AttentionSpec, root: Mapping) -> Iterator[Written]:
    """The defaults, then what `sizes` and each entry of `check` say."""
    given = [param for param in spec.params if param.default is not None]
    yield {p.name: (p.default, _under(root, "params", p.name, "default")) for p in given}
    check = root.get("check")
    entries = check.items if isinstance(check, Sequence) else ()
    for sizes, node in zip((spec.sizes, *spec.check), (root.get("sizes"), *entries), strict=False):
        yield {name: (value, _under(node, name)) for name, value in sizes.params}


def _under(node: Node | None, *keys: str) -> Node:
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    assert node is not None, f"{keys} has a value that stands nowhere"
    return node
