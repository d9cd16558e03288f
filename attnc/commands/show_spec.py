"""`attnc show`: the program after any pass, or a picture of the mask."""

from __future__ import annotations

import json
from argparse import Namespace

from attnc.commands.inputs import read_one
from attnc.driver import trace_passes
from attnc.errors import UserError


class UnknownPass(UserError):
    """Report a pass that does not exist."""

    code = "user/unknown-pass"
    message = "no pass is called {name!r}"
    help = "known passes: {known}"


def run(options: Namespace) -> int:
    """Print what was asked for; without a choice, the program that codegen receives."""
    spec = read_one(options.spec, options.settings)
    if options.mask:
        return _show_mask(spec, options)
    programs = trace_passes(spec)
    if options.list:
        print(json.dumps(list(programs)) if options.json else "\n".join(programs))
        return 0
    name = options.after or list(programs)[-1]
    if name not in programs:
        raise UnknownPass(name=name, known=", ".join(programs))
    print(
        json.dumps({"after": name, "program": programs[name]}) if options.json else programs[name]
    )
    return 0
