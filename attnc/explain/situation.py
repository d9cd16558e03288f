"""The sizes, params and tensors at which a spec is explained.

A mask may depend on run-time tensors, which nobody has while explaining.  They are given example
contents by a simple rule, and whatever is drawn or counted with them says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from attnc.errors import UserError
from attnc.explain.evaluate import Number
from attnc.spec.schema import AttentionSpec, Tensor


class NeedsParam(UserError):
    """Report a param without any value to explain it at."""

    code = "user/needs-param"
    message = "param {name!r} has no default and no size sets it"
    help = "give it one: --param {name}=..."


class UnknownParam(UserError):
    """Report a value for a param that the spec does not declare."""

    code = "user/unknown-param"
    message = "the spec has no param {name!r}"
    help = "{advice}"


class BadSize(UserError):
    """Report a size that no tensor can have."""

    code = "user/bad-size"
    message = "{name} must be a whole number from 0 to 2**30, not {value}"


@dataclass(frozen=True, slots=True)
class Situation:
    """One call: lengths, params by name, tensors by name with example contents."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    params: Mapping[str, int | float]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    scattered: bool = False  # contents without a pattern, in which two formulas may differ

    def extent(self, dim: str | int) -> int:
        """The size of a tensor's dimension."""
        sizes = {
            "batch": self.batch,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "q_len": self.q_len,
            "kv_len": self.kv_len,
        }
        return dim if isinstance(dim, int) else sizes[dim]

    def read(self, name: str, *index: int) -> Number:
        """An element of an example tensor; 0 outside its shape, as everywhere in attnc."""
        tensor = self.tensors[name]
        extents = [self.extent(dim) for dim in tensor.shape]
        if any(not 0 <= i < n for i, n in zip(index, extents, strict=True)):
            return 0
        if self.scattered:
            return _scattered(tensor, index)
        return _example(tensor, index[-1] if index else 0, extents[-1] if extents else 1)

    def names(self) -> dict[str, Number]:
        """What formulas may name besides the position of a pair."""
        return {
            "batch": self.batch,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "q_len": self.q_len,
            "kv_len": self.kv_len,
            **self.params,
        }

    def at(self, q_len: int, kv_len: int) -> Situation:
        """The same call at other lengths."""
        return replace(self, q_len=q_len, kv_len=kv_len)


def _example(tensor: Tensor, index: int, extent: int) -> Number:
    if tensor.dtype == "bool":
        return index % 2 == 0
    if not tensor.dtype.startswith("int"):
        return 1.0
    if tensor.shape and tensor.shape[-1] in ("q_len", "kv_len"):
        return 3 * index // extent
    return index + 1


def _scattered(tensor: Tensor, index: tuple[int, ...]) -> Number:
    """The same pseudo-random element for the same name and index, in every process."""
    bits = crc32(f"{tensor.name}{index}".encode()) >> 8
    if tensor.dtype == "bool":
        return bits % 2 == 0
    return bits % 5 if tensor.dtype.startswith("int") else bits % 1024 / 512 - 1


def example_rule(tensor: Tensor) -> str:
    """Say what an example tensor holds."""
    if tensor.dtype == "bool":
        return f"{tensor.name}: true at even positions"
    if not tensor.dtype.startswith("int"):
        return f"{tensor.name}: 1 everywhere"
    if tensor.shape and tensor.shape[-1] in ("q_len", "kv_len"):
        return f"{tensor.name}: 0, 1 and 2 on the three thirds of its last axis"
    return f"{tensor.name}: 1, 2, 3 ... along its last axis"


def situation_of(
    spec: AttentionSpec,
    batch: int | None = None,
    q_len: int | None = None,
    kv_len: int | None = None,
    params: Mapping[str, int | float] | None = None,
) -> Situation:
    """Take sizes as given, else the spec's nominal ones; params as given, else set, else default.

    Raises: NeedsParam, UnknownParam, BadSize.
    """
    nominal = spec.sizes
    sizes = {
        "batch": nominal.batch if batch is None else batch,
        "q_len": nominal.q_len if q_len is None else q_len,
        "kv_len": nominal.kv_len if kv_len is None else kv_len,
    }
    for name, value in sizes.items():
        if not 0 <= value <= 2**30:
            raise BadSize(name=name, value=value)
    return Situation(
        batch=sizes["batch"],
        q_len=sizes["q_len"],
        kv_len=sizes["kv_len"],
        heads=spec.heads_q,
        kv_heads=spec.heads_kv,
        params=_params(spec, params or {}),
        tensors={tensor.name: tensor for tensor in (*spec.tensors, *spec.by_head)},
    )


def _params(spec: AttentionSpec, given: Mapping[str, int | float]) -> dict[str, int | float]:
    declared = {param.name: param.default for param in spec.params}
    for name in given:
        if name not in declared:
            known = ", ".join(declared)
            raise UnknownParam(
                name=name, advice=f"its params: {known}" if known else "it declares no params"
            )
    found = {name: default for name, default in declared.items() if default is not None}
    for sizes in (*reversed(spec.check), spec.sizes):  # the nominal sizes speak last
        found |= {name: value for name, value in sizes.params if name not in found}
    found |= dict(spec.sizes.params) | dict(given)
    for name in declared:
        if name not in found:
            raise NeedsParam(name=name)
    return {name: found[name] for name in declared}
