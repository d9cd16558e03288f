"""Which names a user may give: ASCII identifiers that neither Python, formulas nor generated code use."""

from __future__ import annotations

import keyword
import re

from attnc.spec import mistakes
from attnc.spec.arithmetic import EXTREMES, FUNCTIONS
from attnc.spec.blocks import BLOCKS
from attnc.spec.yaml_reader import Scalar

MAX_NAME = 60

INDICES = ("b", "h", "h_kv", "q_idx", "kv_idx", "q_len", "kv_len", "q_pos", "d", "score")
WORDS = (
    "inf",
    "nan",
    "true",
    "false",
    "True",
    "False",
    "None",
    "where",
    "top_left",
    "none",
    "auto",
)
GENERATED = (  # what the generated module's own code is called or calls
    *(
        "torch",
        "triton",
        "tl",
        "math",
        "dataclasses",
        "typing",
        "os",
        "sys",
        "warnings",
        "annotations",
    ),
    *(
        "q",
        "k",
        "v",
        "out",
        "lse",
        "scale",
        "schedule",
        "return_aux",
        "head_gate",
        "sink",
        "aux",
        "Aux",
    ),
    *(
        "attention",
        "reference",
        "attnc",
        "self",
        "cls",
        "batch",
        "heads",
        "kv_heads",
        "device",
        "dtype",
        "stream",
    ),
    *(
        "max_score",
        "entropy",
        "key_mass",
        "dropout",
        "seed",
        "grad",
        "forward",
        "backward",
        "launch",
        "m",
        "l",
        "acc",
    ),
)
BUILTINS = (
    *(
        "abs",
        "all",
        "any",
        "bool",
        "dict",
        "float",
        "getattr",
        "hash",
        "id",
        "int",
        "isinstance",
        "len",
        "list",
    ),
    *(
        "max",
        "min",
        "object",
        "open",
        "print",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "setattr",
        "slice",
    ),
    *(
        "sorted",
        "str",
        "sum",
        "super",
        "tuple",
        "type",
        "zip",
        "eval",
        "exec",
        "property",
        "compile",
        "input",
    ),
)
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_GENERATED_SUFFIX = re.compile(r".*(_ptr|_stride|__.*)")


def name_problem(name: str) -> str | None:
    """Say why a param or tensor cannot be called so, or None."""
    if problem := spec_name_problem(name):
        return problem
    if name in INDICES or name in WORDS or name in FUNCTIONS or name in EXTREMES or name in BLOCKS:
        return "formulas use this word already"
    if name in GENERATED or name in BUILTINS or _GENERATED_SUFFIX.fullmatch(name):
        return "generated code uses this word already"
    return None


def spec_name_problem(name: str) -> str | None:
    """Say why a spec cannot be called so, or None."""
    if not _IDENTIFIER.fullmatch(name):
        return "a name is a letter, then letters, digits and _ (ASCII)"
    if len(name) > MAX_NAME:
        return f"a name has at most {MAX_NAME} characters"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "it is a Python keyword"
    return None


def check_name(key: Scalar, what: str) -> None:
    """Raise BadName when a declared param or tensor cannot be called so."""
    if problem := name_problem(key.value):
        advice = f"choose another name, for example my_{what}"
        raise mistakes.BadName(key.span, name=key.value, what=what, problem=problem, advice=advice)
