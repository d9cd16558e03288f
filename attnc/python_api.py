"""`attnc.compile`: from a spec to a module that is ready to call, in one line of Python."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from attnc.driver import compile_spec
from attnc.runtime.loader import load_text
from attnc.spec import read_spec
from attnc.spec.schema import AttentionSpec


def compile(spec: AttentionSpec | Path | str) -> ModuleType:
    """Compile a spec, or the spec in a file, and load what came out.

    The generated file lands in the user's cache folder (ATTNC_CACHE, XDG_CACHE_HOME/attnc or
    ~/.cache/attnc) under its content's hash, so the same spec is written once.
    Returns: the generated module; call its `attention`.  On a CPU it runs its dense reference, or
    Triton's interpreter when TRITON_INTERPRET=1 was set before.
    Raises: SpecErrors with every mistake in the spec.
    """
    checked = spec if isinstance(spec, AttentionSpec) else read_spec(Path(spec))
    module = compile_spec(checked).module
    return load_text(module.source, module.name)
