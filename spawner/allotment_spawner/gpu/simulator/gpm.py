"""Simulated GPM calls: counters of a board or a GPU instance, and what two samples of them tell."""
# ruff: noqa: N802

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from allotment_spawner.gpu.simulator.models import GpuModel
from allotment_spawner.gpu.simulator.processes import alive
from allotment_spawner.gpu.simulator.session import Session, fail
from allotment_spawner.gpu.simulator.work import Load, load_of

__all__ = ["GpmCalls"]

_MIB = 1 << 20
_APART_S = 0.1
_SINCE = (9, 0)
"""Compute capability of Hopper."""


@dataclass(frozen=True, slots=True)
class _Sample:
    device: tuple[str, int | None]
    at: float
    load: Load


class GpmCalls(Session):
    """Same names, arguments, results and errors as the pynvml functions.

    Real counters are means over the time between two samples; here the load at the second one stands for
    it. Two samples that are not over 100 ms apart tell nothing, as NVIDIA's reference warns.
    """

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._samples: dict[int, _Sample | None] = {}
        self._last = 0

    def nvmlGpmQueryDeviceSupport(self, handle: Any) -> Any:
        *_, board = self.board("nvmlGpmQueryDeviceSupport", handle)
        found = pynvml.c_nvmlGpmSupport_t()
        found.version, found.isSupportedDevice = pynvml.NVML_GPM_SUPPORT_VERSION, _has(board)
        return found

    def nvmlGpmSampleAlloc(self) -> Any:
        self.enter("nvmlGpmSampleAlloc")
        self._last += 1
        self._samples[self._last] = None
        return ctypes.cast(ctypes.c_void_p(self._last), pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.enter("nvmlGpmSampleFree")
        del self._samples[self._number(sample)]

    def nvmlGpmSampleGet(self, handle: Any, sample: Any) -> Any:
        state, _, gpu, board = self.board("nvmlGpmSampleGet", handle)
        if not _has(board) or gpu.mig:
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        load = load_of(alive(state.processes), {gpu.uuid})
        self._samples[self._number(sample)] = _Sample((gpu.uuid, None), self._now(), load)
        return sample

    def nvmlGpmMigSampleGet(self, handle: Any, instance_id: int, sample: Any) -> Any:
        state, _, gpu, board = self.board("nvmlGpmMigSampleGet", handle)
        if not _has(board) or not gpu.mig:
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        instance = next((i for i in gpu.instances if i.gi_id == instance_id), None)
        if instance is None:
            raise fail(pynvml.NVML_ERROR_NOT_FOUND)
        load = load_of(alive(state.processes), {c.uuid for c in instance.computes})
        self._samples[self._number(sample)] = _Sample((gpu.uuid, instance.serial), self._now(), load)
        return sample

    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        self.enter("nvmlGpmMetricsGet")
        if request.version != pynvml.NVML_GPM_METRICS_GET_VERSION:
            raise fail(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        before = self._samples[self._number(request.sample1)]
        after = self._samples[self._number(request.sample2)]
        if before is None or after is None or before.device != after.device:
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        told = after.at - before.at > _APART_S
        for position in range(request.numMetrics):
            metric = request.metrics[position]
            value = _VALUES.get(metric.metricId)
            metric.nvmlReturn = pynvml.NVML_SUCCESS if value else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = value(after.load) if value and told else 0.0
        return request

    def _number(self, sample: Any) -> int:
        number = ctypes.cast(sample, ctypes.c_void_p).value or 0
        if number not in self._samples:
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return number


def _has(board: GpuModel) -> bool:
    return board.capability >= _SINCE


_VALUES: dict[int, Callable[[Load], float]] = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: lambda load: load.sm_percent,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: lambda load: load.bandwidth_percent,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: lambda load: load.pcie_rx_bytes_per_s / _MIB,
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: lambda load: load.pcie_tx_bytes_per_s / _MIB,
}
