"""What one GPU's driver says of memory, power, heat, clocks, PCIe and errors; None where it does not tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.nvml.calls import is_code
from allotment_spawner.gpu.nvml.reasons import clock_reasons

__all__ = ["PcieMeter", "ask", "memory", "read_gauges"]

_FATAL = ("GPU_IS_LOST", "UNINITIALIZED", "DRIVER_NOT_LOADED")
"""After these nothing else of this GPU is worth asking."""
_MHZ = 1_000_000
_KIB = 1024


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """What an NVML function answers; None where driver, card or rights do not give it.

    NOT_SUPPORTED is the normal answer of many cards and of MIG, so it is no error. NVMLError only when
    the whole GPU is gone.
    """
    call = getattr(nvml, name, None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if is_code(error, nvml, *_FATAL):
            raise
        return None


def memory(nvml: Any, device: Any) -> tuple[int | None, int | None]:
    """(used, total) bytes of a GPU or a MIG device. The newer call keeps what the driver reserves apart."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    info = ask(nvml, "nvmlDeviceGetMemoryInfo", device, version) if version is not None else None
    if info is None:
        info = ask(nvml, "nvmlDeviceGetMemoryInfo", device)
    return (None, None) if info is None else (int(info.used), int(info.total))


def read_gauges(nvml: Any, board: Any, gpu_uuid: str) -> DeviceSample:
    """Everything of a whole GPU that one call gives at once.

    NVML's units: power in mW (an average over a second from Ampere on), energy in mJ, clocks in MHz.
    Source: nvml.h, and the docstrings of nvidia-ml-py.
    """
    used, total = memory(nvml, board)
    power = ask(nvml, "nvmlDeviceGetPowerUsage", board)
    energy = ask(nvml, "nvmlDeviceGetTotalEnergyConsumption", board)
    clock = ask(nvml, "nvmlDeviceGetClockInfo", board, nvml.NVML_CLOCK_SM)
    held = _reasons(nvml, board)
    return DeviceSample(
        gpu_uuid=gpu_uuid,
        device_uuid=gpu_uuid,
        memory_used_bytes=used,
        memory_total_bytes=total,
        power_w=None if power is None else power / 1000,
        energy_j=None if energy is None else energy / 1000,
        temperature_c=_temperature(nvml, board),
        sm_clock_hz=None if clock is None else int(clock) * _MHZ,
        clock_reasons=None if held is None else clock_reasons(held),
        ecc_corrected=_ecc(nvml, board, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_uncorrected=_ecc(nvml, board, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    )


def _temperature(nvml: Any, board: Any) -> float | None:
    found = ask(nvml, "nvmlDeviceGetTemperatureV", board, nvml.NVML_TEMPERATURE_GPU)
    if found is None:
        # Drivers before R570 have only this one.
        found = ask(nvml, "nvmlDeviceGetTemperature", board, nvml.NVML_TEMPERATURE_GPU)
    return None if found is None else float(found)


def _reasons(nvml: Any, board: Any) -> int | None:
    found = ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", board)
    if found is None:
        # Drivers before R535 know it by the older name; the bits are the same.
        found = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", board)
    return None if found is None else int(found)


def _ecc(nvml: Any, board: Any, kind: int) -> int | None:
    found = ask(nvml, "nvmlDeviceGetTotalEccErrors", board, kind, nvml.NVML_VOLATILE_ECC)
    return None if found is None else int(found)


class PcieMeter:
    """PCIe traffic where GPM does not tell it.

    Each of the two calls counts bytes for 20 ms (nvml.h), so they hold up whatever waits for the GPU:
    where a pair took longer than `SLOW_S`, it is asked in one of `REST` rounds only.
    """

    SLOW_S = 0.1
    REST = 12

    def __init__(self, *, nvml: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._clock = clock
        self._resting: dict[str, int] = {}

    def rates(self, board: Any, gpu_uuid: str) -> tuple[float | None, float | None]:
        """(received, sent) bytes per second; NVML counts in KB."""
        if self._resting.get(gpu_uuid, 0) > 0:
            self._resting[gpu_uuid] -= 1
            return None, None
        began = self._clock()
        received = ask(self._nvml, "nvmlDeviceGetPcieThroughput", board, self._nvml.NVML_PCIE_UTIL_RX_BYTES)
        sent = ask(self._nvml, "nvmlDeviceGetPcieThroughput", board, self._nvml.NVML_PCIE_UTIL_TX_BYTES)
        if self._clock() - began > self.SLOW_S:
            self._resting[gpu_uuid] = self.REST - 1
        return _bytes(received), _bytes(sent)


def _bytes(kilobytes: int | None) -> float | None:
    return None if kilobytes is None else float(kilobytes) * _KIB
