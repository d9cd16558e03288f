"""Print a comparison of two specs: what differs and where, what was only sampled and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnc.explain.compare import DIFFERENT, SAME, Comparison, Part, Witness
from attnc.explain.samples import Sample


def comparison_text(found: Comparison) -> str:
    """Lay out a comparison."""
    return "\n".join(_lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    yield f"{found.first} against {found.second}: {found.verdict}"
    if same := [part.name for part in found.parts if part.verdict == SAME]:
        yield f"  same: {', '.join(same)}"
    for part in found.parts:
        if part.verdict != SAME:
            yield f"  {part.verdict}: {part.name}"
            yield f"      {found.first}: {part.first}"
            yield f"      {found.second}: {part.second}"
        if part.witness:
            yield f"      {_where(found, part, part.witness)}"
    if any(part.verdict not in (SAME, DIFFERENT) for part in found.parts):
        yield "  a formula with no difference found is not proved the same; it was evaluated"
        yield from (f"      at {line}" for line in _calls(found.samples))
    if found.tensors:
        yield f"  with pseudo-random example contents of {', '.join(found.tensors)}"


def _where(found: Comparison, part: Part, at: Witness) -> str:
    place = {"b": "batch entry", "h": "head", "q_idx": "query", "kv_idx": "key", "score": "score"}
    words = [f"{place[name]} {value}" for name, value in at.place.items()]
    where = ", ".join([call_text(at.sample), *words])
    if part.name == "mask":
        return f"at {where}: only {found.first if at.first else found.second} sees the key"
    return f"at {where}: {at.first:.9g} and {at.second:.9g}"


def call_text(sample: Sample) -> str:
    """The sizes and params of a call."""
    values = [f"{name} = {value}" for name, value in sample.params.items()]
    return ", ".join([f"{sample.first.q_len} queries", f"{sample.first.kv_len} keys", *values])


def _calls(samples: Sequence[Sample]) -> Iterator[str]:
    """One line for calls that differ in nothing but params."""
    together: dict[tuple[int, int, tuple[int, ...]], list[Sample]] = {}
    for one in samples:
        together.setdefault((one.first.q_len, one.first.kv_len, one.rows), []).append(one)
    for (q_len, kv_len, rows), calls in together.items():
        values: dict[str, dict[int | float, None]] = {}
        for call in calls:
            for name, value in call.params.items():
                values.setdefault(name, {})[value] = None
        words = [f"{name} = {' | '.join(map(str, found))}" for name, found in values.items()]
        some = "" if len(rows) == q_len else f" (queries {', '.join(map(str, rows))})"
        yield ", ".join([f"{q_len} queries{some}", f"{kv_len} keys", *words])
