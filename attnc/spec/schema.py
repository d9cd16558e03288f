"""AttentionSpec: what the user said, checked and frozen.  DESIGN section 2 says what it means.

The formulas are sympy over `attnc.symbols`: `score` is written in `symbols.score`, which is
scale * (q . k); `mask` is a sympy Boolean; `scale` is free of all that varies by row or column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sympy import Expr
from sympy.logic.boolalg import Boolean

from attnc.source import Span

Tunable = int | tuple[int, ...]  # a tuple: tune over


@dataclass(frozen=True, slots=True)
class Tensor:
    """A run-time tensor that formulas may index.  `shape` holds dim names and integers."""

    name: str
    shape: tuple[str | int, ...]  # batch, heads, kv_heads, q_len, kv_len or a positive integer
    dtype: str = "fp32"  # fp32 | fp16 | bf16 | int32 | int64 | bool
    grad: bool = False


@dataclass(frozen=True, slots=True)
class Param:
    """A run-time scalar; `kind` is `int` or `float`; no default means a required keyword."""

    name: str
    kind: str
    default: int | float | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths, and values of params, at which something is decided or tested."""

    batch: int = 1
    q_len: int = 4096
    kv_len: int = 4096
    params: tuple[tuple[str, int | float], ...] = ()  # params that a check size sets


@dataclass(frozen=True, slots=True)
class TunedRow:
    """A schedule that was chosen for a kernel, a device class and an element size in bytes."""

    target: str
    element_bytes: int
    kernel: str
    schedule: Mapping[str, int]  # block_q, block_kv, warps, stages, and what else it chooses
    device: str = ""  # the chip it was chosen for
    by: str = "hand"  # prediction | measurement | hand
    microseconds: float = 0.0
    kernels: str = ""  # SHA-256 of the text it was found for, where it was

    @property
    def key(self) -> tuple[str, int, str]:
        """What it is for."""
        return self.target, self.element_bytes, self.kernel


@dataclass(frozen=True, slots=True)
class Tuned:
    """What `attnc tune --bake` wrote beside a spec."""

    rows: tuple[TunedRow, ...]

    def schedule(self, target: str, element_bytes: int, kernel: str) -> Mapping[str, int] | None:
        """What was chosen; the last row counts."""
        wanted = (target, element_bytes, kernel)
        return next((row.schedule for row in reversed(self.rows) if row.key == wanted), None)

    def with_rows(self, rows: Iterable[TunedRow]) -> Tuned:
        """These rows in place of those that are for the same."""
        new = {row.key: row for row in rows}
        return Tuned((*(row for row in self.rows if row.key not in new), *new.values()))


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """An attention variant, checked whole."""

    name: str
    doc: str
    heads_q: int
    heads_kv: int
    head_dim_qk: int
    head_dim_v: int
    dtype: str  # fp16 | bf16 | fp32, nominal
    layout: str  # bhsd | bshd
    scale: Expr
    score: Expr
    mask: Boolean
    scale_text: str  # the three formulas as the user wrote them
    score_text: str
    mask_text: str
    outputs: tuple[str, ...]  # extra outputs: lse, max_score, entropy, key_mass
    fp32_dot: str  # ieee | tf32 | tf32x3
    backward: bool
    params: tuple[Param, ...]
    tensors: tuple[Tensor, ...]
    head_gate: bool
    dropout: bool
    sizes: Sizes
    # None: auto.  The fields are the forward's; a kernel of the backward has a mapping of its own.
    schedule: Mapping[str, Tunable | Mapping[str, Tunable]] | None
    check: tuple[Sizes, ...]
    fixes_heads: bool  # a formula names h outside a tensor index: no other head count is accepted
    text: str  # the source text, or the YAML that says the same as the Python form
    path: str  # shown in errors and in the generated header
    sink: bool = False  # a logit per head joins the softmax as a key with value 0
    tuned: Tuned | None = None  # where the spec's schedule leaves a choice
    spans: Mapping[str, Span] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )

    @property
    def by_head(self) -> tuple[Tensor, ...]:
        """The tensors that a feature, and no declaration, adds to the call."""
        asked = {"head_gate": self.head_gate, "sink": self.sink}
        return tuple(Tensor(name, ("heads",), grad=True) for name in asked if asked[name])

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.heads_q // self.heads_kv
