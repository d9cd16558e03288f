"""Read Triton's own intermediate code for what a CPU run cannot show.

A masked load without `other` gives 0 in Triton's interpreter and anything at all on a GPU
(FAULTS F03).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LOAD = re.compile(r"(?P<name>%\S+) = tt\.load (?P<operands>%[^:{]*)")
_OPERAND = re.compile(r"%[\w.$-]+(?:#\d+)?")


def masked_loads_without_other(ttir: str) -> Iterator[str]:
    """Name every load that has a mask and nothing to give where the mask is false."""
    for number, line in enumerate(ttir.splitlines(), start=1):
        found = _LOAD.search(line)
        if found and len(_OPERAND.findall(found["operands"])) == 2:
            yield f"TTIR line {number}: {found['name']} is a masked load without `other`"
