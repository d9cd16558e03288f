"""Keep Triton's interpreter inside the modules that asked for it.

Three faults of the interpreter are contained here (Triton 3.6 to 3.9):
* `tl.max` and the rest of Triton's library are decorated when triton is imported, for the
  compiler or for the interpreter, and serve only that one.  Here they learn to serve both.
* It patches `triton.language` while it runs and does not put all of it back, so that a kernel
  compiled afterwards fails.  Here everything it may touch is noted before a launch and restored
  after it.
* What it patches, and its one builder, belong to the process, not to a thread. Here one launch
  waits for another.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import JITFunction

from attnc.runtime.accesses import observed

_launching = threading.RLock()


class ContainedFunction(InterpretedFunction):
    """An interpreted kernel that leaves no trace in triton.language."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch, as Triton does."""
        with _launching, _language_restored(), observed(*args, *kwargs.values()):
            return super().run(*args, grid=grid, warmup=warmup, **kwargs)


class LibraryFunction(JITFunction):
    """A function of Triton's own library that compiled and interpreted kernels may call alike."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Interpret; the compiler reads a function's source and never calls it."""
        return _interpreted(self.fn)(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind to a tensor of the interpreter, as in x.sum(0); the compiler wants it unbound."""
        if isinstance(getattr(instance, "handle", None), TensorHandle):
            return functools.partial(self, instance)
        return self


def contain(module: ModuleType) -> None:
    """Make the interpreted kernels of `module` independent of how triton itself was imported."""
    widen_library()
    for value in vars(module).values():
        if type(value) is InterpretedFunction:
            value.__class__ = ContainedFunction


@functools.cache
def widen_library() -> None:
    """Turn Triton's library functions, whichever kind they are, into ones that serve both kinds."""
    for module in _library():
        for name, value in list(vars(module).items()):
            if type(value) is JITFunction:
                value.__class__ = LibraryFunction
            elif type(value) is InterpretedFunction:
                setattr(module, name, _compilable(value.fn))
    for name, value in list(vars(tl.tensor).items()):
        twin = getattr(tl.standard, name, None)
        if isinstance(twin, LibraryFunction) and not isinstance(value, JITFunction):
            setattr(tl.tensor, name, twin)


@functools.cache
def _interpreted(fn: Callable[..., Any]) -> InterpretedFunction:
    return InterpretedFunction(fn)


@functools.cache
def _compilable(fn: Callable[..., Any]) -> LibraryFunction:
    return LibraryFunction(fn)


def _library() -> tuple[ModuleType, ...]:
    return tuple(
        module
        for name, module in list(sys.modules.items())
        if name.startswith("triton.language") and isinstance(module, ModuleType)
    )


@contextlib.contextmanager
def _language_restored() -> Iterator[None]:
    classes = ("tensor", "tensor_descriptor_base", "dtype")  # not every Triton has them all
    places = (*_library(), *(getattr(tl.core, name) for name in classes if hasattr(tl.core, name)))
    before = [dict(vars(place)) for place in places]
    try:
        yield
    finally:
        for place, content in zip(places, before, strict=True):
            _restore(place, content)


def _restore(place: Any, content: dict[str, Any]) -> None:
    # names that are new stay: the interpreter hands its rewritten functions their globals that way
    now = dict(vars(place))
    for name, value in content.items():
        if now.get(name) is not value:
            setattr(place, name, value)
