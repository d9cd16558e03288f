"""A schedule that asks of a kernel or a target what it cannot do is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnc.driver import compile_spec
from attnc.errors import AttncError
from attnc.spec import parse_spec
from attnc.spec.tuned import parse_tuned

BODY = "name: t\nheads: 2\nhead_dim: 64\n"
SKEW = """\
spec.yaml:5:18: spec/cannot-choose no loop of forward of t can make scores ahead
    5 | schedule: {skew: true}
      |                  ^^^^
  help: only a loop without a mask can, and where the scores meet nothing but the softmax; \
remove skew"""
TMA = """\
spec.yaml:5:27: spec/cannot-choose no loop of backward_rows of t can read by tensor descriptors
    5 | schedule: {backward_rows: {tma: true}}
      |                           ^^^^^^^^^^^
  help: only rows of q, k, v and grad_out can that lie between two bounds, in a loop that serves \
one head; remove tma"""
LAST = """\
spec.yaml:5:24: spec/cannot-choose no loop of forward of t can tell its tiles apart
    5 | schedule: {last_first: true}
      |                        ^^^^
  help: all tiles of the kernel visit the same range, whatever comes first; remove last_first"""


@pytest.mark.parametrize(
    ("mask", "schedule", "message"),
    [
        ("(q_pos - kv_idx) % 5 == 0", "{skew: true}", SKEW),
        ("causal", "{backward_rows: {tma: true}}", TMA),
        ("true", "{last_first: true}", LAST),
    ],
)
def test_a_choice_that_no_loop_has_is_refused(mask: str, schedule: str, message: str) -> None:
    with pytest.raises(AttncError) as error:
        compile_spec(parse_spec(f"{BODY}mask: {mask}\nschedule: {schedule}\n"))
    assert str(error.value) == message


ROW = '"element_bytes": 2, "block_q": 64, "block_kv": 64, "warps": 4, "stages": 3'
TUNED = """\
user/cannot-choose the tuned schedule of forward on sm_80 asks for tma, but that target has none \
in hardware
  help: remove tma from that row of t.tuned.json"""


def test_a_tuned_row_for_a_target_without_descriptors_is_refused() -> None:
    spec = parse_spec(BODY)
    rows = '{{"schedules": [{{"target": "{}", "kernel": "forward", {}, "tma": true}}]}}'
    with pytest.raises(AttncError) as error:
        compile_spec(replace(spec, tuned=parse_tuned(rows.format("sm_80", ROW))))
    assert str(error.value) == TUNED
    made = compile_spec(replace(spec, tuned=parse_tuned(rows.format("sm_90", ROW))))
    assert made.module.source.count('"tma": True') == 1


def test_a_spec_that_asks_for_descriptors_gets_them_where_hardware_has_them() -> None:
    source = compile_spec(parse_spec(BODY + "schedule: {tma: true}\n")).module.source
    rows = [line for line in source.splitlines() if '"forward"): {' in line]
    with_tma = {line.split('"')[1] for line in rows if '"tma": True' in line}
    assert with_tma == {"sm_90", "sm_100", "sm_120"}
