"""Simulated NVML calls about how hard a board works: rates, power, energy, heat, clocks, PCIe, ECC."""
# ruff: noqa: N802

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pynvml

from allotment_spawner.gpu.simulator import work
from allotment_spawner.gpu.simulator.processes import alive
from allotment_spawner.gpu.simulator.session import Session, fail
from allotment_spawner.gpu.simulator.state import SimGpu, SimProcess

__all__ = ["GaugeCalls"]

_KIB = 1024


@dataclass(frozen=True, slots=True)
class _Metered:
    """What the last call saw of a board's energy."""

    boot_id: str
    writes: int
    watts: float
    joules: float


class GaugeCalls(Session):
    """Same names, arguments, results, units and errors as the pynvml functions.

    `nvmlDeviceGetPcieThroughput` counts for 20 ms on real hardware; here it waits only as long as the
    machine's latency for it says.
    """

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._metered: dict[str, _Metered] = {}

    def _board_only(self, function: str, handle: Any) -> tuple[SimGpu, list[SimProcess]]:
        """The board and what runs on the machine; NOT_SUPPORTED for a MIG device."""
        if self.decode(handle)[0] == "mig":
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        state, _, gpu, _ = self.board(function, handle)
        return gpu, alive(state.processes)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        gpu, processes = self._board_only("nvmlDeviceGetUtilizationRates", handle)
        if gpu.mig:
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        load = work.load_of(processes, {gpu.uuid})
        rates = pynvml.c_nvmlUtilization_t()
        rates.gpu, rates.memory = int(load.sm_percent), int(load.bandwidth_percent)
        return rates

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return round(work.power_w(*self._board_only("nvmlDeviceGetPowerUsage", handle)) * 1000)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        """Millijoules since the machine was switched on; it grows on while no agent runs."""
        gpu, processes = self._board_only("nvmlDeviceGetTotalEnergyConsumption", handle)
        now, boot_id = self._now(), self._state.read().boot_id
        before = self._metered.get(gpu.uuid)
        if before is not None and before.boot_id != boot_id:
            before = None
        watts = work.power_w(gpu, processes)
        # A real process ends without a word to the state; what it drew until now must not be forgotten.
        ended = before is not None and before.writes == gpu.energy_writes and before.watts != watts
        if gpu.energy_at is None or ended:
            gpu = self._write_energy(gpu.uuid, before.watts if before is not None else watts, now)
        joules = max(work.energy_j(gpu, watts, now), before.joules if before is not None else 0.0)
        self._metered[gpu.uuid] = _Metered(boot_id, gpu.energy_writes, watts, joules)
        return int(joules * 1000)

    def _write_energy(self, uuid: str, watts: float, now: float) -> SimGpu:
        with self._state.change() as state:
            gpu = state.gpu(uuid)
            if gpu is None:
                raise fail(pynvml.NVML_ERROR_NOT_FOUND)
            work.advance_energy(gpu, watts, now)
            return gpu

    def nvmlDeviceGetTemperatureV(self, handle: Any, sensor: int, version: int = 0) -> int:
        gpu, processes = self._board_only("nvmlDeviceGetTemperatureV", handle)
        if sensor != pynvml.NVML_TEMPERATURE_GPU:
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(work.temperature_c(gpu, processes))

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        gpu, processes = self._board_only("nvmlDeviceGetClockInfo", handle)
        if kind != pynvml.NVML_CLOCK_SM:
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return work.clock_mhz(gpu, processes)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:
        return work.event_reasons(*self._board_only("nvmlDeviceGetCurrentClocksEventReasons", handle))

    def nvmlDeviceGetPcieThroughput(self, handle: Any, counter: int) -> int:
        """KB per second."""
        gpu, processes = self._board_only("nvmlDeviceGetPcieThroughput", handle)
        here = {p.device_uuid for p in work.on_board(gpu, processes)}
        load = work.load_of(processes, here)
        received = counter == pynvml.NVML_PCIE_UTIL_RX_BYTES
        return int((load.pcie_rx_bytes_per_s if received else load.pcie_tx_bytes_per_s) / _KIB)

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int:
        gpu, _ = self._board_only("nvmlDeviceGetTotalEccErrors", handle)
        return gpu.ecc_corrected if kind == pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED else gpu.ecc_uncorrected
