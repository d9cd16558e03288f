"""Load a generated module from its file or its text, compiled or interpreted.

Triton decides when a function is decorated whether it will be compiled or interpreted, its own
library (tl.max, tl.sum ...) included, and its interpreter leaves parts of `triton.language`
patched behind. So that one process can hold both kinds of a module, every kernel and library
function that an interpreted module calls runs inside a scope that swaps the library and puts
everything back.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from attnc.artifact import write_all

SWITCH = "TRITON_INTERPRET"
_serial = itertools.count()


def load(path: Path, *, interpret: bool | None = None) -> ModuleType:
    """Import the generated file at `path` as a fresh module.

    interpret: run its kernels in Triton's interpreter (True), compile them (False), or do what
    TRITON_INTERPRET says (None).
    Raises: FileNotFoundError; whatever the module itself raises when imported.
    """
    if interpret is None:
        interpret = os.environ.get(SWITCH, "0") == "1"
    name = f"attnc_generated_{next(_serial)}_{path.stem}"
    description = importlib.util.spec_from_file_location(name, path)
    if description is None or description.loader is None:
        raise FileNotFoundError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(description)
    sys.modules[name] = module  # dataclasses and Triton look a function's module up by name
    try:
        with _switch(interpret):
            description.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    from attnc.runtime.interpreted import contain  # imports triton: only now, the module chose how

    contain(module)
    return module


def load_text(source: str, name: str, *, interpret: bool | None = None) -> ModuleType:
    """Import generated text; Triton wants a file, so it is kept in the cache by its hash."""
    return load(store(source, name), interpret=interpret)


def store(source: str, name: str, folder: Path | None = None) -> Path:
    """Write `source` into the cache folder, once per content and whole or not at all."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    path = (folder or cache_folder()) / digest / f"{name}.py"
    if not _holds(path, source):
        write_all({path: source})
    return path


def cache_folder() -> Path:
    """ATTNC_CACHE, else the user's cache folder (XDG_CACHE_HOME/attnc or ~/.cache/attnc)."""
    if chosen := os.environ.get("ATTNC_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnc"


def _holds(path: Path, source: str) -> bool:
    # a file cut short or edited in the cache heals itself
    try:
        return path.read_text(encoding="utf-8") == source
    except (OSError, UnicodeDecodeError):
        return False


@contextlib.contextmanager
def _switch(interpret: bool) -> Iterator[None]:
    """Set Triton's switch while a module's kernels are decorated."""
    before = os.environ.get(SWITCH)
    _set(SWITCH, "1" if interpret else "0")
    try:
        with _knob(interpret):
            yield
    finally:
        _set(SWITCH, before)


@contextlib.contextmanager
def _knob(interpret: bool) -> Iterator[None]:
    # a knob that the program set by hand wins over the environment, so it is set by hand as well
    from triton import knobs

    overrides = vars(knobs.runtime)
    before = overrides.get("interpret")
    overrides["interpret"] = interpret
    try:
        yield
    finally:
        if before is None:
            del overrides["interpret"]
        else:
            overrides["interpret"] = before


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
