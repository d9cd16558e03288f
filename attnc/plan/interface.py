"""What the generated module will offer, taken from the spec that the dataflow came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx

from attnc.graph.derivation import derivation
from attnc.graph.forward import DIM_INDEX, DTYPES
from attnc.graph.landings import Landing, landings
from attnc.graph.operations import TILE, Dataflow, Largest
from attnc.ir.interface import (
    GradientArgument,
    Interface,
    ParamArgument,
    Schedule,
    ScheduleRow,
    TensorArgument,
)
from attnc.plan.buffers import BLOCK_DIMS
from attnc.plan.row_terms import cleared_cotangents, with_row_terms
from attnc.plan.schedule import default_schedules, score_bytes
from attnc.targets import find_target


def interface_of(flow: Dataflow) -> Interface:
    """The call's arguments, the formulas and the schedule table."""
    spec = flow.spec
    return Interface(
        name=spec.name,
        doc=spec.doc,
        spec_text=spec.text,
        spec_path=spec.path,
        layout=spec.layout,
        heads_q=spec.heads_q,
        heads_kv=spec.heads_kv,
        fixes_heads=spec.fixes_heads,
        head_dim_qk=spec.head_dim_qk,
        head_dim_v=spec.head_dim_v,
        dtype=spec.dtype,
        fp32_dot=spec.fp32_dot,
        scale=spec.scale,
        score=spec.score,
        mask=spec.mask,
        params=tuple(ParamArgument(p.name, p.kind, p.default) for p in spec.params),
        tensors=tuple(TensorArgument(t.name, t.shape, DTYPES[t.dtype]) for t in spec.tensors),
        outputs=spec.outputs,
        head_gate=spec.head_gate,
        dropout=spec.dropout,
        sink=spec.sink,
        without_gradient=tuple(
            name for name, value in flow.outputs.items() if isinstance(flow.values[value], Largest)
        ),
        backward=spec.backward,
        gradients=_gradients(flow),
        kept=flow.kept,
        derivation=(*derivation(flow), *cleared_cotangents(flow)),
        schedules=_schedules(flow),
    )


DIM_OF = {"batch": "b", "heads": "h", "kv_heads": "g", "q_len": "q", "kv_len": "k"}


def _gradients(flow: Dataflow) -> tuple[GradientArgument, ...]:
    """What the kernels of the backward write, operand by operand."""
    _, flow = with_row_terms(flow)
    if not flow.backward:
        return ()
    found = [_gradient(flow, landing) for landing in landings(flow)]
    floats = (param.name for param in flow.spec.params if param.kind == "float")
    order = ("q", "k", "v", *_shapes(flow), *floats, "scale")
    return tuple(sorted(found, key=lambda one: order.index(one.operand)))


def _gradient(flow: Dataflow, landing: Landing) -> GradientArgument:
    operand, buffer, grid = landing.operand, landing.buffer, landing.grid
    made = {buffer for graph in flow.backward for buffer, _ in graph.results}
    reads = tuple(sorted(made & nx.ancestors(flow.graph(), landing.value)))
    if operand in ("q", "k", "v"):
        return GradientArgument(operand, buffer, reads)
    shape = _shapes(flow).get(operand, ())  # none: a number's
    if set(grid) >= TILE:
        in_step = tuple(DIM_INDEX.get(str(dim)) for dim in shape)
        return GradientArgument(operand, buffer, reads, blank=landing.places != in_step)
    axes = flow.values[landing.value].axes
    last = next(axis for axis in "nkq" if axis in grid)
    last = last if last in axes or last == "n" else BLOCK_DIMS[last]
    shares = ("b", "h" if "r" in grid else "g", last)
    if not landing.places:
        dims = tuple(DIM_OF[str(dim)] for dim in shape)
        return GradientArgument(operand, buffer, reads, dims, shares)
    heads = "h" if "r" in axes else "g" if "g" in axes else ""
    dims = tuple(dim for dim in ("b", heads, last) if dim in (*axes, "h", "n"))
    return GradientArgument(operand, buffer, reads, dims, shares, landing.places)


def _shapes(flow: Dataflow) -> dict[str, tuple[str | int, ...]]:
    return {tensor.name: tensor.shape for tensor in (*flow.spec.tensors, *flow.spec.by_head)}


def _schedules(flow: Dataflow) -> tuple[ScheduleRow, ...]:
    """The table by rule, where the spec was tuned what was found, and above all what it asks."""
    spec = flow.spec
    kernels = tuple(graph.name for graph in (*flow.kernels, *flow.backward))
    dtypes = {tensor.name: tensor.dtype for tensor in spec.tensors}
    loaded = score_bytes((spec.score, spec.mask), dtypes)
    rows = default_schedules(spec.head_dim_qk, spec.head_dim_v, loaded, spec.fp32_dot, kernels)
    return tuple(_chosen(flow, row) for row in rows)


def _chosen(flow: Dataflow, row: ScheduleRow) -> ScheduleRow:
    spec = flow.spec
    tuned = spec.tuned.schedule(row.device, row.element_bytes, row.kernel) if spec.tuned else None
    asked = asked_schedule(spec.schedule, row.kernel)
    allowed = {n: v for n, v in (tuned or {}).items() if v in asked.get(n, (v,))}
    chosen = replace(row.schedule, **{n: values[0] for n, values in asked.items()} | allowed)
    chosen = replace(chosen, tma=chosen.tma and find_target(row.device).has_descriptors)
    return replace(row, schedule=chosen, is_listed=row.is_listed or tuned is not None)


def asked_schedule(
    schedule: Mapping[str, Any] | None, kernel: str
) -> Mapping[str, tuple[int, ...]]:
    """What a spec's schedule leaves to choose from, by field: its own fields are the forward's."""
    given = (schedule or {}) if kernel == "forward" else (schedule or {}).get(kernel, {})
    return {
        name: value if isinstance(value, tuple) else (value,)
        for name, value in given.items()
        if name in Schedule.__slots__
    }
