"""Compare two specs part by part, and never call the same what was only sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnc.explain.evaluate import Number, compile_formula, names_in
from attnc.explain.masks import mask_rows, score_rows
from attnc.explain.same_formula import same_formula
from attnc.explain.samples import Asked, Sample, samples
from attnc.explain.situation import Situation
from attnc.spec.schema import AttentionSpec

SAME, DIFFERENT, NOT_FOUND = "same", "different", "no difference found"
SCORES = (-1.25, 0.5, 40.0)  # values of scale * (q . k) at which scores are compared
CLOSE = 1e-9  # relative difference of two numbers that rounding explains


@dataclass(frozen=True, slots=True)
class Witness:
    """A call, and a pair of it, for which two formulas give different values."""

    sample: Sample
    first: Number
    second: Number
    place: dict[str, Number]  # b, h, q_idx, kv_idx, score: as far as they matter

    def as_json(self) -> dict[str, Any]:
        """All of it by name."""
        sizes = {"q_len": self.sample.first.q_len, "kv_len": self.sample.first.kv_len}
        values = {"first": _in_json(self.first), "second": _in_json(self.second)}
        return {**sizes, "params": self.sample.params, **self.place, **values}


def _in_json(value: Number) -> Number | str:
    """A value as JSON has it, which knows no infinity."""
    return value if math.isfinite(value) else str(value)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of two specs: what each says of it, and what the comparison found."""

    name: str
    first: str
    second: str
    verdict: str
    witness: Witness | None = None

    def as_json(self) -> dict[str, Any]:
        """What is known, the witness only where there is one."""
        found = {"verdict": self.verdict, "first": self.first, "second": self.second}
        return found | ({"where": self.witness.as_json()} if self.witness else {})


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two specs side by side; the samples are none where every formula is plainly the same."""

    first: str
    second: str
    parts: tuple[Part, ...]
    samples: tuple[Sample, ...]
    tensors: tuple[str, ...]  # whose contents were made up for the samples

    @property
    def verdict(self) -> str:
        """The worst of all parts."""
        found = {part.verdict for part in self.parts}
        return next(v for v in (DIFFERENT, NOT_FOUND, SAME) if v in found)

    def part(self, name: str) -> Part:
        """The part of that name."""
        return next(part for part in self.parts if part.name == name)

    def as_json(self) -> dict[str, Any]:
        """All of it by name."""
        return {
            "first": self.first,
            "second": self.second,
            "verdict": self.verdict,
            "parts": {part.name: part.as_json() for part in self.parts},
            "compared_at": [sample.as_json() for sample in self.samples],
            "example_contents": list(self.tensors),
        }


Finder = Callable[[AttentionSpec, AttentionSpec, Sample], Iterator[Witness]]


def compare(first: AttentionSpec, second: AttentionSpec, asked: Asked) -> Comparison:
    """Compare what two specs say: formulas by their text, else at samples."""
    calls = samples(first, second, asked)
    formulas = [_formula(name, first, second, calls) for name in ("scale", "score", "mask")]
    plain = [_plain(name, first, second) for name in _SAYS]
    sampled = any(part.verdict != SAME for part in formulas)
    read = {tensor.name for spec in (first, second) for tensor in spec.tensors}
    named = {
        str(symbol)
        for part in formulas
        if part.verdict != SAME
        for spec in (first, second)
        for symbol in getattr(spec, part.name).free_symbols
    }
    return Comparison(
        first.name,
        second.name,
        (*plain, *formulas),
        tuple(calls) if sampled else (),
        tuple(sorted(read & named)),
    )


def _plain(name: str, first: AttentionSpec, second: AttentionSpec) -> Part:
    one, other = _SAYS[name](first), _SAYS[name](second)
    return Part(name, one, other, SAME if one == other else DIFFERENT)


_SAYS: dict[str, Callable[[AttentionSpec], str]] = {
    "heads": lambda spec: f"{spec.heads_q} over {spec.heads_kv}",
    "head_dim": lambda spec: f"{spec.head_dim_qk} for q and k, {spec.head_dim_v} for v",
    "dtype": lambda spec: spec.dtype,
    "layout": lambda spec: spec.layout,
    "outputs": lambda spec: ", ".join(["out", *spec.outputs]),
    "head_gate": lambda spec: "yes" if spec.head_gate else "no",
    "dropout": lambda spec: "yes" if spec.dropout else "no",
    "sink": lambda spec: "yes" if spec.sink else "no",
    "fp32_dot": lambda spec: spec.fp32_dot,
    "params": lambda spec: _listed(
        f"{p.name}: {p.kind}" + ("" if p.default is None else f" = {p.default}")
        for p in spec.params
    ),
    "tensors": lambda spec: _listed(
        f"{t.name}: {t.dtype} [{', '.join(map(str, t.shape))}]" for t in spec.tensors
    ),
}


def _listed(words: Iterator[str]) -> str:
    return ", ".join(sorted(words)) or "none"


def _formula(
    name: str, first: AttentionSpec, second: AttentionSpec, calls: Sequence[Sample]
) -> Part:
    one, other = (getattr(spec, f"{name}_text") or "everything" for spec in (first, second))
    if same_formula(getattr(first, name), getattr(second, name), first, second):
        return Part(name, one, other, SAME)
    found = (witness for call in calls for witness in _FINDERS[name](first, second, call))
    witness = next(found, None)
    return Part(name, one, other, DIFFERENT if witness else NOT_FOUND, witness)


def _scales(first: AttentionSpec, second: AttentionSpec, call: Sample) -> Iterator[Witness]:
    try:
        one, other = _scale(first, call.first), _scale(second, call.second)
    except ArithmeticError:
        return
    if not _close(one, other):
        yield Witness(call, float(one), float(other), {})


def _scale(spec: AttentionSpec, at: Situation) -> Number:
    given = {"d": spec.head_dim_qk, **at.names()}
    return compile_formula(spec.scale, given)(*given.values())


def _masks(first: AttentionSpec, second: AttentionSpec, call: Sample) -> Iterator[Witness]:
    one, other = mask_rows(first, call.first), mask_rows(second, call.second)
    for b, h, i in _rows(first, second, call):
        try:
            pairs = enumerate(zip(one(b, h, i), other(b, h, i), strict=True))
        except ArithmeticError:
            continue
        for j, (x, y) in pairs:
            if bool(x) != bool(y):
                yield Witness(call, bool(x), bool(y), {"b": b, "h": h, "q_idx": i, "kv_idx": j})


def _scores(first: AttentionSpec, second: AttentionSpec, call: Sample) -> Iterator[Witness]:
    """Scores are compared where both masks are true: elsewhere nobody sees them."""
    sees = mask_rows(first, call.first), mask_rows(second, call.second)
    gives = score_rows(first, call.first), score_rows(second, call.second)
    for b, h, i in _rows(first, second, call):
        for score in SCORES:
            try:
                seen = zip(*(row(b, h, i) for row in sees), strict=True)
                pairs = zip(*(row(score, b, h, i) for row in gives), strict=True)
                both = enumerate(zip(seen, pairs, strict=True))
            except ArithmeticError:
                continue
            for j, (visible, (x, y)) in both:
                if all(visible) and not _close(x, y):
                    place = {"b": b, "h": h, "q_idx": i, "kv_idx": j, "score": score}
                    yield Witness(call, float(x), float(y), place)


_FINDERS: dict[str, Finder] = {"scale": _scales, "score": _scores, "mask": _masks}


def _rows(
    first: AttentionSpec, second: AttentionSpec, call: Sample
) -> Iterator[tuple[int, int, int]]:
    """Batch entries, heads and queries that may differ from each other."""
    formulas = [f for spec in (first, second) for f in (spec.mask, spec.score)]
    named = frozenset().union(*map(names_in, formulas))
    batch, heads = call.first.batch, min(call.first.heads, call.second.heads)
    for b in range(batch if "b" in named else min(batch, 1)):
        for h in sorted({0, 1, heads - 1} & set(range(heads))) if named & {"h", "h_kv"} else (0,):
            yield from ((b, h, i) for i in call.rows)


def _close(x: Number, y: Number) -> bool:
    return x == y or math.isclose(x, y, rel_tol=CLOSE) or (math.isnan(x) and math.isnan(y))
