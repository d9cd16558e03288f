"""attnc: from a short text about an attention variant to a kernel you can read, own and trust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from attnc.python_api import compile
    from attnc.spec import Spec, formula, param, read_spec, tensor, where

# Public names and where they live; loaded on first use, so that `import attnc` costs nothing.
_HOMES = {
    "Spec": "attnc.spec",
    "compile": "attnc.python_api",
    "formula": "attnc.spec",
    "param": "attnc.spec",
    "read_spec": "attnc.spec",
    "tensor": "attnc.spec",
    "where": "attnc.spec",
}

__all__ = [
    "Spec",
    "__version__",
    "compile",
    "formula",
    "param",
    "read_spec",
    "tensor",
    "where",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnc' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
