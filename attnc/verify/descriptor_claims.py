"""Where a schedule has tensor descriptors read, they read what the loads read.

A descriptor gives the rows from its first to its last, and 0 outside; so does a load for what its
guard leaves out.
"""

from __future__ import annotations

from typing import Any

from attnc.ir.nodes import Load
from attnc.verify.access_claims import Access, accesses, for_each
from attnc.verify.claims import Claim, Tiling
from attnc.verify.meaning import Meaning, Place

Term = Any


def descriptor_claims(tiling: Tiling) -> list[Claim]:
    """A claim for each buffer that a descriptor may read in a loop."""
    groups: dict[str, list[Access]] = {}
    for access in accesses(tiling):
        if isinstance(access.node, Load) and access.node.described is not None:
            groups.setdefault(access.name, []).append(access)
    return [
        for_each(f"{name} by a descriptor reads the same", group, _same)
        for name, group in groups.items()
    ]


def _same(access: Access, m: Meaning, place: Place) -> Term:
    assert isinstance(access.node, Load) and access.node.described is not None
    *_, row, feature = access.node.index
    first, end = (m.formula(bound, place) for bound in access.node.described)
    (width,) = (a.size for a in access.tiling.kernel.axes if a.index == feature)
    rows = m.between(first, m.formula(row, place), end)
    features = m.between(0, m.formula(feature, place), m.formula(width, place))
    read = m.truth(access.node.guard, place)
    return m.both(first >= 0, m.same(read, m.both(rows, features)))
