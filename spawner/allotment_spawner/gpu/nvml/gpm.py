"""GPM, from Hopper on: how busy a GPU or a MIG slice was between two samples of its counters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from allotment_spawner.gpu.nvml.gauges import ask

__all__ = ["GpmMeter", "GpmReading"]

_MIB = 1 << 20
_SHORTEST_S = 0.2
"""NVIDIA asks for more than 100 ms between two samples."""
_LONGEST_S = 330.0
"""What lies further back says nothing about now. Rounds may be 300 s apart (site.yaml), and a little late."""


@dataclass(frozen=True, slots=True)
class GpmReading:
    """Percent 0 to 100, bytes per second; None is unknown."""

    sm_percent: float | None = None
    memory_bandwidth_percent: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """The newer sample of a device, when it was taken, and what it told together with the one before."""

    gpu_uuid: str
    sample: Any
    at: float
    reading: GpmReading | None


class GpmMeter:
    """Keeps one sample a device, by the device's UUID: an instance that was cut again under the id of
    one that is gone has another UUID, so its counters are never compared with the other's.

    Source: NVML's reference, "GPM functions"; nvmlGpmMigSampleGet takes the parent and the GPU instance.
    """

    def __init__(self, *, nvml: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._supported: dict[str, bool] = {}

    def supported(self, board: Any, gpu_uuid: str) -> bool:
        """Whether this card has GPM at all; what it answers is kept."""
        if gpu_uuid not in self._supported:
            found = ask(self._nvml, "nvmlGpmQueryDeviceSupport", board)
            if found is None:
                return False
            self._supported[gpu_uuid] = bool(found.isSupportedDevice)
        return self._supported[gpu_uuid]

    def holds(self, device_uuid: str) -> bool:
        """Whether the last sample of this device was given; False where the driver refused it."""
        return device_uuid in self._held

    def read(
        self, board: Any, gpu_uuid: str, device_uuid: str, instance_id: int | None = None
    ) -> GpmReading | None:
        """Between this call and the last one; None at the first one and where the driver refuses.

        `instance_id` names a GPU instance of a GPU in MIG mode, None is a whole GPU. A call that comes
        too soon gets the reading before.
        """
        now, held = self._clock(), self._held.get(device_uuid)
        if held is not None and 0 <= now - held.at < _SHORTEST_S:
            return held.reading
        fresh = self._take(board, instance_id)
        if held is not None:
            del self._held[device_uuid]
        reading = None
        if fresh is not None:
            if held is not None and 0 < now - held.at <= _LONGEST_S:
                reading = self._compare(held.sample, fresh)
            self._held[device_uuid] = _Held(gpu_uuid, fresh, now, reading)
        if held is not None:
            ask(self._nvml, "nvmlGpmSampleFree", held.sample)
        return reading

    def forget(self, gpu_uuid: str, present: Collection[str]) -> None:
        """Give up the samples of this GPU's devices that are not `present` any more."""
        gone = [d for d, held in self._held.items() if held.gpu_uuid == gpu_uuid and d not in present]
        for device in gone:
            ask(self._nvml, "nvmlGpmSampleFree", self._held.pop(device).sample)

    def _take(self, board: Any, instance_id: int | None) -> Any:
        sample = ask(self._nvml, "nvmlGpmSampleAlloc")
        if sample is None:
            return None
        taken = None
        try:
            if instance_id is None:
                taken = ask(self._nvml, "nvmlGpmSampleGet", board, sample)
            else:
                taken = ask(self._nvml, "nvmlGpmMigSampleGet", board, instance_id, sample)
        finally:
            if taken is None:
                ask(self._nvml, "nvmlGpmSampleFree", sample)
        return taken

    def _compare(self, before: Any, after: Any) -> GpmReading | None:
        nvml = self._nvml
        wanted = (
            nvml.NVML_GPM_METRIC_SM_UTIL,
            nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
            nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
            nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
        )
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(wanted)
        request.sample1, request.sample2 = before, after
        for position, metric in enumerate(wanted):
            request.metrics[position].metricId = metric
        if ask(nvml, "nvmlGpmMetricsGet", request) is None:
            return None
        sm, bandwidth, received, sent = (_value(nvml, request.metrics[i]) for i in range(len(wanted)))
        return GpmReading(
            sm_percent=_percent(sm),
            memory_bandwidth_percent=_percent(bandwidth),
            pcie_rx_bytes_per_s=None if received is None else received * _MIB,
            pcie_tx_bytes_per_s=None if sent is None else sent * _MIB,
        )


def _value(nvml: Any, metric: Any) -> float | None:
    """Every metric has a return code of its own."""
    good = metric.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(metric.value) and metric.value >= 0
    return float(metric.value) if good else None


def _percent(value: float | None) -> float | None:
    # Counters are read one after the other, so a full load can come out a little above 100.
    return None if value is None else min(100.0, value)
