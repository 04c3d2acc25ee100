"""NVML's array and error conventions, turned into lists and words."""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass
from typing import Any

from allotment_spawner.core.inventory import Profile

__all__ = [
    "Instance",
    "compute_profile",
    "discover_profiles",
    "error_word",
    "instances",
    "is_code",
    "trouble",
]

_MIB = 1 << 20
_WORDS = (
    "UNINITIALIZED",
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "NOT_FOUND",
    "DRIVER_NOT_LOADED",
    "LIBRARY_NOT_FOUND",
    "FUNCTION_NOT_FOUND",
    "GPU_IS_LOST",
    "RESET_REQUIRED",
    "OPERATING_SYSTEM",
    "LIB_RM_VERSION_MISMATCH",
    "IN_USE",
    "MEMORY",
    "INSUFFICIENT_RESOURCES",
    "GPU_NOT_FOUND",
    "INVALID_STATE",
    "TIMEOUT",
    "UNKNOWN",
)
_ROOM = 16
"""No GPU has more instances of one profile (12-slice axes have at most 4)."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One GPU instance with its compute instances; handles are NVML's."""

    handle: Any
    instance_id: int
    profile: Profile
    start: int
    size: int
    computes: tuple[tuple[Any, int, str], ...]
    """(compute-instance handle, its id, its MIG device's UUID)."""


def is_code(error: Exception, nvml: Any, *names: str) -> bool:
    """Whether an NVMLError has one of these codes, e.g. is_code(e, nvml, "IN_USE")."""
    return any(getattr(error, "value", None) == getattr(nvml, f"NVML_ERROR_{name}") for name in names)


def error_word(error: Exception, nvml: Any) -> str:
    """The code's name, e.g. "GPU_IS_LOST". (str() of an NVMLError needs the driver's library.)"""
    value = getattr(error, "value", None)
    for name in _WORDS:
        if getattr(nvml, f"NVML_ERROR_{name}") == value:
            return name
    return f"NVML error {value}" if value is not None else type(error).__name__


def trouble(nvml: Any, error: Exception) -> str:
    """Why a GPU cannot be read, for operators."""
    if is_code(error, nvml, "GPU_IS_LOST"):
        return "the GPU has fallen off the bus (GPU_IS_LOST); the node needs a restart"
    if is_code(error, nvml, "NO_PERMISSION"):
        return "reading its slices needs root (NO_PERMISSION): run allotment-agent as root"
    return f"reading it failed with {error_word(error, nvml)}"


def discover_profiles(nvml: Any, board: Any) -> tuple[Profile, ...]:
    """Profiles and legal placements of a board in MIG mode, as its driver reports them."""
    found = []
    for enum in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT + _ROOM):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(board, enum, version=2)
        except nvml.NVMLError as error:
            if is_code(error, nvml, "NOT_SUPPORTED"):
                continue
            if is_code(error, nvml, "INVALID_ARGUMENT"):
                break
            raise
        found.append(_profile(nvml, board, info))
    return tuple(p for p in found if p.starts)


def _profile(nvml: Any, board: Any, info: Any) -> Profile:
    # The driver's own name: names differ by board and driver, so they are never put together here.
    name = info.name.decode() if isinstance(info.name, bytes) else str(info.name)
    name = name.removeprefix("MIG ").strip()
    places = _placements(nvml, board, info.id)
    return Profile(
        name=name,
        profile_id=int(info.id),
        memory_bytes=int(info.memorySizeMB) * _MIB,
        compute_slices=int(info.sliceCount),
        size=places[0][1] if places else 0,
        starts=tuple(sorted(start for start, _ in places)),
        max_instances=int(info.instanceCount),
        media="+me" in name,
    )


def _placements(nvml: Any, board: Any, profile_id: int) -> list[tuple[int, int]]:
    count = nvml.c_uint(0)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(board, profile_id, None, byref(count))
    if not count.value:
        return []
    array = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(board, profile_id, array, byref(count))
    return [(int(array[i].start), int(array[i].size)) for i in range(count.value)]


def instances(nvml: Any, board: Any, profiles: tuple[Profile, ...]) -> list[Instance]:
    """Every GPU instance on a board, complete or half-made, ordered by placement."""
    found = []
    for profile in profiles:
        array = (nvml.c_nvmlGpuInstance_t * _ROOM)()
        count = nvml.c_uint(_ROOM)
        nvml.nvmlDeviceGetGpuInstances(board, profile.profile_id, array, byref(count))
        for position in range(count.value):
            handle = array[position]
            info = nvml.nvmlGpuInstanceGetInfo(handle)
            found.append(
                Instance(
                    handle=handle,
                    instance_id=int(info.id),
                    profile=profile,
                    start=int(info.placement.start),
                    size=int(info.placement.size),
                    computes=tuple(_computes(nvml, handle)),
                )
            )
    return sorted(found, key=lambda i: i.start)


def _compute_infos(nvml: Any, instance: Any) -> list[Any]:
    infos = []
    for enum in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT + _ROOM):
        try:
            infos.append(
                nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, enum, nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
                )
            )
        except nvml.NVMLError as error:
            if is_code(error, nvml, "NOT_SUPPORTED"):
                continue
            if is_code(error, nvml, "INVALID_ARGUMENT"):
                break
            raise
    return infos


def _computes(nvml: Any, instance: Any) -> list[tuple[Any, int, str]]:
    found = []
    for info in _compute_infos(nvml, instance):
        array = (nvml.c_nvmlComputeInstance_t * _ROOM)()
        count = nvml.c_uint(_ROOM)
        nvml.nvmlGpuInstanceGetComputeInstances(instance, info.id, array, byref(count))
        for position in range(count.value):
            details = nvml.nvmlComputeInstanceGetInfo_v2(array[position])
            found.append((array[position], int(details.id), str(nvml.nvmlDeviceGetUUID(details.device))))
    return sorted(found, key=lambda c: c[1])


def compute_profile(nvml: Any, instance: Any) -> int:
    """Id of the compute-instance profile that uses the whole GPU instance.

    By slices, then by multiprocessors: a double-memory instance on Hopper has two profiles of one
    slice (0 and 7), and only 7 uses all of its multiprocessors.
    """
    infos = _compute_infos(nvml, instance)
    return int(max(infos, key=lambda i: (i.sliceCount, i.multiprocessorCount)).id)
