"""Reads one GPU: identity, mode, profiles, slices, processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from allotment_spawner.core.inventory import Gpu, GpuProcess, Profile, Slice
from allotment_spawner.gpu.nvml.calls import Instance, instances, is_code

__all__ = ["Identity", "Owns", "identify", "memory_axis", "mig_is_on", "process_name", "read_board"]

Owns = Callable[[str, str, int], bool]
"""(gpu uuid, profile name, start) -> whether that slice is ours."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What does not change while a GPU is on the bus. Memory in bytes."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    capability: str | None


def identify(nvml: Any, board: Any, index: int) -> Identity:
    """Raises NVMLError; the compute capability alone may be unknown."""
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(board)
        capability: str | None = f"{major}.{minor}"
    except nvml.NVMLError:
        capability = None
    return Identity(
        uuid=str(nvml.nvmlDeviceGetUUID(board)),
        index=index,
        model=str(nvml.nvmlDeviceGetName(board)),
        memory_bytes=_memory(nvml, board),
        capability=capability,
    )


def _memory(nvml: Any, board: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(board, version=nvml.nvmlMemory_v2).total)
    except nvml.NVMLError as error:
        if not is_code(error, nvml, "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"):
            raise
        return int(nvml.nvmlDeviceGetMemoryInfo(board).total)


def mig_is_on(nvml: Any, board: Any) -> bool:
    """The current mode; a pending change is not a change. False on GPUs without MIG."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(board)[0])
    except nvml.NVMLError as error:
        if is_code(error, nvml, "NOT_SUPPORTED", "FUNCTION_NOT_FOUND"):
            return False
        raise


def memory_axis(profiles: tuple[Profile, ...]) -> int:
    """Length of the placement axis in memory slices: the end of the largest legal placement."""
    return max((p.starts[-1] + p.size for p in profiles), default=0)


def read_board(
    nvml: Any, board: Any, identity: Identity, profiles: tuple[Profile, ...], *, mig: bool, owns: Owns
) -> Gpu:
    """The GPU now. Raises NVMLError: what cannot be read is no empty list."""
    present = instances(nvml, board, profiles) if mig else []
    return Gpu(
        uuid=identity.uuid,
        index=identity.index,
        model=identity.model,
        memory_bytes=identity.memory_bytes,
        mig=mig,
        axis=memory_axis(profiles) if mig else 0,
        profiles=profiles if mig else (),
        slices=tuple(_slice(identity.uuid, i, owns) for i in present),
        processes=tuple(_processes(nvml, board, identity.uuid, present)),
        compute_capability=identity.capability,
    )


def _slice(gpu_uuid: str, instance: Instance, owns: Owns) -> Slice:
    return Slice(
        uuid=instance.computes[0][2] if instance.computes else None,
        profile=instance.profile.name,
        start=instance.start,
        size=instance.size,
        instance_id=instance.instance_id,
        ours=owns(gpu_uuid, instance.profile.name, instance.start),
    )


def _processes(nvml: Any, board: Any, gpu_uuid: str, present: list[Instance]) -> list[GpuProcess]:
    """The parent answers for all its MIG devices, with instance ids; ids of none mean the board."""
    devices = {(i.instance_id, ci_id): uuid for i in present for _, ci_id, uuid in i.computes}
    found = []
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(board):
        place = (process.gpuInstanceId, process.computeInstanceId)
        used = process.usedGpuMemory
        found.append(
            GpuProcess(
                pid=int(process.pid),
                device_uuid=devices.get(place, gpu_uuid),
                name=process_name(nvml, process.pid),
                used_bytes=None if used is None else int(used),
            )
        )
    return found


def process_name(nvml: Any, pid: int) -> str | None:
    """None where the driver does not tell (it is gone, or in another namespace)."""
    try:
        return str(nvml.nvmlSystemGetProcessName(pid))
    except (nvml.NVMLError, UnicodeDecodeError):
        return None
