"""Run a generated module on its cases and hold every result against the dense reference."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from attnc.runtime.accesses import refuse_stray_accesses
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case, cases_for
from attnc.verify.guards import watch
from attnc.verify.inputs import DTYPES, build_call
from attnc.verify.reference import Call, dense
from attnc.verify.tolerance import Comparison, compare_lse, compare_out

Progress = Callable[[str], None]

INTERPRETER_CANNOT_SHOW = (
    "bf16 arithmetic (computed in float32 around the interpreter)",
    "TF32 products (always full float32)",
    "races between programs (they run one after another)",
    "shared memory, registers, warps and pipeline stages",
    "limits of the launch grid and of the smallest matrix product",
    "what a masked load without `other` returns (0 here; the source is scanned for it)",
    "a NaN score inside a row maximum (dropped here and on the GPU alike)",
)


@dataclass(frozen=True, slots=True)
class NumberRow:
    """One result of one case."""

    case: str
    dtype: str
    device: str  # interpreter | cuda
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Answer:
    """What a module returned for a call."""

    out: Tensor
    lse: Tensor | None
    overrun: bool


def compare_numbers(
    spec: AttentionSpec,
    module: ModuleType,
    *,
    device: str = "interpreter",
    cases: tuple[Case, ...] | None = None,
    progress: Progress | None = None,
) -> Iterator[NumberRow]:
    """Compare a loaded module with the reference, case by case; stop reading to stop working.

    device: `interpreter` for a module loaded with interpret=True, `cuda` for one loaded without.
    """
    for case in cases_for(spec) if cases is None else cases:
        title = _title(case)
        if progress:
            progress(f"{device}: {title}, {case.dtype}")
        for comparison in judge(spec, module, case, device):
            yield NumberRow(title, case.dtype, device, comparison)


def judge(
    spec: AttentionSpec, module: ModuleType, case: Case, device: str = "interpreter"
) -> list[Comparison]:
    """Run one case; whatever the module raises is a failure of the case."""
    call = build_call(spec, case)
    truth, plain = dense(call), dense(call, DTYPES[case.dtype])
    if case.cruel and (truth.out.isnan().any() or plain.out.isnan().any()):
        return [Comparison("out", note="the formula has no value on these inputs")]
    try:
        answer = run(module, _placed(spec, case, device), case)
    except Exception as error:  # a broken kernel may raise anything
        return [Comparison("out", problem=f"raised {type(error).__name__}: {_first_line(error)}")]
    results = [compare_out(answer.out.cpu(), truth, plain)]
    if answer.lse is not None:
        results.append(compare_lse(answer.lse.cpu(), truth, plain))
    if answer.overrun:  # a GPU does not refuse stray accesses
        results.append(Comparison("memory", problem="wrote outside its output"))
    if case.repeated:
        results += _repeat(spec, module, case, device, answer)
    return results


def run(module: ModuleType, call: Call, case: Case) -> Answer:
    """Call a module's attention, with lse where the spec offers it."""
    tensors = {name: tensor for name, tensor in call.tensors.items() if name not in "qkv"}
    options: dict[str, object] = {}
    if case.tiles:
        block_q, block_kv = case.tiles
        options["schedule"] = {"block_q": block_q, "block_kv": block_kv, "warps": 4, "stages": 2}
    wants_lse = "lse" in call.spec.outputs
    with watch() as watched, refuse_stray_accesses(), _quiet():
        result = module.attention(
            *(call.tensors[name] for name in "qkv"),
            **tensors,
            **call.params,
            **options,
            scale=call.scale,
            return_aux=wants_lse,
        )
        out, lse = (result[0], result[1].lse) if wants_lse else (result, None)
    return Answer(out, lse, watched.overrun)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence numpy on infinities in the interpreter: the results speak for themselves."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _repeat(
    spec: AttentionSpec, module: ModuleType, case: Case, device: str, first: Answer
) -> list[Comparison]:
    again = run(module, _placed(spec, case, device), case)
    clean = run(module, build_call(spec, case, poisoned=False, device=_torch_device(device)), case)
    problems = []
    if not torch.equal(again.out, first.out):
        problems.append(Comparison("out", problem="a second run gave other bits"))
    if not torch.equal(clean.out, first.out):
        problems.append(Comparison("out", problem="what nothing may see changed the result"))
    return problems


def _placed(spec: AttentionSpec, case: Case, device: str) -> Call:
    return build_call(spec, case, device=_torch_device(device))


def _torch_device(device: str) -> str:
    return "cpu" if device == "interpreter" else device


def _title(case: Case) -> str:
    heads = f"b{case.batch} g{case.heads_kv}"
    tiles = f" tiles {case.tiles[0]}x{case.tiles[1]}" if case.tiles else ""
    params = "".join(f" {name}={value:g}" for name, value in case.params)
    return f"{case.name} ({heads} {case.q_len}x{case.kv_len}{tiles}{params})"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
