"""`attnc explain`: what a spec means, how it will run, what it costs."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from attnc.commands.inputs import read_one, read_params
from attnc.driver import lower_spec
from attnc.errors import UserError
from attnc.explain.pictures import difference_text, draw
from attnc.explain.report import PICTURE, explain
from attnc.explain.situation import Situation, situation_of
from attnc.explain.text import explanation_text
from attnc.spec.schema import AttentionSpec
from attnc.targets import find_target


class TooLargeToDraw(UserError):
    """Report a picture that no terminal shows."""

    code = "user/too-large-to-draw"
    message = "a picture of {q_len} x {kv_len} is too large"
    help = "ask for at most 128 of each: --q-len 8 --kv-len 12"


def run(options: Namespace) -> int:
    """Explain one spec, or show where two masks differ."""
    spec = read_one(options.spec, options.settings)
    situation = situation_of(
        spec, options.batch, options.q_len, options.kv_len, read_params(spec, options.param)
    )
    if options.against:
        return _compare(spec, options, situation)
    device = find_target(options.target).name
    facts = explain(spec, lower_spec(spec), situation, device)
    facts["certificate"] = _certificate(options.generated, spec.name)
    print(json.dumps(facts, indent=2) if options.json else explanation_text(facts))
    return 0


def _compare(spec: AttentionSpec, options: Namespace, situation: Situation) -> int:
    other = read_one(options.against)
    if options.q_len is None and options.kv_len is None:
        situation = situation.at(*PICTURE)
    if max(situation.q_len, situation.kv_len) > 128:
        raise TooLargeToDraw(q_len=situation.q_len, kv_len=situation.kv_len)
    theirs = situation_of(other, situation.batch, situation.q_len, situation.kv_len)
    first, second = draw(spec, situation), draw(other, theirs)
    if options.json:
        same = first.rows == second.rows
        print(json.dumps({"first": spec.name, "second": other.name, "same": same}))
    else:
        print(f"{spec.name} against {other.name}\n{difference_text(first, second)}")
    return 0


def _certificate(folder: str, name: str) -> dict[str, Any] | None:
    """What `attnc verify` last wrote about this spec, if it has."""
    path = Path(folder) / f"{name}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
