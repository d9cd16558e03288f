"""What torch's functions mean in the spec language, by name: torch itself is never imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attnc.spec.tracing import Traced, call, fail, traced

_SAME = {
    n: n for n in ("where", "tanh", "abs", "exp", "exp2", "log", "log2", "sqrt", "sigmoid", "relu")
}
_CALLS = _SAME | {"minimum": "min", "maximum": "max", "absolute": "abs", "min": "min", "max": "max"}
_OPERATORS: dict[str, Callable[..., Traced]] = {
    "add": lambda a, b: traced(a) + b,
    "sub": lambda a, b: traced(a) - b,
    "subtract": lambda a, b: traced(a) - b,
    "mul": lambda a, b: traced(a) * b,
    "multiply": lambda a, b: traced(a) * b,
    "div": lambda a, b, rounding_mode=None: _divided(a, b, rounding_mode),
    "true_divide": lambda a, b: traced(a) / b,
    "floor_divide": lambda a, b: traced(a) // b,
    "remainder": lambda a, b: traced(a) % b,
    "pow": lambda a, b: traced(a) ** traced(b),
    "neg": lambda a: -traced(a),
    "square": lambda a: traced(a) ** 2,
    "rsqrt": lambda a: 1 / call("sqrt", a),
    "reciprocal": lambda a: 1 / traced(a),
    "logical_and": lambda a, b: traced(a) & b,
    "bitwise_and": lambda a, b: traced(a) & b,
    "logical_or": lambda a, b: traced(a) | b,
    "bitwise_or": lambda a, b: traced(a) | b,
    "logical_not": lambda a: ~traced(a),
    "bitwise_not": lambda a: ~traced(a),
    "logical_xor": lambda a, b: traced(a) ^ b,
    "bitwise_xor": lambda a, b: traced(a) ^ b,
    "bitwise_left_shift": lambda a, b: traced(a) << b,
    "bitwise_right_shift": lambda a, b: traced(a) >> b,
    "relu": lambda x, inplace=False: call("relu", x),
    "new_ones": lambda _, size, dtype=None, device=None: _filled(size, True, dtype),
    "new_zeros": lambda _, size, dtype=None, device=None: _filled(size, False, dtype),
    "lt": lambda a, b: traced(a) < b,
    "le": lambda a, b: traced(a) <= b,
    "gt": lambda a, b: traced(a) > b,
    "ge": lambda a, b: traced(a) >= b,
    "eq": lambda a, b: traced(a) == b,
    "ne": lambda a, b: traced(a) != b,
    "clamp": lambda x, min=None, max=None: _clamp(x, min, max),
    "clip": lambda x, min=None, max=None: _clamp(x, min, max),
}


def _divided(a: object, b: object, rounding: str | None) -> Traced:
    if rounding == "trunc":
        fail('rounding_mode="trunc" has no formula in attnc', 'use rounding_mode="floor"')
    return traced(a) // b if rounding == "floor" else traced(a) / b


def _filled(size: Any, value: bool, dtype: object) -> Traced:
    """One number or truth, as FlexAttention's noop_mask and or_masks make it."""
    if size not in ((), []):
        fail("a callable can make only single numbers", "leave the size empty: ()")
    return traced(value if str(dtype) == "torch.bool" else int(value))


def _clamp(x: object, low: object, high: object) -> Traced:
    x = x if low is None else call("max", x, low)
    return traced(x) if high is None else call("min", x, high)


def torch_call(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Traced:
    """Write down a call of a torch function.  Raises: TraceError when it has no formula."""
    foreign = next(
        (arg for arg in args if hasattr(arg, "stride") and not isinstance(arg, Traced)), None
    )
    if foreign is not None:
        traced(foreign)  # a captured torch tensor: refused, with the remedy
    try:
        if name in _CALLS and not kwargs:
            return call(_CALLS[name], *args)
        if name in _OPERATORS:
            return _OPERATORS[name](*args, **kwargs)
    except TypeError as error:
        fail(
            f"torch.{name} is used in a way that no formula can say: {error}",
            "call it as its formula is written",
        )
    known = ", ".join(sorted({*_CALLS, *_OPERATORS}))
    fail(f"torch.{name} has no formula in attnc", f"known torch functions: {known}")
