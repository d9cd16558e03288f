"""`attnc show`: the program after any pass, or a picture of the mask."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Collection
from difflib import get_close_matches

from attnc.commands.inputs import read_one, read_params
from attnc.errors import UserError
from attnc.explain.pictures import draw, picture_text
from attnc.explain.report import PICTURE
from attnc.explain.situation import situation_of
from attnc.spec.schema import AttentionSpec

LARGEST = 200  # rows or columns of a picture


class UnknownPass(UserError):
    """Report a pass that does not exist."""

    code = "user/unknown-pass"
    message = "no pass is called {name!r}"
    help = "{advice}"


class BadPicture(UserError):
    """Report a picture that cannot be drawn."""

    code = "user/bad-picture"
    message = "{option} must be from {least} to {most}, not {value}"


def run(options: Namespace) -> int:
    """Print what was asked for; without a choice, the program that codegen receives."""
    spec = read_one(options.spec, options.settings)
    return _show_mask(spec, options) if options.mask else _show_program(spec, options)


def _show_program(spec: AttentionSpec, options: Namespace) -> int:
    from attnc.driver import trace_passes

    programs = trace_passes(spec)
    if options.list:
        print(json.dumps(list(programs)) if options.json else "\n".join(programs))
        return 0
    name = _pass_named(options.after, programs) if options.after else list(programs)[-1]
    text = programs[name]
    print(json.dumps({"after": name, "program": text}) if options.json else text)
    return 0


def _pass_named(word: str, known: Collection[str]) -> str:
    """The pass of that name; its file's name, stream_reductions, will do as well."""
    name = word.lower().removesuffix(".py").replace("_", "-")
    if name in known:
        return name
    close = get_close_matches(name, known, 1)
    advice = f"did you mean {close[0]}? " if close else ""
    raise UnknownPass(name=word, advice=f"{advice}known passes: {', '.join(known)}")


def _show_mask(spec: AttentionSpec, options: Namespace) -> int:
    q_len = PICTURE[0] if options.q_len is None else options.q_len
    kv_len = PICTURE[1] if options.kv_len is None else options.kv_len
    _within("--q-len", q_len, 0, LARGEST)
    _within("--kv-len", kv_len, 0, LARGEST)
    _within("--head", options.head, 0, spec.heads_q - 1)
    _within("--tile", options.tile, 1, LARGEST)
    situation = situation_of(spec, 1, q_len, kv_len, read_params(spec, options.param))
    picture = draw(spec, situation, options.head)
    if options.json:
        drawn = {"rows": picture.rows, "visible": picture.visible, "examples": picture.examples}
        tiles = picture.tiles(options.tile, options.tile)
        print(json.dumps({**drawn, "tiles": tiles}))
    else:
        print(picture_text(picture, options.tile, options.tile))
    return 0


def _within(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadPicture(option=option, value=value, least=least, most=most)
