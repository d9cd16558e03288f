"""The corridor, on one screen: a spec goes in, a generated module comes out.

spec text -> AttentionSpec -> Dataflow -> naive Program -> ready Program -> Triton
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attnc.artifact import GeneratedModule, sealed
from attnc.codegen.render import render
from attnc.errors import AttncError
from attnc.graph.forward import build_dataflow
from attnc.graph.gradient_kernels import add_backward
from attnc.graph.operations import Dataflow
from attnc.ir.nodes import Program
from attnc.ir.printer import print_ir
from attnc.passes.order import PIPELINE
from attnc.plan.choices import check_choices
from attnc.plan.loops import plan_program
from attnc.spec import read_spec
from attnc.spec.schema import AttentionSpec


@dataclass(frozen=True, slots=True)
class Compilation:
    """A spec and everything the corridor made of it."""

    spec: AttentionSpec
    flow: Dataflow
    program: Program  # READY
    module: GeneratedModule


def compile_path(path: Path) -> GeneratedModule:
    """Compile the spec in a file."""
    return compile_spec(read_spec(path)).module


def compile_spec(spec: AttentionSpec) -> Compilation:
    """Walk the corridor once."""
    flow = _dataflow(spec)  # AttentionSpec -> Dataflow
    program = plan_program(flow)  # Dataflow      -> naive Program
    with _shown_when_it_breaks(program):
        program = PIPELINE.run(program)  # naive  -> ready Program
    check_choices(flow, program)
    with _shown_when_it_breaks(program):
        module = sealed(render(program))  # ready Program -> Triton
    return Compilation(spec, flow, program, module)


def _dataflow(spec: AttentionSpec) -> Dataflow:
    """The forward, and where the spec asks for it the backward."""
    flow = build_dataflow(spec)
    return add_backward(flow) if spec.backward else flow


def lower_spec(spec: AttentionSpec) -> Program:
    """Walk the corridor up to the READY program; `explain` needs no more."""
    return PIPELINE.run(plan_program(_dataflow(spec)))


def trace_passes(spec: AttentionSpec) -> dict[str, str]:
    """Print the program as planned and after each pass, in order, by the pass's name."""
    texts: dict[str, str] = {}

    def observe(name: str, program: Program) -> None:
        texts[name] = print_ir(program)

    PIPELINE.run(plan_program(_dataflow(spec)), observe)
    return texts


@contextmanager
def _shown_when_it_breaks(program: Program) -> Iterator[None]:
    """Our own bugs fly as they are, with the program they broke on as a note."""
    try:
        yield
    except AttncError:
        raise
    except Exception as error:
        error.add_note(print_ir(program))
        raise
