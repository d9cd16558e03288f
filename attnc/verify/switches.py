"""A program for each choice of its switches: what codegen compiles apart is judged apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from sympy import false, true

from attnc.ir.nodes import Kernel, Program
from attnc.ir.rebuild import map_stmt, prune, substitution
from attnc.spec.schema import AttentionSpec
from attnc.verify.interpreted import forward_of

# switch: what a call without it is like: that of a spec without the feature
SWITCHES: Mapping[str, tuple[str, str]] = {
    "has_dropout_seed": ("dropout", "dropout_seed"),
    "keep": ("backward", "a gradient"),
}


def settled(spec: AttentionSpec, program: Program) -> Iterator[tuple[str, AttentionSpec, Program]]:
    """Programs without switches, the calls that they are for, and the spec of these calls.

    A call without a seed is that of a spec without dropout; one without a gradient, where that
    matters, of a spec without a backward, and runs the forward alone.
    """
    names = {scalar.name for kernel in program.kernels for scalar in kernel.scalars}
    used = [name for name in SWITCHES if name in names]
    for choice in product((True, False), repeat=len(used)):
        settings = dict(zip(used, choice, strict=True))
        features: dict[str, Any] = {SWITCHES[name][0]: on for name, on in settings.items()}
        kernels = tuple(_settled(kernel, settings) for kernel in program.kernels)
        words = [f"{'with' if on else 'without'} {SWITCHES[n][1]}" for n, on in settings.items()]
        meant, variant = replace(spec, **features), replace(program, kernels=kernels)
        yield ", ".join(words), meant, variant if meant.backward else forward_of(variant)


def _settled(kernel: Kernel, settings: Mapping[str, bool]) -> Kernel:
    change = substitution({name: true if on else false for name, on in settings.items()})
    return prune(replace(kernel, body=tuple(map_stmt(stmt, change) for stmt in kernel.body)))
