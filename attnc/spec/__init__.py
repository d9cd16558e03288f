"""The first room: the text of a spec becomes an AttentionSpec."""

from __future__ import annotations

import hashlib
from pathlib import Path

from attnc.spec.blocks import describe_blocks
from attnc.spec.builder import Spec
from attnc.spec.callables import formula, param, tensor, where
from attnc.spec.checker import check_spec
from attnc.spec.fields import json_schema
from attnc.spec.schema import AttentionSpec
from attnc.spec.settings import apply_settings
from attnc.spec.text_file import read_text
from attnc.spec.tuned import with_tuned
from attnc.spec.yaml_reader import read_yaml

__all__ = [
    "AttentionSpec",
    "Spec",
    "apply_settings",
    "describe_blocks",
    "digest",
    "formula",
    "json_schema",
    "param",
    "parse_spec",
    "read_spec",
    "read_text",
    "tensor",
    "where",
    "with_tuned",
]


def read_spec(path: Path) -> AttentionSpec:
    """Read and check the spec in a file, and the tuned schedules beside it.

    Raises: UserError when a file cannot be read, SpecErrors with every mistake in it.
    """
    return with_tuned(parse_spec(read_text(path), path), path)


def parse_spec(text: str, path: Path | str = "spec.yaml") -> AttentionSpec:
    """Check the text of a spec.  `path` is what errors show, and its stem the default name.

    Raises: SpecErrors with every mistake.
    """
    return check_spec(read_yaml(text, str(path)))


def digest(spec: AttentionSpec) -> str:
    """Hash a spec's text: the same on every machine and in every process (SHA-256, hex)."""
    return hashlib.sha256(spec.text.encode()).hexdigest()
