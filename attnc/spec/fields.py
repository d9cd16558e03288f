"""Every key of a spec: its kind, meaning and default, for the checker and the JSON Schema."""

from __future__ import annotations

from functools import partial
from typing import Any

from attnc.spec.kinds import Choice, Dim, Expression, Flag, Integer, Line, Real
from attnc.spec.names import check_name
from attnc.spec.sections import Field, List, Names, OneOf, Section
from attnc.symbols import MAX_LENGTH, MAX_PARAM

FLOATS = ("fp16", "bf16", "fp32")
OUTPUTS = ("lse", "max_score", "entropy", "key_mass")
DIMS = ("batch", "heads", "kv_heads", "q_len", "kv_len")
_POWERS = (16, 32, 64, 128, 256)

_HEAD_COUNT = Integer(1, 65536)
_HEAD_DIM = Integer(1, 1024)
_LENGTH = Integer(0, MAX_LENGTH)


def _tunable(values: tuple[int, ...]) -> OneOf:
    """One of the values, or a list of them to tune over."""
    one = Integer(min(values), max(values), values)
    return OneOf((one, List(one, least=1, most=16, unique=True)))


TILE_VALUES = {
    "block_q": (_POWERS, "query rows of a tile"),
    "block_kv": (_POWERS, "key rows of a tile"),
    "warps": ((1, 2, 4, 8, 16), "warps of a program"),
    "stages": (tuple(range(1, 9)), "software pipeline stages"),
}
CHOICES = (
    Field("skew", Flag(), "make the scores of a tile during the tile before"),
    Field("last_first", Flag(), "launch the last tiles first: they have the most to do if causal"),
    Field("tma", Flag(), "read rows by tensor descriptors where strides allow it (sm_90 or newer)"),
)
_TILE = tuple(Field(name, _tunable(values), doc) for name, (values, doc) in TILE_VALUES.items())
OTHER_KERNELS = ("forward_keys", "backward_rows", "backward_q", "backward_kv")
SCHEDULE = Section(
    "schedule",
    (
        *_TILE,
        *CHOICES,
        Field("piece", _tunable(_POWERS), "widest power-of-two piece of a head dim"),
        *(
            Field(
                name, Section(f"schedule.{name}", (*_TILE, *CHOICES)), "tile sizes of that kernel"
            )
            for name in OTHER_KERNELS
        ),
    ),
    later={
        "warp_specialize": "warps that load beside warps that compute",
        "persistent": "programs that walk several tiles",
        "pack_heads": "heads of a group in the rows of a tile",
    },
)

_LENGTHS = (
    Field("batch", Integer(0, 2**31 - 1), "batch entries", default=1),
    Field("q_len", _LENGTH, "query rows"),
    Field("kv_len", _LENGTH, "key rows"),
)


def sizes_section(params: dict[str, Any]) -> Section:
    """A set of sizes: the lengths, and a value for any declared param."""
    kinds = {"int": Integer(-MAX_PARAM, MAX_PARAM), "float": Real()}
    values = tuple(
        Field(name, kinds[p["type"]], "value of the param")
        for name, p in params.items()
        if "type" in p
    )
    return Section("a set of sizes", (*_LENGTHS, *values), more=lambda: {"type": "number"})


PARAM = Section(
    "a param",
    (
        Field("type", Choice(("int", "float")), "int or float", required=True),
        Field(
            "default",
            Real(),
            "value when the caller gives none; without it the caller must give one",
        ),
    ),
)
TENSOR = Section(
    "a tensor",
    (
        Field(
            "shape",
            List(Dim(Choice(DIMS), Integer(1, 2**31 - 1)), least=1, most=6),
            "a list of batch, heads, kv_heads, q_len, kv_len and whole numbers",
            required=True,
        ),
        Field(
            "dtype",
            Choice(("fp32", "fp16", "bf16", "int32", "int64", "bool")),
            "element type",
            default="fp32",
        ),
        Field("grad", Flag(), "whether a gradient is wanted", default=False),
    ),
)


