"""How many blocks of a kernel a multiprocessor holds at once, and what keeps it from more.

Registers are given out by the warp, in units of 256, out of a quarter's share of them (AMD: by the
wave in units of 8 a lane, of a SIMD's).  Source: NVIDIA's cuda_occupancy.h; LLVM, AMDGPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnc.devices import Device

QUARTERS = 4
WARP_UNIT = {"nvidia": 256, "amd": 8 * 64}  # registers


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks that fit, and the resource that runs out first."""

    blocks: int
    limit: str  # registers | shared memory | warps | blocks


def occupancy_of(device: Device, registers: int, shared_bytes: int, warps: int) -> Occupancy:
    """Count resident blocks; registers: of a thread.  None fits where 0 is the answer."""
    sm = device.multiprocessor
    lanes = 64 if device.vendor == "amd" else 32
    unit = WARP_UNIT[device.vendor]
    of_warp = max(unit, -(-registers * lanes // unit) * unit)
    held = sm.registers // QUARTERS // of_warp * QUARTERS
    block_bytes = shared_bytes + sm.shared_reserved
    most = {
        "registers": held // warps,
        "shared memory": sm.shared_bytes // block_bytes if block_bytes else sm.max_blocks,
        "warps": sm.max_warps // warps,
        "blocks": sm.max_blocks,
    }
    limit = min(most, key=lambda name: most[name])
    return Occupancy(most[limit], limit)
