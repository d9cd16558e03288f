"""What the generated module will offer, taken from the spec that the dataflow came from."""

from __future__ import annotations

from attnc.graph.operations import Dataflow
from attnc.ir.interface import Interface, ParamArgument, Schedule, ScheduleRow, TensorArgument

DTYPES = {
    "fp32": "f32",
    "fp16": "f16",
    "bf16": "bf16",
    "int32": "i32",
    "int64": "i64",
    "bool": "i1",
}


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
        backward=spec.backward,
        schedules=(
            ScheduleRow("sm_80", 2, Schedule(128, 64, 8, 3)),
            ScheduleRow("sm_80", 4, Schedule(64, 32, 4, 2)),
        ),
    )
