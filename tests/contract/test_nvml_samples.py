"""What sampling relies on, asked of the simulator and, where a driver answers, of the real module.

The real one is only read: nothing here changes a device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from ctypes import byref
from pathlib import Path
from typing import Any

import pynvml
import pytest
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.nvml.calls import compute_profile, discover_profiles, instances
from allotment_spawner.gpu.nvml.events import XidWatcher
from allotment_spawner.gpu.nvml.gpm import GpmMeter
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.nvml.samples import Sampler
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import StateFile

SPEC = "sim:1xA100-80GB:mig,1xH100:mig,1xH100:whole,1xA30:whole,1xB200:mig,1xRTX-PRO-6000:whole"
APART_S = 0.25
PARENT_ONLY = (
    "power_w",
    "energy_j",
    "temperature_c",
    "sm_clock_hz",
    "clock_reasons",
    "ecc_corrected",
    "xids",
)


def simulated(folder: Path) -> Any:
    """Each board in MIG mode has one slice, cut as somebody else would."""
    state = StateFile(folder / "sim.json")
    state.create(SPEC)
    nvml: Any = SimulatedNvml(state=state)
    nvml.nvmlInit()
    for gpu in range(nvml.nvmlDeviceGetCount()):
        board = nvml.nvmlDeviceGetHandleByIndex(gpu)
        if nvml.nvmlDeviceGetMigMode(board)[0]:
            profile = discover_profiles(nvml, board)[0]
            place = nvml.c_nvmlGpuInstancePlacement_t(profile.starts[-1], profile.size)
            made = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(board, profile.profile_id, byref(place))
            nvml.nvmlGpuInstanceCreateComputeInstance(made, compute_profile(nvml, made))
    return nvml


@pytest.fixture(params=["simulator", pytest.param("real", marks=pytest.mark.gpu)])
def nvml(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    module = pynvml if request.param == "real" else simulated(tmp_path)
    module.nvmlInit()
    yield module
    module.nvmlShutdown()


def sampler_of(nvml: Any) -> Sampler:
    reader = NvmlReader(nvml=nvml, node="n", boot_id=lambda: "b", simulated=False, owns=lambda *_: False)
    return Sampler(nvml=nvml, reader=reader, xids=XidWatcher(nvml=nvml))


def all_of(sampler: Sampler) -> list[tuple[DeviceSample, ...]]:
    """Of each board, the board itself first."""
    found = [sampler.sample(index) for index in range(sampler.count())]
    assert [unread for _, unread in found] == [{}] * len(found)
    return [devices for devices, _ in found]


@pytest.fixture
def twice(nvml: Any) -> list[tuple[list[DeviceSample], list[DeviceSample]]]:
    """Of each board, two samples far enough apart for GPM."""
    sampler = sampler_of(nvml)
    first = all_of(sampler)
    time.sleep(APART_S)  # NVML's own counters: no event says that enough time has passed
    return [(list(a), list(b)) for a, b in zip(first, all_of(sampler), strict=True)]


def test_every_board_is_told_with_its_slices(nvml: Any) -> None:
    for index, (whole, *slices) in enumerate(all_of(sampler_of(nvml))):
        board = nvml.nvmlDeviceGetHandleByIndex(index)
        assert whole.gpu_uuid == whole.device_uuid == nvml.nvmlDeviceGetUUID(board)
        mig = _mig(nvml, board)
        present = instances(nvml, board, discover_profiles(nvml, board)) if mig else []
        assert sorted(s.device_uuid for s in slices) == sorted(i.computes[0][2] for i in present)
        assert {s.gpu_uuid for s in slices} <= {whole.gpu_uuid}


def _mig(nvml: Any, board: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(board)[0])
    except nvml.NVMLError_NotSupported:
        return False


def test_values_are_in_our_units(nvml: Any) -> None:
    for devices in all_of(sampler_of(nvml)):
        for sample in devices:
            assert sample.memory_total_bytes is not None
            assert sample.memory_used_bytes is not None
            assert 1 << 30 < sample.memory_total_bytes < 1 << 40
            assert 0 <= sample.memory_used_bytes <= sample.memory_total_bytes
            assert sample.processes is None or sample.processes >= 0
        whole = devices[0]
        assert whole.power_w is None or 1 < whole.power_w < 3000
        assert whole.temperature_c is None or 0 < whole.temperature_c < 130
        assert whole.sm_clock_hz is None or 10e6 <= whole.sm_clock_hz < 5e9
        assert whole.clock_reasons is None or all(reason.islower() for reason in whole.clock_reasons)
        assert whole.pcie_rx_bytes_per_s is None or 0 <= whole.pcie_rx_bytes_per_s < 1e12


def test_counters_only_grow(twice: list[tuple[list[DeviceSample], list[DeviceSample]]]) -> None:
    for (before, *_), (after, *_) in twice:
        for member in ("energy_j", "ecc_corrected", "ecc_uncorrected"):
            old, new = getattr(before, member), getattr(after, member)
            assert (old is None) == (new is None)
            assert old is None or new >= old


def test_percents_are_percents_and_gpm_tells_from_the_second_sample_on(
    nvml: Any, twice: list[tuple[list[DeviceSample], list[DeviceSample]]]
) -> None:
    meter = GpmMeter(nvml=nvml)
    for index, (before, after) in enumerate(twice):
        board = nvml.nvmlDeviceGetHandleByIndex(index)
        gpm, mig = meter.supported(board, after[0].gpu_uuid), _mig(nvml, board)
        for old, new in zip(before, after, strict=True):
            for value in (new.sm_percent, new.memory_bandwidth_percent):
                assert value is None or 0 <= value <= 100
            parent = mig and new is after[0]
            if parent or (mig and not gpm):
                assert new.sm_percent is None
                assert new.memory_bandwidth_percent is None
            else:
                assert new.sm_percent is not None
            if gpm:
                assert old.sm_percent is None


def test_a_slice_is_not_given_what_is_its_gpu_s(nvml: Any) -> None:
    for _, *slices in all_of(sampler_of(nvml)):
        for sample in slices:
            assert [getattr(sample, member) for member in PARENT_ONLY] == [None] * len(PARENT_ONLY)


def test_events_can_be_heard_without_waiting(nvml: Any) -> None:
    sampler = sampler_of(nvml)
    all_of(sampler)
    for whole, *_ in all_of(sampler):
        assert whole.xids in (None, ())


def test_one_gpu_s_reading_is_short(nvml: Any) -> None:
    """Two calls for PCIe count for 20 ms each; everything together must not hold up a change of slices."""
    sampler = sampler_of(nvml)
    all_of(sampler)
    for index in range(sampler.count()):
        began = time.monotonic()
        sampler.sample(index)
        assert time.monotonic() - began < 2
