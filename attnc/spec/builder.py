"""Build a spec in Python: the same keys as in YAML, and formulas as text or as callables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnc.spec.callables import trace
from attnc.spec.checker import check_spec
from attnc.spec.schema import AttentionSpec
from attnc.spec.tracing import MASK_ARGUMENTS, SCORE_ARGUMENTS, Traced, fail
from attnc.spec.yaml_reader import read_yaml

Formulation = str | int | float | bool | Traced | Callable[..., object]

# A text that YAML reads as itself wherever it stands: no indicator, no ": ", " #" or flow sign.
_BARE = re.compile(r"[A-Za-z0-9_.(~][A-Za-z0-9_./*+<>=()|&~% -]*", re.ASCII)


def Spec(
    name: str,
    *,
    heads: int | Mapping[str, int],
    head_dim: int | Mapping[str, int],
    scale: str | float | Traced | None = None,
    score: Formulation | None = None,
    mask: Formulation | None = None,
    **keys: Any,
) -> AttentionSpec:
    """Build a spec from Python values; the keys are those of the YAML form.

    `mask` and `score` may be callables in FlexAttention's signatures, mask_mod(b, h, q_idx, kv_idx)
    and score_mod(score, b, h, q_idx, kv_idx); they are run once on stand-ins and written down.
    The spec's `text` is the YAML that says the same.

    Raises: SpecErrors with places in that YAML; TraceError when a callable does more than that.
    """
    if callable(scale):
        fail(
            "scale cannot be a callable: it is one number",
            'write it as text, for example "1/sqrt(d)"; what varies by row belongs into score',
        )
    values: dict[str, Any] = {"name": name, "heads": heads, "head_dim": head_dim}
    formulas = {
        "scale": scale,
        "score": _text(score, SCORE_ARGUMENTS),
        "mask": _text(mask, MASK_ARGUMENTS),
    }
    values |= {key: value for key, value in formulas.items() if value is not None}
    text = _write(values | keys)
    path = f"{name}.yaml" if name.isidentifier() else "<attnc.Spec>"
    return check_spec(read_yaml(text, path))


def _text(formula: Formulation | None, arguments: Sequence[str]) -> object:
    if isinstance(formula, Traced):
        return formula.text
    return trace(formula, arguments) if callable(formula) else formula


def _write(values: Mapping[str, Any]) -> str:
    """The YAML of a spec, one key a line."""
    return "".join(f"{_scalar(key)}: {_flow(value)}\n" for key, value in values.items())


def _flow(value: object, inside: bool = False) -> str:
    """A value in YAML's flow style."""
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{_scalar(str(k))}: {_flow(v, True)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item, True) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Traced):
        value = value.text
    return _scalar(str(value)) if not isinstance(value, str) or not inside else _scalar(value)


def _scalar(text: str) -> str:
    """A text, quoted when YAML would read it as anything else."""
    return (
        text
        if _BARE.fullmatch(text) and text == text.strip()
        else json.dumps(text, ensure_ascii=False)
    )
