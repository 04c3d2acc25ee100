"""Simulated NVML calls about boards: identity, memory, mode, links, processes, events."""
# ruff: noqa: N802

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pynvml

from allotment_spawner.gpu.simulator.models import model
from allotment_spawner.gpu.simulator.processes import alive
from allotment_spawner.gpu.simulator.rules import mig_devices
from allotment_spawner.gpu.simulator.session import Session, fail
from allotment_spawner.gpu.simulator.state import SimGpu, SimInstance, SimProcess, SimState

__all__ = ["DeviceCalls"]

_NONE = 0xFFFFFFFF
_DRIVER = "580.82.07"


def _bus_id(index: int) -> str:
    return f"00000000:{index + 1:02X}:00.0"


def _whole_only(method: Callable[..., Any]) -> Callable[..., Any]:
    """MIG devices answer NOT_SUPPORTED to what only a board has."""

    @wraps(method)
    def checked(self: Session, handle: Any, *rest: Any) -> Any:
        if self.decode(handle)[0] == "mig":
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return method(self, handle, *rest)

    return checked


class DeviceCalls(Session):
    """Same names, arguments, results and errors as the pynvml functions."""

    def nvmlInit(self) -> None:
        if not self._state.exists():
            raise fail(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        self._open = True

    def nvmlShutdown(self) -> None:
        self.enter("nvmlShutdown")
        self._open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        self.enter("nvmlSystemGetDriverVersion")
        return _DRIVER

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        state = self.enter("nvmlSystemGetProcessName")
        for process in state.processes:
            if process.pid == pid:
                return process.name
        raise fail(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.enter("nvmlDeviceGetCount").gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        self.enter("nvmlDeviceGetHandleByIndex", index)
        return self.handle("board", index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> Any:
        text = uuid.decode() if isinstance(uuid, bytes) else uuid
        for index, gpu in enumerate(self.enter("nvmlDeviceGetHandleByUUID").gpus):
            if gpu.uuid == text:
                self.enter("nvmlDeviceGetHandleByUUID", index)
                return self.handle("board", index)
            for instance in gpu.instances:
                for compute in instance.computes:
                    if compute.uuid == text:
                        return self.handle("mig", compute.serial)
        raise fail(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        if self.decode(handle)[0] == "mig":
            return self.compute("nvmlDeviceGetUUID", handle)[4].uuid
        return self.board("nvmlDeviceGetUUID", handle)[2].uuid

    def nvmlDeviceGetName(self, handle: Any) -> str:
        if self.decode(handle)[0] == "mig":
            gpu = self.compute("nvmlDeviceGetName", handle)[2]
            return f"NVIDIA {gpu.model} MIG"
        return f"NVIDIA {self.board('nvmlDeviceGetName', handle)[2].model}"

    @_whole_only
    def nvmlDeviceGetIndex(self, handle: Any) -> int:
        return self.board("nvmlDeviceGetIndex", handle)[1]

    @_whole_only
    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        return self.board("nvmlDeviceGetMinorNumber", handle)[1]

    @_whole_only
    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        _, index, _, board = self.board("nvmlDeviceGetPciInfo", handle)
        return self._pci(index, board.pci_device_id)

    def _pci(self, index: int, device_id: int) -> Any:
        info = pynvml.nvmlPciInfo_t()
        info.busId = _bus_id(index).encode()
        info.domain, info.bus, info.device, info.pciDeviceId = 0, index + 1, 0, device_id
        return info

    @_whole_only
    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        return self.board("nvmlDeviceGetCudaComputeCapability", handle)[3].capability

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        state, total, devices = self._memory_of(handle)
        used = min(total, sum(p.used_bytes for p in alive(state.processes) if p.device_uuid in devices))
        info = pynvml.c_nvmlMemory_v2_t() if version else pynvml.c_nvmlMemory_t()
        info.total, info.used, info.free = total, used, total - used
        if version:
            info.version, info.reserved = version, 0
        return info

    def _memory_of(self, handle: Any) -> tuple[SimState, int, set[str]]:
        name = "nvmlDeviceGetMemoryInfo"
        if self.decode(handle)[0] == "mig":
            state, _, gpu, instance, compute = self.compute(name, handle)
            profile = model(gpu.model).profile(instance.profile_id)
            return state, profile.memory_bytes if profile else 0, {compute.uuid}
        state, _, gpu, board = self.board(name, handle)
        return state, board.memory_bytes, {gpu.uuid, *(c.uuid for i in gpu.instances for c in i.computes)}

    @_whole_only
    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        _, _, gpu, board = self.board("nvmlDeviceGetMigMode", handle)
        if not board.profiles:
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(gpu.mig), int(gpu.mig_pending)]

    @_whole_only
    def nvmlDeviceSetMigMode(self, handle: Any, mode: int) -> int:
        """The activation status: the call succeeds even where only the pending mode changed."""
        _, index, _, board = self.board("nvmlDeviceSetMigMode", handle)
        with self._state.change() as state:
            gpu = state.gpus[index]
            gpu.mig_pending = bool(mode)
            if gpu.mig == gpu.mig_pending:
                return int(pynvml.NVML_SUCCESS)
            if gpu.instances or any(p.device_uuid == gpu.uuid for p in alive(state.processes)):
                return int(pynvml.NVML_ERROR_IN_USE)
            if not board.resetless_mig:
                return int(pynvml.NVML_ERROR_RESET_REQUIRED)
            gpu.mig = gpu.mig_pending
            return int(pynvml.NVML_SUCCESS)

    @_whole_only
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        board = self.board("nvmlDeviceGetMaxMigDeviceCount", handle)[3]
        return max((p.max_instances for p in board.profiles), default=0)

    @_whole_only
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:
        _, _, gpu, _ = self.board("nvmlDeviceGetMigDeviceHandleByIndex", handle)
        serials = mig_devices(gpu)
        serial = serials[index] if 0 <= index < len(serials) else None
        if serial is None:
            raise fail(pynvml.NVML_ERROR_NOT_FOUND)
        return self.handle("mig", serial)

    def nvmlDeviceIsMigDeviceHandle(self, handle: Any) -> Any:
        return pynvml.c_uint(self.decode(handle)[0] == "mig")

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Any) -> Any:
        return self.handle("board", self.compute("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)[1])

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:
        return self.compute("nvmlDeviceGetGpuInstanceId", handle)[3].gi_id

    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int:
        return self.compute("nvmlDeviceGetComputeInstanceId", handle)[4].ci_id

    @_whole_only
    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:
        gpu = self.board("nvmlDeviceGetNvLinkState", handle)[2]
        if not gpu.peers or link >= pynvml.NVML_NVLINK_MAX_LINKS:
            raise fail(
                pynvml.NVML_ERROR_NOT_SUPPORTED if not gpu.peers else pynvml.NVML_ERROR_INVALID_ARGUMENT
            )
        return int(link < len(gpu.peers))

    @_whole_only
    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int) -> int:
        self._peer("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        return int(pynvml.NVML_NVLINK_DEVICE_TYPE_GPU)

    @_whole_only
    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any:
        return self._pci(self._peer("nvmlDeviceGetNvLinkRemotePciInfo", handle, link), 0)

    def _peer(self, function: str, handle: Any, link: int) -> int:
        gpu = self.board(function, handle)[2]
        if link >= len(gpu.peers):
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return gpu.peers[link]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        name = "nvmlDeviceGetComputeRunningProcesses"
        if self.decode(handle)[0] == "mig":
            state, _, _, instance, compute = self.compute(name, handle)
            mine = [p for p in alive(state.processes) if p.device_uuid == compute.uuid]
            return [_seen(p, instance.gi_id, compute.ci_id) for p in mine]
        state, _, gpu, _ = self.board(name, handle)
        where = _places(gpu)
        return [_seen(p, *where[p.device_uuid]) for p in alive(state.processes) if p.device_uuid in where]

    def nvmlEventSetCreate(self) -> Any:
        state = self.enter("nvmlEventSetCreate")
        return _EventSet(state.events[-1].number if state.events else 0)

    @_whole_only
    def nvmlDeviceRegisterEvents(self, handle: Any, event_types: int, event_set: Any) -> None:
        event_set.gpus.add(self.board("nvmlDeviceRegisterEvents", handle)[2].uuid)

    def nvmlEventSetWait_v2(self, event_set: Any, timeout_ms: int) -> Any:
        """The next event of a registered board, at once; TIMEOUT when there is none."""
        state = self.enter("nvmlEventSetWait_v2")
        for event in state.events:
            if event.number > event_set.seen and event.gpu_uuid in event_set.gpus:
                event_set.seen = event.number
                data = pynvml.c_nvmlEventData_t()
                data.device = self.handle("board", [g.uuid for g in state.gpus].index(event.gpu_uuid))
                data.eventType, data.eventData = pynvml.nvmlEventTypeXidCriticalError, event.xid
                data.gpuInstanceId = data.computeInstanceId = _NONE
                return data
        raise fail(pynvml.NVML_ERROR_TIMEOUT)

    def nvmlEventSetFree(self, event_set: Any) -> None:
        event_set.gpus.clear()


class _EventSet:
    def __init__(self, seen: int) -> None:
        self.seen = seen
        self.gpus: set[str] = set()


def _places(gpu: SimGpu) -> dict[str, tuple[int, int]]:
    """Device UUID -> (GPU instance id, compute instance id) of everything on a board."""
    where = {gpu.uuid: (_NONE, _NONE)}
    for instance in gpu.instances:
        where |= _computes(instance)
    return where


def _computes(instance: SimInstance) -> dict[str, tuple[int, int]]:
    return {c.uuid: (instance.gi_id, c.ci_id) for c in instance.computes}


def _seen(process: SimProcess, gi_id: int, ci_id: int) -> Any:
    found = pynvml.c_nvmlProcessInfo_v3_t()
    found.pid, found.usedGpuMemory = process.pid, process.used_bytes
    found.gpuInstanceId, found.computeInstanceId = gi_id, ci_id
    return pynvml.nvmlStructToFriendlyObject(found)
