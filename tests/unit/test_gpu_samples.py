"""Sampling drivers that know less, answer late, or lose a GPU in the middle."""

from __future__ import annotations

from ctypes import byref
from dataclasses import fields
from pathlib import Path
from typing import Any

import pynvml
import pytest
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.nvml.calls import compute_profile, discover_profiles
from allotment_spawner.gpu.nvml.events import XidWatcher
from allotment_spawner.gpu.nvml.gauges import PcieMeter
from allotment_spawner.gpu.nvml.gpm import GpmMeter
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.nvml.reasons import clock_reasons
from allotment_spawner.gpu.nvml.samples import Sampler
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import StateFile

UNKNOWN_BY = {
    "nvmlDeviceGetUtilizationRates": ("sm_percent", "memory_bandwidth_percent"),
    "nvmlDeviceGetMemoryInfo": ("memory_used_bytes", "memory_total_bytes"),
    "nvmlDeviceGetPowerUsage": ("power_w",),
    "nvmlDeviceGetTotalEnergyConsumption": ("energy_j",),
    "nvmlDeviceGetTemperatureV": ("temperature_c",),
    "nvmlDeviceGetClockInfo": ("sm_clock_hz",),
    "nvmlDeviceGetPcieThroughput": ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"),
    "nvmlDeviceGetCurrentClocksEventReasons": ("clock_reasons",),
    "nvmlDeviceGetTotalEccErrors": ("ecc_corrected", "ecc_uncorrected"),
    "nvmlDeviceGetComputeRunningProcesses": ("processes",),
    "nvmlDeviceRegisterEvents": ("xids",),
}


class AnswersWith:
    """The simulator, with calls that answer something else: an NVML code, or what a function gives."""

    def __init__(self, nvml: Any, answers: dict[str, Any]) -> None:
        self._nvml = nvml
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name not in self._answers:
            return getattr(self._nvml, name)
        answer = self._answers[name]
        if callable(answer):
            return answer

        def fails(*_arguments: object, **_named: object) -> None:
            raise pynvml.NVMLError(answer)

        return fails


def simulated(folder: Path, spec: str) -> Any:
    state = StateFile(folder / "sim.json")
    state.create(spec)
    nvml = SimulatedNvml(state=state)
    nvml.nvmlInit()
    return nvml


def sampler_of(nvml: Any) -> Sampler:
    reader = NvmlReader(nvml=nvml, node="n", boot_id=lambda: "b", simulated=True, owns=lambda *_: False)
    return Sampler(nvml=nvml, reader=reader, xids=XidWatcher(nvml=nvml), clock=lambda: 0.0)


def whole(nvml: Any) -> DeviceSample:
    (found, *_), unread = sampler_of(nvml).sample(0)
    assert unread == {}
    return found


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND])
@pytest.mark.parametrize("call", list(UNKNOWN_BY))
def test_what_a_driver_does_not_tell_is_unknown_and_nothing_else(
    tmp_path: Path, call: str, code: int
) -> None:
    nvml = AnswersWith(simulated(tmp_path, "sim:1xA100-80GB:whole"), {call: code})
    if call == "nvmlDeviceGetMemoryInfo":
        # Who the GPU is was read before its memory went quiet.
        sampler = sampler_of(nvml._nvml)
        sampler.sample(0)
        sampler._nvml = nvml
        (found,), _ = sampler.sample(0)
    else:
        found = whole(nvml)
    unknown = {f.name for f in fields(found) if getattr(found, f.name) is None}
    assert unknown == set(UNKNOWN_BY[call])


def test_a_gpu_that_is_lost_in_the_middle_is_unread(tmp_path: Path) -> None:
    nvml = AnswersWith(
        simulated(tmp_path, "sim:1xA100-80GB:whole"),
        {"nvmlDeviceGetTotalEnergyConsumption": pynvml.NVML_ERROR_GPU_IS_LOST},
    )
    devices, unread = sampler_of(nvml).sample(0)
    assert devices == ()
    [(uuid, why)] = unread.items()
    assert uuid.startswith("GPU-")
    assert "fallen off the bus" in why


def test_a_gpu_that_never_said_its_name_is_still_told(tmp_path: Path) -> None:
    nvml = AnswersWith(
        simulated(tmp_path, "sim:1xA100-80GB:whole"),
        {"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_UNKNOWN},
    )
    assert sampler_of(nvml).sample(0) == ((), {"GPU-unknown-0": "reading it failed with UNKNOWN"})


def test_older_drivers_know_older_names(tmp_path: Path) -> None:
    missing = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    nvml = AnswersWith(
        simulated(tmp_path, "sim:1xA100-80GB:whole"),
        {
            "nvmlDeviceGetTemperatureV": missing,
            "nvmlDeviceGetTemperature": lambda _board, _sensor: 51,
            "nvmlDeviceGetCurrentClocksEventReasons": missing,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _board: 0x204,
        },
    )
    found = whole(nvml)
    assert found.temperature_c == 51
    assert found.clock_reasons == ("sw_power_cap", "board_limit")


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, ()),
        (0x1, ("gpu_idle",)),
        (pynvml.nvmlClocksEventReasonHwThermalSlowdown, ("hw_thermal_slowdown",)),
        (pynvml.nvmlClocksThrottleReasonReliability | 0x8, ("hw_slowdown", "reliability")),
        (0x800 | 0x10, ("sync_boost", "bit_11")),
    ],
)
def test_reasons_have_words(mask: int, words: tuple[str, ...]) -> None:
    assert clock_reasons(mask) == words


