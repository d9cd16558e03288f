"""Judge a kernel: prove, measure, certify.  `verify` and `verify_file` are the entries.

torch, triton and z3 are imported when a name is first used, not when this package is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnc.verify.certificate import write_certificate as write_certificate
    from attnc.verify.judgement import Compiled as Compiled
    from attnc.verify.judgement import NotGenerated as NotGenerated
    from attnc.verify.judgement import verify as verify
    from attnc.verify.judgement import verify_file as verify_file
    from attnc.verify.report import Report as Report

_HOMES = {
    "Compiled": "attnc.verify.judgement",
    "NotGenerated": "attnc.verify.judgement",
    "Report": "attnc.verify.report",
    "verify": "attnc.verify.judgement",
    "verify_file": "attnc.verify.judgement",
    "write_certificate": "attnc.verify.certificate",
}

__all__ = ["Compiled", "NotGenerated", "Report", "verify", "verify_file", "write_certificate"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnc.verify' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
