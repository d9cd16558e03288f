"""Which of the known devices is in this machine."""

from __future__ import annotations

import torch

from attnc.devices import DEVICES, Device


def device_here() -> Device | None:
    """The device that torch sees first; None where it sees none, or none that is in the table.

    Names are compared by their words: "NVIDIA GeForce RTX 4090" holds rtx4090, "NVIDIA H200" h200.
    Of several that match (h100, h100_pcie) the longest does.
    """
    if not torch.cuda.is_available():
        return None
    seen = _plain(torch.cuda.get_device_name(0))
    matching = [one for one in DEVICES if _plain(one.name) in seen]
    return max(matching, key=lambda one: len(one.name), default=None)


def driver() -> str:
    """The version of the driver, where torch tells it, and of what torch was built for."""
    ask = getattr(torch._C, "_cuda_getDriverVersion", None)
    built = torch.version.cuda or torch.version.hip
    return f"{ask() if ask else 'unknown'}, built for {built}"


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