def test_every_bit_that_nvml_names_has_a_word() -> None:
    everything = pynvml.nvmlClocksEventReasonAll | pynvml.nvmlClocksThrottleReasonAll
    assert not [word for word in clock_reasons(everything) if word.startswith("bit_")]


def test_pcie_counters_that_take_long_are_asked_rarely(tmp_path: Path) -> None:
    now = [0.0]
    asked: list[int] = []

    def slow(_board: Any, counter: int) -> int:
        asked.append(counter)
        now[0] += 0.06
        return 5

    nvml = AnswersWith(simulated(tmp_path, "sim:1xA100-80GB:whole"), {"nvmlDeviceGetPcieThroughput": slow})
    meter = PcieMeter(nvml=nvml, clock=lambda: now[0])
    answers = [meter.rates(None, "GPU-1") for _ in range(meter.REST + 1)]
    assert answers == [(5 * 1024.0, 5 * 1024.0), *[(None, None)] * (meter.REST - 1), (5 * 1024.0,) * 2]
    assert len(asked) == 4


def test_pcie_counters_of_normal_speed_are_asked_each_time(tmp_path: Path) -> None:
    now = [0.0]

    def normal(_board: Any, counter: int) -> int:
        now[0] += 0.02
        return counter

    nvml = AnswersWith(simulated(tmp_path, "sim:1xA100-80GB:whole"), {"nvmlDeviceGetPcieThroughput": normal})
    meter = PcieMeter(nvml=nvml, clock=lambda: now[0])
    assert [meter.rates(None, "GPU-1") for _ in range(20)] == [(1024.0, 0.0)] * 20


def test_a_hopper_gpu_whose_driver_refuses_gpm_is_told_by_its_rates(tmp_path: Path) -> None:
    nvml = AnswersWith(
        simulated(tmp_path, "sim:1xH100:whole"), {"nvmlGpmSampleGet": pynvml.NVML_ERROR_NO_PERMISSION}
    )
    found = whole(nvml)
    assert (found.sm_percent, found.pcie_rx_bytes_per_s) == (0, 0)
    assert nvml._nvml._samples == {}


def test_a_gpm_metric_with_an_error_of_its_own_is_unknown(tmp_path: Path) -> None:
    inner = simulated(tmp_path, "sim:1xH100:whole")

    def partly(request: Any) -> Any:
        inner.nvmlGpmMetricsGet(request)
        request.metrics[0].value = float("nan")
        request.metrics[1].nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        request.metrics[2].value = 3.0
        return request

    now = [0.0]
    meter = GpmMeter(nvml=AnswersWith(inner, {"nvmlGpmMetricsGet": partly}), clock=lambda: now[0])
    board = inner.nvmlDeviceGetHandleByIndex(0)
    assert meter.read(board, "GPU-1", "GPU-1") is None
    now[0] = 5.0
    read = meter.read(board, "GPU-1", "GPU-1")
    assert read is not None
    assert (read.sm_percent, read.memory_bandwidth_percent) == (None, None)
    assert read.pcie_rx_bytes_per_s == 3 * (1 << 20)


@pytest.mark.parametrize("every_s", [1.0, 5.0, 61.0, 300.0])
def test_gpm_tells_at_every_pace_that_can_be_configured(tmp_path: Path, every_s: float) -> None:
    inner = simulated(tmp_path, "sim:1xH100:whole")
    now = [0.0]
    meter = GpmMeter(nvml=inner, clock=lambda: now[0])
    board = inner.nvmlDeviceGetHandleByIndex(0)
    assert meter.read(board, "GPU-1", "GPU-1") is None
    for late_s in (0.0, 2.0):
        now[0] += every_s + late_s
        assert meter.read(board, "GPU-1", "GPU-1") is not None
    now[0] += 3600
    assert meter.read(board, "GPU-1", "GPU-1") is None


def test_a_slice_that_goes_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    inner = simulated(tmp_path, "sim:1xA100-80GB:mig")
    board = inner.nvmlDeviceGetHandleByIndex(0)
    profile = next(p for p in discover_profiles(inner, board) if p.name == "1g.10gb")
    for start in (0, 1):
        place = pynvml.c_nvmlGpuInstancePlacement_t(start, 1)
        made = inner.nvmlDeviceCreateGpuInstanceWithPlacement(board, profile.profile_id, byref(place))
        inner.nvmlGpuInstanceCreateComputeInstance(made, compute_profile(inner, made))

    def goes(handle: Any) -> int:
        number = int(inner.nvmlDeviceGetGpuInstanceId(handle))
        if number == 7:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return number

    devices, unread = sampler_of(AnswersWith(inner, {"nvmlDeviceGetGpuInstanceId": goes})).sample(0)
    assert unread == {}
    assert len(devices) == 2
