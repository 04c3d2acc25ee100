"""Samples one GPU and the slices on it, through the session that also reads and cuts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.nvml.board import mig_is_on
from allotment_spawner.gpu.nvml.calls import is_code, trouble
from allotment_spawner.gpu.nvml.events import XidWatcher
from allotment_spawner.gpu.nvml.gauges import PcieMeter, ask, memory, read_gauges
from allotment_spawner.gpu.nvml.gpm import GpmMeter, GpmReading
from allotment_spawner.gpu.nvml.reader import NvmlReader

__all__ = ["Sampler"]


@dataclass(frozen=True, slots=True)
class _MigDevice:
    """A GPU instance with the first of its compute instances, as the inventory shows it."""

    uuid: str
    instance_id: int
    compute_id: int
    handle: Any


class Sampler:
    """One GPU a call. `clock` counts seconds, only ever forward.

    Utilisation: from Hopper on what GPM counts (SMs and DRAM bandwidth, of a GPU or of a slice). On older
    whole GPUs NVML's rates, the share of time in which a kernel ran or memory was accessed. Of a slice on
    them NVML knows memory and processes only.
    """

    def __init__(
        self,
        *,
        nvml: Any,
        reader: NvmlReader,
        xids: XidWatcher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nvml = nvml
        self._reader = reader
        self._xids = xids
        self._gpm = GpmMeter(nvml=nvml, clock=clock)
        self._pcie = PcieMeter(nvml=nvml, clock=clock)

    def count(self) -> int:
        """How many GPUs there are; their indexes begin at 0."""
        return int(self._nvml.nvmlDeviceGetCount())

    def sample(self, index: int) -> tuple[tuple[DeviceSample, ...], dict[str, str]]:
        """(the GPU and its slices, GPU UUID -> why it cannot be read); one of them is empty."""
        try:
            return self._sample(index), {}
        except self._nvml.NVMLError as error:
            return (), {self._reader.uuid_at(index): trouble(self._nvml, error)}

    def _sample(self, index: int) -> tuple[DeviceSample, ...]:
        nvml = self._nvml
        board, gpu_uuid = self._reader.board(index)
        self._xids.watch(index, gpu_uuid)
        mig = mig_is_on(nvml, board)
        running = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", board)
        whole = replace(
            read_gauges(nvml, board, gpu_uuid),
            processes=None if running is None else len(running),
            xids=self._xids.take(gpu_uuid),
        )
        slices = _mig_devices(nvml, board) if mig else []
        self._gpm.forget(gpu_uuid, [s.uuid for s in slices] if mig else [gpu_uuid])
        gpm = self._gpm.supported(board, gpu_uuid)
        if mig:
            received, sent = self._pcie.rates(board, gpu_uuid)
            whole = replace(whole, pcie_rx_bytes_per_s=received, pcie_tx_bytes_per_s=sent)
            return (whole, *(self._slice(board, gpu_uuid, s, running, gpm=gpm) for s in slices))
        return (self._whole(board, whole, gpm=gpm),)

    def _whole(self, board: Any, sample: DeviceSample, *, gpm: bool) -> DeviceSample:
        uuid = sample.gpu_uuid
        counted = self._gpm.read(board, uuid, uuid) if gpm else None
        if gpm and self._gpm.holds(uuid):
            counted = counted or GpmReading()
            return replace(
                sample,
                sm_percent=counted.sm_percent,
                memory_bandwidth_percent=counted.memory_bandwidth_percent,
                pcie_rx_bytes_per_s=counted.pcie_rx_bytes_per_s,
                pcie_tx_bytes_per_s=counted.pcie_tx_bytes_per_s,
            )
        rates = ask(self._nvml, "nvmlDeviceGetUtilizationRates", board)
        received, sent = self._pcie.rates(board, uuid)
        return replace(
            sample,
            sm_percent=None if rates is None else float(rates.gpu),
            memory_bandwidth_percent=None if rates is None else float(rates.memory),
            pcie_rx_bytes_per_s=received,
            pcie_tx_bytes_per_s=sent,
        )

    def _slice(
        self, board: Any, gpu_uuid: str, device: _MigDevice, running: list[Any] | None, *, gpm: bool
    ) -> DeviceSample:
        used, total = memory(self._nvml, device.handle)
        read = self._gpm.read(board, gpu_uuid, device.uuid, device.instance_id) if gpm else None
        counted = read or GpmReading()
        here = None if running is None else [p for p in running if p.gpuInstanceId == device.instance_id]
        return DeviceSample(
            gpu_uuid=gpu_uuid,
            device_uuid=device.uuid,
            sm_percent=counted.sm_percent,
            memory_used_bytes=used,
            memory_total_bytes=total,
            memory_bandwidth_percent=counted.memory_bandwidth_percent,
            processes=None if here is None else len(here),
        )


def _mig_devices(nvml: Any, board: Any) -> list[_MigDevice]:
    """MIG indices have holes, and somebody else may cut meanwhile: what cannot be read is left out."""
    found: dict[int, _MigDevice] = {}
    for index in range(ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", board) or 0):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, index)
            device = _MigDevice(
                uuid=str(nvml.nvmlDeviceGetUUID(handle)),
                instance_id=int(nvml.nvmlDeviceGetGpuInstanceId(handle)),
                compute_id=int(nvml.nvmlDeviceGetComputeInstanceId(handle)),
                handle=handle,
            )
        except nvml.NVMLError as error:
            if is_code(error, nvml, "GPU_IS_LOST"):
                raise
            continue
        first = found.get(device.instance_id)
        if first is None or device.compute_id < first.compute_id:
            found[device.instance_id] = device
    return [found[instance_id] for instance_id in sorted(found)]
