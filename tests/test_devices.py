"""The table of devices: complete, consistent with the targets, each figure with its source."""

from __future__ import annotations

import pytest

from attnc.devices import DEVICES, MULTIPROCESSORS, UnknownDevice, find_device
from attnc.targets import TARGETS

# What the data sheets give as the peak of dense fp16 products with float32 sums, in TFLOP/s.
PEAKS = {
    "t4": 65, "a100": 312, "a10": 125, "a40": 149.7, "l4": 121, "l40s": 362, "rtx4090": 165.2,
    "h100": 989.4, "h100_pcie": 756, "h200": 989.4, "b200": 2250, "mi300x": 1307.4,
    "mi355x": 2516.6,
}  # fmt: skip


@pytest.mark.parametrize("name", PEAKS)
def test_the_rates_give_the_peak_of_the_data_sheet(name: str) -> None:
    assert find_device(name).tensor_tflops == pytest.approx(PEAKS[name], rel=0.005)


def test_every_class_has_a_device_and_its_name_stands_for_the_first() -> None:
    assert set(MULTIPROCESSORS) == {target.name for target in TARGETS}
    for target in TARGETS:
        first = next(one for one in DEVICES if one.target == target.name)
        assert find_device(target.name) is first


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_block_may_use_no_more_than_a_multiprocessor_has(target) -> None:
    whole = MULTIPROCESSORS[target.name]
    assert target.shared_bytes <= whole.shared_bytes - whole.shared_reserved
    assert target.max_warps <= whole.max_warps
    assert whole.registers == target.registers


def test_names_are_unique_and_every_row_has_a_source() -> None:
    assert len({one.name for one in DEVICES}) == len(DEVICES)
    assert all(len(one.source) > 20 for one in DEVICES)


@pytest.mark.parametrize("name", ["H100-PCIe", "h100 pcie", " h100_pcie "])
def test_case_and_dashes_are_free(name: str) -> None:
    assert find_device(name).name == "h100_pcie"


def test_an_unknown_device_is_refused_with_names_that_look_alike() -> None:
    known = ", ".join(one.name for one in DEVICES)
    with pytest.raises(UnknownDevice) as caught:
        find_device("h20")
    assert str(caught.value) == (
        "user/unknown-device no device is called 'h20'\n"
        f"  help: did you mean h200? known devices: {known}"
    )
    with pytest.raises(UnknownDevice) as caught:
        find_device("tpu")
    assert str(caught.value).endswith(f"\n  help: known devices: {known}")
