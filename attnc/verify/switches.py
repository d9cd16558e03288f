"""A program for each choice of its switches: what codegen compiles apart is judged apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sympy import false, true

from attnc.ir.nodes import Kernel, Program
from attnc.ir.rebuild import map_stmt, prune, substitution
from attnc.spec.schema import AttentionSpec


def settled(spec: AttentionSpec, program: Program) -> Iterator[tuple[str, AttentionSpec, Program]]:
    """Programs without switches, the calls that they are for, and the spec of these calls.

    A call without a seed is that of a spec without dropout.
    """
    if not spec.dropout:
        yield "", spec, program
        return
    for given, said in ((True, "with dropout_seed"), (False, "without dropout_seed")):
        kernels = tuple(_settled(kernel, given) for kernel in program.kernels)
        yield said, replace(spec, dropout=given), replace(program, kernels=kernels)


def _settled(kernel: Kernel, given: bool) -> Kernel:
    change = substitution({"has_dropout_seed": true if given else false})
    return prune(replace(kernel, body=tuple(map_stmt(stmt, change) for stmt in kernel.body)))
