"""Which row of the schedule table a device takes, without the device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tests.faults.judge import Build


def chosen(build: Build, element_bytes: int = 2) -> list[int]:
    return build("").module.default_schedule.__wrapped__(
        "forward", torch.device("cuda"), element_bytes
    )


def row(build: Build, name: str, element_bytes: int = 2) -> list[int]:
    module = build("").module
    found = module.SCHEDULES[name, element_bytes, "forward"]
    return [found.get(field, False) for field in module.FIELDS]


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"),
        ((9, 0), "sm_90"), ((10, 3), "sm_100"), ((12, 1), "sm_120"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_a_device_takes_its_own_row_or_the_nearest_older_one(
    build: Build,
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    name: str,
    element_bytes: int,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert chosen(build, element_bytes) == row(build, name, element_bytes)


@pytest.mark.parametrize(
    ("arch", "name"), [("gfx942:sramecc+:xnack-", "gfx942"), ("gfx950", "gfx950")]
)
def test_an_amd_device_is_known_by_its_architecture(
    build: Build, monkeypatch: pytest.MonkeyPatch, arch: str, name: str
) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=arch)
    )
    assert chosen(build) == row(build, name)


@pytest.mark.parametrize(
    ("capability", "arch"), [((7, 5), None), (None, "gfx90a")], ids=["sm_75", "gfx90a"]
)
def test_a_device_older_than_all_rows_is_refused_by_name(
    build: Build,
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int] | None,
    arch: str | None,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", "7.0" if arch else None)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=arch)
    )
    with pytest.raises(RuntimeError) as caught:
        chosen(build)
    assert str(caught.value) == (
        f"sample: no schedule for {arch or 'sm_75'}; give one by `schedule`, "
        "or add a row to SCHEDULES"
    )
