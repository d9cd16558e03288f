"""Refuse, by name, what a schedule asks of a kernel that has no such choice."""

from __future__ import annotations

from collections.abc import Mapping

from attnc.errors import SpecError, UserError
from attnc.graph.operations import Dataflow
from attnc.ir.choices import choices_of
from attnc.ir.interface import CHOICES
from attnc.ir.nodes import Program
from attnc.plan.interface import asked_schedule
from attnc.source import Span
from attnc.targets import find_target

WHAT = {
    "skew": "make scores ahead",
    "tma": "read by tensor descriptors",
    "last_first": "tell its tiles apart",
}
WHERE = {
    "skew": "only a loop without a mask can, and where the scores meet nothing but the softmax",
    "tma": "only rows of q, k, v and grad_out can that lie between two bounds, in a loop that "
    "serves one head",
    "last_first": "all tiles of the kernel visit the same range, whatever comes first",
}


class CannotChoose(SpecError):
    """The schedule asks of a kernel what none of its loops can do."""

    code = "spec/cannot-choose"
    message = "no loop of {kernel} of {name} can {what}"
    help = "{where}; remove {choice}"


class CannotTune(UserError):
    """A tuned schedule asks of a kernel or a target what it cannot do."""

    code = "user/cannot-choose"
    message = "the tuned schedule of {kernel} on {target} asks for {choice}, but {why}"
    help = "remove {choice} from that row of {name}.tuned.json"


def check_choices(flow: Dataflow, program: Program) -> None:
    """Raise CannotChoose or CannotTune at the first schedule that asks too much."""
    spec = flow.spec
    able = {kernel.name: {*choices_of(kernel)} for kernel in program.kernels}
    for kernel, made in able.items():
        asked = asked_schedule(spec.schedule, kernel)
        for choice in CHOICES:
            if asked.get(choice) == (True,) and choice not in made:
                facts = {"kernel": kernel, "name": spec.name, "choice": choice}
                facts |= {"what": WHAT[choice], "where": WHERE[choice]}
                raise CannotChoose(_where(spec.spans, kernel, choice), **facts)
    for row in spec.tuned.rows if spec.tuned else ():
        for choice in CHOICES:
            why = _why_not(row.target, choice, choice in able.get(row.kernel, {choice}))
            if row.schedule.get(choice) and why:
                facts = {"kernel": row.kernel, "target": row.target, "choice": choice}
                raise CannotTune(**facts, name=spec.name, why=why)


def _where(spans: Mapping[str, Span], kernel: str, choice: str) -> Span:
    keys = (f"schedule.{kernel}", f"schedule.{choice}", "schedule")
    return next(spans[key] for key in keys if key in spans)


def _why_not(target: str, choice: str, is_able: bool) -> str:
    if not is_able:
        return f"no loop of it can {WHAT[choice]}"
    if choice == "tma" and not find_target(target).has_descriptors:
        return "that target has none in hardware"
    return ""
