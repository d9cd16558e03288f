"""What the forward keeps for the backward, what the backward makes again, and at what price."""

from __future__ import annotations

from typing import Any

from attnc.graph.derivation import derivation
from attnc.graph.derivative import differentiate
from attnc.graph.forward import build_dataflow
from attnc.graph.recompute import plan_keeping
from attnc.spec.schema import AttentionSpec


def gradients_of(spec: AttentionSpec) -> dict[str, Any] | None:
    """The choice at the nominal sizes; None where the spec wants no backward.

    Bytes are what keeping takes; keeping and making are microseconds of the cost model.
    """
    if not spec.backward:
        return None
    flow = differentiate(build_dataflow(spec))
    plan = plan_keeping(flow)
    sizes = spec.sizes
    return {
        "of": list(flow.gradients),
        "formulas": list(derivation(flow)),
        "sizes": {"batch": sizes.batch, "q_len": sizes.q_len, "kv_len": sizes.kv_len},
        "limit_bytes": plan.limit,
        "price_ps_per_byte": plan.price,
        "values": [
            {
                "name": choice.name,
                "kept": choice.kept,
                "bytes": choice.size,
                "is_output": choice.name in flow.outputs.values(),
                "keeping_us": choice.keeping * 1e-6,
                "making_us": choice.making * 1e-6,
                "may_keep": choice.may_keep,
                "may_make": choice.may_make,
            }
            for choice in plan.choices
        ],
    }
