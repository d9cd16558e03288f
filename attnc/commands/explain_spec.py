"""`attnc explain`: what a spec means, how it will run, what it costs."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from attnc.commands.inputs import read_one, read_params
from attnc.driver import lower_spec
from attnc.errors import UserError
from attnc.explain.compare import compare
from attnc.explain.compare_text import call_text, comparison_text
from attnc.explain.pictures import difference_text, draw
from attnc.explain.report import explain
from attnc.explain.samples import Asked
from attnc.explain.situation import UnknownParam, situation_of
from attnc.explain.text import explanation_text
from attnc.spec.schema import AttentionSpec
from attnc.targets import find_target

LARGEST = 128  # rows or columns of a picture of two masks


class TooLargeToCompare(UserError):
    """Report a length at which pairs are not compared one by one."""

    code = "user/too-large-to-compare"
    message = "two specs are compared at a {name} of at most {most}, not {length}"
    help = "without sizes, a few queries of a call are compared that is long enough for both"


def run(options: Namespace) -> int:
    """Explain one spec, or say where two differ."""
    spec = read_one(options.spec, options.settings)
    if options.against:
        return _compare(spec, options)
    situation = situation_of(
        spec, options.batch, options.q_len, options.kv_len, read_params(spec, options.param)
    )
    device = find_target(options.target).name
    facts = explain(spec, lower_spec(spec), situation, device)
    facts["certificate"] = _certificate(options.generated, spec.name)
    print(json.dumps(facts, indent=2) if options.json else explanation_text(facts))
    return 0


def _compare(spec: AttentionSpec, options: Namespace) -> int:
    other = read_one(options.against)
    asked = Asked(options.batch, options.q_len, options.kv_len, _params_of(spec, other, options))
    for name in ("q_len", "kv_len"):
        if (length := getattr(options, name) or 0) > LARGEST:
            raise TooLargeToCompare(name=name, length=length, most=LARGEST)
    found = compare(spec, other, asked)
    if options.json:
        print(json.dumps(found.as_json(), indent=2))
        return 0
    print(comparison_text(found))
    witness = found.part("mask").witness
    if witness and max(witness.sample.first.q_len, witness.sample.first.kv_len) <= LARGEST:
        one, two = witness.sample.first, witness.sample.second
        head = int(witness.place["h"])
        print(f"\nmasks at {call_text(witness.sample)}, head {head}")
        print(difference_text(draw(spec, one, head), draw(other, two, head)))
    return 0


def _params_of(
    spec: AttentionSpec, other: AttentionSpec, options: Namespace
) -> dict[str, int | float]:
    """Values for params of either spec; a param that both declare has one value in both."""
    found: dict[str, int | float] = {}
    declared = {param.name for one in (spec, other) for param in one.params}
    for word in options.param:
        name = word.partition("=")[0].strip()
        if name not in declared:
            known = ", ".join(sorted(declared))
            advice = f"their params: {known}" if known else "they declare no params"
            raise UnknownParam(name=name, advice=advice)
        for one in (other, spec):
            if name in {param.name for param in one.params}:
                found |= read_params(one, [word])
    return found


def _certificate(folder: str, name: str) -> dict[str, Any] | None:
    """What `attnc verify` last wrote about this spec, if it has."""
    path = Path(folder) / f"{name}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
