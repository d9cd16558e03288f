"""The Jinja environment: strict about names, exact about white space."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from attnc.artifact import template_folder


@cache
def environment(target: str) -> Environment:
    """The templates of one target language."""
    return Environment(
        loader=FileSystemLoader(template_folder() / target),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
