"""One tuning: a compiled spec, a device, and how much may be spent on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from attnc.commands.kernel_shapes import kernel_shapes
from attnc.commands.meter import Meter
from attnc.devices import Device
from attnc.driver import Compilation
from attnc.explain.launches import launch_of
from attnc.explain.situation import situation_of
from attnc.runtime.loader import load_text
from attnc.targets import find_target
from attnc.tune.here import driver
from attnc.tune.measure import Bench, device_stopwatch, measured
from attnc.tune.operands import DTYPES, operands_of
from attnc.tune.parallel import Source
from attnc.tune.predict import Prediction, predict
from attnc.tune.records import Record
from attnc.tune.resources import KernelResources
from attnc.tune.search import search
from attnc.verify.cases import Case
from attnc.verify.source_parts import kernels_hash

SHARE = 0.2  # seconds of repetitions of one measurement


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is tuned.

    candidates: schedules compiled, of all kernels together.  seconds: of measuring.  is_here:
    whether the device is in this machine.
    """

    made: Compilation
    device: Device
    candidates: int
    seconds: float
    is_here: bool

    @property
    def key(self) -> Mapping[str, Any]:
        """Everything that what is found depends on."""
        spec = self.made.spec
        return {
            "name": spec.name,
            "kernels": kernels_hash(self.made.module.source),
            "device": self.device.name,
            "dtype": spec.dtype,
            "sizes": [spec.sizes.batch, spec.sizes.q_len, spec.sizes.kv_len],
            "candidates": self.candidates,
            "driver": driver() if self.is_here else "",
            **{name: metadata.version(name) for name in ("triton", "torch")},
        }

    def find(self, progress: Meter) -> Record:
        """Compile and predict; on the device, measure the best."""
        spec, text = self.made.spec, self.made.module.source
        found = search(
            Source(text, spec.name, operands_of(spec), self.device.target, spec.dtype),
            kernel_shapes(spec, self.made.program, self.device.target),
            find_target(self.device.target),
            self._predict,
            element_bytes=self._element_bytes,
            most=self.candidates,
            workers=os.cpu_count() or 1,
            progress=progress,
        )
        if self.is_here:
            module = load_text(text, spec.name, interpret=False)
            bench = Bench(spec, module, "cuda", spec.dtype, device_stopwatch(SHARE))
            found = measured(bench, found, self._case(), self.seconds, progress)
        return Record(self.key, found)

    @property
    def _element_bytes(self) -> int:
        return DTYPES[self.made.spec.dtype].itemsize

    def _predict(self, code: KernelResources) -> Prediction:
        """What a compiled kernel takes at the spec's nominal sizes."""
        kernel = next(k for k in self.made.program.kernels if k.name == code.kernel)
        tile = dict(code.schedule)
        situation = situation_of(self.made.spec)
        work = launch_of(
            kernel,
            situation,
            tile["block_q"],
            tile["block_kv"],
            self._element_bytes,
            last_first=bool(tile.get("last_first")),
        )
        return predict(code, self.device, work)

    def _case(self) -> Case:
        """A call at the spec's nominal sizes."""
        spec, now = self.made.spec, situation_of(self.made.spec)
        params = tuple(now.params.items())
        lengths = (now.batch, spec.heads_kv, now.q_len, now.kv_len)
        return Case("nominal", *lengths, spec.dtype, params=params)
