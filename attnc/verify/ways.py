"""Call a module's attention by every way that leads into it.

The kernels run in Triton's interpreter or on a GPU.  A CPU tensor outside the interpreter takes the
dense path, `reference(...)` is called by its name, and torch.compile sees the operator's fake
alone.  An edited file may do anything on any of them: what it raises is a failure of that file,
an exit from Python included, and never the end of the judge.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NoReturn
from unittest import mock

import numpy as np
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch._subclasses.fake_tensor import FakeTensorMode

from attnc.runtime.accesses import Launch, refuse_stray_accesses, stop_at_launch
from attnc.verify.cases import Case
from attnc.verify.far_memory import far_strides, wide_strides
from attnc.verify.guards import watch
from attnc.verify.reference import Call

KERNEL_WAYS = ("interpreter", "cuda")
TOO_MANY = "a grid holds"  # words of a refusal that is about the grid


class Misbehaved(Exception):
    """What a judged file raised, by name and first line."""


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Turn whatever a judged file raises into Misbehaved; only the user's interrupt flies on."""
    try:
        with mock.patch.object(os, "_exit", _exit_seen(os.getpid(), os._exit)):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit(0) would end the judge with a good status
        first_line = (str(error).splitlines() or [""])[0][:200]
        raise Misbehaved(f"{type(error).__name__}: {first_line}") from error


def _exit_seen(judge: int, leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """os._exit as an exit that can be caught; a child of the judge leaves as it would."""
    return lambda status: sys.exit(status) if os.getpid() == judge else leave(status)


@dataclass(frozen=True, slots=True)
class Way:
    """A way into a loaded module.

    name: interpreter (loaded with interpret=True) | cuda | cpu | reference (loaded without).
    """

    module: ModuleType
    name: str

    @property
    def device(self) -> str:
        """Where its tensors lie."""
        return "cuda" if self.name == "cuda" else "cpu"

    @property
    def has_fake(self) -> bool:
        """Whether torch.compile would see an operator with a fake instead of the code itself."""
        operators = (
            value for value in vars(self.module).values() if isinstance(value, CustomOpDef)
        )
        return self.name != "reference" and any(operators)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a module returned for a call."""

    out: Tensor
    aux: Mapping[str, Tensor]
    overrun: bool = False

    @property
    def lse(self) -> Tensor | None:
        """The log of each row's sum, where the spec offers it."""
        return self.aux.get("lse")

    @property
    def results(self) -> dict[str, Tensor]:
        """Its tensors by name."""
        return {"out": self.out, **self.aux}


def run(way: Way, call: Call, case: Case) -> Answer:
    """Call a module, with the extra outputs that the spec offers.

    Raises: Misbehaved.
    """

    def lay(shape: Sequence[int]) -> Sequence[int] | None:
        return strides_of(shape, case.storage, call.spec.layout)

    with contained(), watch(lay) as watched, refuse_stray_accesses(), quiet():
        answer = ask(way, call.tensors, call, case)
    return Answer(answer.out, answer.aux, watched.overrun)


def launch_of(way: Way, call: Call) -> tuple[int, ...] | None:
    """The grid that a call would launch, empty if none; None where the module names it too large.

    Results take no memory, and no program runs.  Raises: Misbehaved, a refusal in other words too.
    """
    apart = mock.patch.object(way.module, "INTERPRETER_UPCASTS_BF16", False, create=True)
    case = Case("crowd", 0, 1, 1, 1, "fp16")  # no tiles of its own, and packed
    try:
        with contained(), watch(lambda shape: [0] * len(shape)), stop_at_launch(), apart:
            ask(way, call.tensors, call, case)
    except Misbehaved as error:
        match error.__cause__:
            case ValueError() as refusal if TOO_MANY in str(refusal):
                return None
            case Launch(grid=grid):
                return grid
            case _:
                raise
    return ()


def strides_of(shape: Sequence[int], storage: str, layout: str) -> Sequence[int] | None:
    """Where the elements of a result shall lie: out has 4 axes, lse 3, in one layout always."""
    name = {4: "out", 3: "lse"}.get(len(shape), "")
    if name and storage == "far":
        return far_strides(shape)
    if not name or storage != f"wide {name}":
        return None
    if layout == "bhsd" or len(shape) < 4:
        return wide_strides(shape)
    b, s, h, e = shape
    return [wide_strides((b, h, s, e))[axis] for axis in (0, 2, 1, 3)]


def run_fake(way: Way, call: Call, case: Case) -> Answer:
    """Call a module with tensors that have no content: its operator's fake answers.

    Raises: Misbehaved.
    """
    with contained(), FakeTensorMode() as mode:
        tensors = {name: mode.from_tensor(tensor) for name, tensor in call.tensors.items()}
        return ask(way, tensors, call, case)


def other_layout(fake: Answer, real: Answer) -> str:
    """Say how what a fake promised differs from what came; empty where it does not."""
    for name, tensor in real.results.items():
        promised, came = layout_of(fake.results[name]), layout_of(tensor)
        for what, value in came.items():
            if promised[what] != value:
                return f"{name} has {what} {value}, its fake {promised[what]}"
    return ""


def same_bits(one: Answer, other: Answer) -> bool:
    """Whether two answers are equal, NaN where the other has NaN."""
    return all(same_tensor(tensor, other.results[name]) for name, tensor in one.results.items())


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal, NaN where the other has NaN."""
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def layout_of(tensor: Tensor) -> dict[str, object]:
    """What a fake must promise of a tensor."""
    # the stride of an axis that no step is ever made along means nothing
    moves = tensor.numel() > 0
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    return {
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "device": tensor.device.type,
        "strides": [stride if size > 1 and moves else None for size, stride in strides],
    }


def ask(way: Way, tensors: Mapping[str, Tensor], call: Call, case: Case) -> Answer:
    """Call `attention` or `reference` as a user would."""
    options: dict[str, object] = {"scale": call.scale, "return_aux": bool(call.spec.outputs)}
    if call.dropout_p:
        options |= {"dropout_p": call.dropout_p, "dropout_seed": call.dropout_seed}
    if case.tiles and way.name != "reference":
        block_q, block_kv = case.tiles
        tile = {"block_q": block_q, "block_kv": block_kv, "warps": 4, "stages": 2}
        chosen = {name: made for name, made in _chosen(way.module, case.choices) if made}
        options["schedule"] = {**tile, **chosen.pop("forward", {}), **chosen}
    function = way.module.reference if way.name == "reference" else way.module.attention
    declared = {name: tensor for name, tensor in tensors.items() if name not in ("q", "k", "v")}
    result = function(*(tensors[name] for name in "qkv"), **declared, **call.params, **options)
    out, extra = result if call.spec.outputs else (result, None)
    aux = {name: getattr(extra, name) for name in call.spec.outputs}
    for tensor in (out, *aux.values()):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"returned {type(tensor).__name__} in place of a tensor")
    return Answer(out, aux)


def _chosen(module: ModuleType, choices: Iterable[str]) -> Iterator[tuple[str, dict[str, bool]]]:
    """For each kernel the fields that it has of these."""
    only = getattr(module, "CHOICES", {})
    for kernel in getattr(module, "KERNELS", ()):
        yield kernel, {name: True for name in choices if kernel in only.get(name, ())}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence numpy on infinities in the interpreter: the results speak for themselves."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
