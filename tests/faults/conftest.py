"""One compiled and loaded module for each spec that the tests of this folder use."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import torch

from attnc.driver import compile_spec
from attnc.runtime.loader import load, store
from attnc.spec import parse_spec
from tests.faults.judge import Build, Built

HEAD = {
    "name": "sample",
    "heads": "{q: 2, kv: 1}",
    "head_dim": "16",
    "outputs": "[lse]",
    "backward": "false",
}


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile the YAML lines given, with small heads unless they say otherwise, once a session."""
    folder = tmp_path_factory.mktemp("generated")

    @functools.cache
    def build(body: str = "", interpret: bool = True) -> Built:
        lines = [f"{key}: {value}" for key, value in HEAD.items() if f"\n{key}:" not in f"\n{body}"]
        spec = parse_spec("\n".join([*lines, body]) + "\n")
        path = store(compile_spec(spec).module.source, spec.name, folder)
        return Built(spec, load(path, interpret=interpret))

    return build


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors gain nothing from torch's threads, which wait by spinning."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
