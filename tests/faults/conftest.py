"""One compiled and loaded module for each spec that the tests of this folder use."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from attnc.driver import compile_spec
from attnc.runtime.loader import load, store
from attnc.spec import parse_spec
from tests.faults.judge import Build, Built

HEAD = {"heads": "{q: 4, kv: 2}", "head_dim": "16", "outputs": "[lse]", "backward": "false"}


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile the YAML lines given, with small heads unless they say otherwise, once a session."""
    folder = tmp_path_factory.mktemp("generated")

    @functools.cache
    def build(body: str = "", interpret: bool = True) -> Built:
        lines = [f"{key}: {value}" for key, value in HEAD.items() if f"{key}:" not in body]
        spec = parse_spec("\n".join(["name: sample", *lines, body]) + "\n")
        path = store(compile_spec(spec).module.source, spec.name, folder)
        return Built(spec, load(path, interpret=interpret))

    return build
