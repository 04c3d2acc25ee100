"""Sampling through pynvml's own wrappers, over a driver's library that has a handful of functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml
import pytest
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.nvml.events import XidWatcher
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.nvml.samples import Sampler

GIB = 1 << 30


class Library:
    """What libnvidia-ml.so.1 does for one H100 that is not in MIG mode; it writes C types as C would."""

    def __init__(self) -> None:
        self.percent = 37.5
        self.freed = 0
        self.allocated = 0

    def function(self, name: str) -> Callable[..., int]:
        found: Callable[..., int] | None = getattr(self, f"_{name}", None)
        if found is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return found

    def _nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        return _put(count, 1)

    def _nvmlDeviceGetHandleByIndex_v2(self, _index: Any, handle: Any) -> int:  # noqa: N802
        handle._obj.contents = pynvml.struct_c_nvmlDevice_t()
        return 0

    def _nvmlDeviceGetUUID(self, _device: Any, text: Any, _size: Any) -> int:  # noqa: N802
        text.value = b"GPU-real"
        return 0

    def _nvmlDeviceGetName(self, _device: Any, text: Any, _size: Any) -> int:  # noqa: N802
        text.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def _nvmlDeviceGetMemoryInfo_v2(self, _device: Any, info: Any) -> int:  # noqa: N802
        info._obj.total, info._obj.used, info._obj.free, info._obj.reserved = 80 * GIB, 6 * GIB, 73 * GIB, GIB
        return 0

    def _nvmlDeviceGetMigMode(self, _device: Any, current: Any, pending: Any) -> int:  # noqa: N802
        return _put(current, 0) or _put(pending, 0)

    def _nvmlDeviceGetPowerUsage(self, _device: Any, milliwatts: Any) -> int:  # noqa: N802
        return _put(milliwatts, 412_345)

    def _nvmlDeviceGetTotalEnergyConsumption(self, _device: Any, millijoules: Any) -> int:  # noqa: N802
        return _put(millijoules, 9_876_543_210_123)

    def _nvmlDeviceGetTemperatureV(self, _device: Any, reading: Any) -> int:  # noqa: N802
        reading._obj.temperature = 58
        return 0

    def _nvmlDeviceGetClockInfo(self, _device: Any, kind: Any, megahertz: Any) -> int:  # noqa: N802
        return _put(megahertz, 1980 if kind.value == pynvml.NVML_CLOCK_SM else 0)

    def _nvmlDeviceGetCurrentClocksEventReasons(self, _device: Any, mask: Any) -> int:  # noqa: N802
        return _put(mask, pynvml.nvmlClocksEventReasonSwPowerCap)

    def _nvmlDeviceGetTotalEccErrors(self, _device: Any, kind: Any, _counter: Any, count: Any) -> int:  # noqa: N802
        return _put(count, 2 if kind.value == pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED else 0)

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, _device: Any, count: Any, array: Any) -> int:  # noqa: N802
        if array is None:
            return _put(count, 1) or int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        array[0].pid, array[0].usedGpuMemory = 4242, 5 * GIB
        return _put(count, 1)

    def _nvmlGpmQueryDeviceSupport(self, _device: Any, support: Any) -> int:  # noqa: N802
        assert support._obj.version == pynvml.NVML_GPM_SUPPORT_VERSION
        support._obj.isSupportedDevice = 1
        return 0

    def _nvmlGpmSampleAlloc(self, sample: Any) -> int:  # noqa: N802
        self.allocated += 1
        sample._obj.contents = pynvml.struct_c_nvmlGpmSample_t()
        return 0

    def _nvmlGpmSampleFree(self, _sample: Any) -> int:  # noqa: N802
        self.freed += 1
        return 0

    def _nvmlGpmSampleGet(self, _device: Any, sample: Any) -> int:  # noqa: N802
        assert isinstance(sample, pynvml.c_nvmlGpmSample_t)
        return 0

    def _nvmlGpmMetricsGet(self, request: Any) -> int:  # noqa: N802
        asked = request._obj
        assert asked.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        assert asked.sample1
        assert asked.sample2
        values = {
            pynvml.NVML_GPM_METRIC_SM_UTIL: self.percent,
            pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 100.4,
            pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 1024.0,
        }
        for position in range(asked.numMetrics):
            metric = asked.metrics[position]
            known = metric.metricId in values
            metric.nvmlReturn = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = values.get(metric.metricId, 0.0)
        return 0


def _put(reference: Any, value: int) -> int:
    assert isinstance(reference._obj, ctypes._SimpleCData)
    reference._obj.value = value
    return int(pynvml.NVML_SUCCESS)


def test_the_real_module_s_structs_and_units(monkeypatch: pytest.MonkeyPatch) -> None:
    library, now = Library(), [100.0]
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", library.function)
    reader = NvmlReader(nvml=pynvml, node="n", boot_id=lambda: "b", simulated=False, owns=lambda *_: False)
    sampler = Sampler(nvml=pynvml, reader=reader, xids=XidWatcher(nvml=pynvml), clock=lambda: now[0])
    assert sampler.count() == 1
    (first,), unread = sampler.sample(0)
    assert unread == {}
    assert first.sm_percent is None
    for _ in range(3):
        now[0] += 5
        (found,), unread = sampler.sample(0)
    assert found == DeviceSample(
        gpu_uuid="GPU-real",
        device_uuid="GPU-real",
        sm_percent=37.5,
        memory_used_bytes=6 * GIB,
        memory_total_bytes=80 * GIB,
        memory_bandwidth_percent=100.0,
        power_w=412.345,
        energy_j=9_876_543_210.123,
        temperature_c=58.0,
        sm_clock_hz=1_980_000_000,
        pcie_rx_bytes_per_s=float(GIB),
        pcie_tx_bytes_per_s=None,
        clock_reasons=("sw_power_cap",),
        ecc_corrected=2,
        ecc_uncorrected=0,
        xids=None,
        processes=1,
    )
    assert library.allocated - library.freed == 1