def root_section(params: dict[str, Any] | None = None) -> Section:
    """The keys of a spec; the declared params may stand in `sizes` and `check`."""
    sizes = sizes_section(params or {})
    return Section("a spec", _fields(sizes), later=LATER, elsewhere=ELSEWHERE)


LATER = {
    "latent": "multi-head latent attention",
    "rope": "rotary embedding inside the kernel",
    "qk_norm": "normalised queries and keys",
    "lengths": "per-entry lengths",
    "kv_layout": "paged keys and values",
    "kernels": "hand-written kernels",
}
ELSEWHERE = {
    "causal": "mask: causal",
    "is_causal": "mask: causal",
    "window": "mask: sliding_window({})",
    "window_size": "mask: sliding_window({})",
    "sliding_window": "mask: sliding_window({})",
    "softcap": "score: softcap(score, {})",
    "alibi": "score: alibi",
}


def _fields(sizes: Section) -> tuple[Field, ...]:
    shared = Section(
        "heads",
        (
            Field("q", _HEAD_COUNT, "query heads", required=True),
            Field("kv", _HEAD_COUNT, "key/value heads, a divisor of q", required=True),
        ),
    )
    dims = Section(
        "head_dim",
        (
            Field("qk", _HEAD_DIM, "size of a query or key vector", required=True),
            Field("v", _HEAD_DIM, "size of a value vector", required=True),
        ),
    )
    outputs = List(Choice(OUTPUTS), unique=True)
    return (
        Field("name", Line(60), "an identifier; the file's stem when left out"),
        Field("doc", Line(), "one line about the variant and its source"),
        Field(
            "heads",
            OneOf((_HEAD_COUNT, shared)),
            "write heads: 8, or heads: {q: 8, kv: 2}",
            required=True,
        ),
        Field(
            "head_dim",
            OneOf((_HEAD_DIM, dims)),
            "write head_dim: 64, or head_dim: {qk: 192, v: 128}",
            required=True,
        ),
        Field("dtype", Choice(FLOATS), "nominal element type", default="bf16"),
        Field("layout", Choice(("bhsd", "bshd")), "what the tensors' axes mean", default="bhsd"),
        Field("scale", Expression(), "what q . k is multiplied with", default="1/sqrt(d)"),
        Field(
            "score", Expression(), "what becomes of the score before the softmax", default="score"
        ),
        Field("mask", Expression(), "which keys a query sees", default="true"),
        Field("outputs", outputs, "extra outputs besides out", default=[]),
        Field(
            "fp32_dot",
            Choice(("ieee", "tf32", "tf32x3")),
            "what a float32 product means",
            default="ieee",
        ),
        Field("backward", Flag(), "whether gradients are wanted", default=True),
        Field("params", Names(PARAM, partial(check_name, what="param")), "run-time scalars"),
        Field("tensors", Names(TENSOR, partial(check_name, what="tensor")), "run-time tensors"),
        Field(
            "head_gate",
            Flag(),
            "a tensor head_gate [heads] multiplies each head's output",
            default=False,
        ),
        Field(
            "dropout",
            Flag(),
            "weights are dropped at random: keywords dropout_p and dropout_seed",
            default=False,
        ),
        Field(
            "sink",
            Choice(("none", "per_head")),
            "per_head: a tensor sink [heads], a logit that joins the softmax as a key with value 0",
            default="none",
        ),
        Field("sizes", sizes, "nominal sizes"),
        Field("schedule", OneOf((Choice(("auto",)), SCHEDULE)), "tile sizes", default="auto"),
        Field("check", List(sizes, least=1), "sizes that verify and tune use"),
    )


def json_schema() -> dict[str, Any]:
    """Make the JSON Schema of a spec, from which editors complete and check."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "attnc spec"}
    return head | root_section().json_schema()
