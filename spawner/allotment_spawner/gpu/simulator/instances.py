"""Simulated NVML calls about GPU instances and compute instances."""
# ruff: noqa: N802

from __future__ import annotations

from typing import Any

import pynvml

from allotment_spawner.gpu.simulator.models import SimProfile, model
from allotment_spawner.gpu.simulator.processes import alive
from allotment_spawner.gpu.simulator.rules import fits, instance_number, remaining, remaining_computes
from allotment_spawner.gpu.simulator.session import Session, fail, find_compute
from allotment_spawner.gpu.simulator.state import SimCompute, SimGpu, SimInstance

__all__ = ["InstanceCalls"]


def _object(reference: Any) -> Any:
    """What `byref(x)` points to; ctypes keeps it as `_obj`."""
    return getattr(reference, "_obj", reference)


def _fill(array: Any, count: Any, items: list[Any]) -> None:
    target = _object(count)
    if array is not None:
        if target.value < len(items):
            target.value = len(items)
            raise fail(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for position, item in enumerate(items):
            array[position] = item
    target.value = len(items)


def _mig_on(gpu: SimGpu) -> None:
    if not gpu.mig:
        raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)


class InstanceCalls(Session):
    """Same names, arguments, results and errors as the pynvml functions."""

    def nvmlDeviceGetGpuInstanceProfileInfo(self, handle: Any, enum: int, version: int = 2) -> Any:
        _, _, gpu, board = self.board("nvmlDeviceGetGpuInstanceProfileInfo", handle)
        if not 0 <= enum < pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        _mig_on(gpu)
        profile = next((p for p in board.profiles if p.enum == enum), None)
        if profile is None:
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        v2 = version == 2
        info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t() if v2 else pynvml.c_nvmlGpuInstanceProfileInfo_t()
        info.id, info.sliceCount, info.instanceCount = (
            profile.profile_id,
            profile.compute_slices,
            profile.max_instances,
        )
        info.multiprocessorCount, info.memorySizeMB = profile.multiprocessors, profile.memory_bytes >> 20
        if v2:
            info.name = f"MIG {profile.name}".encode()
        return info

    def _profile(self, function: str, handle: Any, profile_id: int) -> tuple[int, SimGpu, SimProfile]:
        _, index, gpu, board = self.board(function, handle)
        profile = board.profile(profile_id)
        _mig_on(gpu)
        if profile is None:
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index, gpu, profile

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, handle: Any, profile_id: int, array: Any, count: Any
    ) -> int:
        _, _, profile = self._profile("nvmlDeviceGetGpuInstancePossiblePlacements", handle, profile_id)
        _fill(
            array,
            count,
            [pynvml.c_nvmlGpuInstancePlacement_t(start, profile.size) for start in profile.starts],
        )
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetGpuInstanceRemainingCapacity(self, handle: Any, profile_id: int) -> int:
        _, gpu, profile = self._profile("nvmlDeviceGetGpuInstanceRemainingCapacity", handle, profile_id)
        return remaining(model(gpu.model), gpu, profile)

    def nvmlDeviceGetGpuInstances(self, handle: Any, profile_id: int, array: Any, count: Any) -> int:
        _, gpu, profile = self._profile("nvmlDeviceGetGpuInstances", handle, profile_id)
        _fill(
            array,
            count,
            [self.handle("gi", i.serial) for i in gpu.instances if i.profile_id == profile.profile_id],
        )
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, handle: Any, profile_id: int, placement: Any) -> Any:
        index, _, profile = self._profile("nvmlDeviceCreateGpuInstanceWithPlacement", handle, profile_id)
        wanted = _object(placement)
        if wanted.start not in profile.starts or wanted.size != profile.size:
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        with self._state.change() as state:
            gpu = state.gpus[index]
            board = model(gpu.model)
            if any(p.device_uuid == gpu.uuid for p in alive(state.processes)):
                raise fail(pynvml.NVML_ERROR_IN_USE)
            if not fits(board, gpu, profile, wanted.start):
                raise fail(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
            made = SimInstance(
                serial=state.next_serial(),
                gi_id=instance_number(board.axis, wanted.start, profile.size),
                profile_id=profile_id,
                start=wanted.start,
                size=profile.size,
            )
            gpu.instances.append(made)
        return self.handle("gi", made.serial)

    def nvmlDeviceGetGpuInstanceById(self, handle: Any, gi_id: int) -> Any:
        gpu = self.board("nvmlDeviceGetGpuInstanceById", handle)[2]
        found = next((i for i in gpu.instances if i.gi_id == gi_id), None)
        if found is None:
            raise fail(pynvml.NVML_ERROR_NOT_FOUND)
        return self.handle("gi", found.serial)

    def nvmlGpuInstanceGetInfo(self, handle: Any) -> Any:
        _, index, _, instance = self.instance("nvmlGpuInstanceGetInfo", handle)
        info = pynvml.c_nvmlGpuInstanceInfo_t()
        info.device, info.id, info.profileId = (
            self.handle("board", index),
            instance.gi_id,
            instance.profile_id,
        )
        info.placement.start, info.placement.size = instance.start, instance.size
        return info

    def nvmlGpuInstanceDestroy(self, handle: Any) -> int:
        _, index, _, found = self.instance("nvmlGpuInstanceDestroy", handle)
        with self._state.change() as state:
            gpu = state.gpus[index]
            present = next((i for i in gpu.instances if i.serial == found.serial), None)
            if present is None:
                raise fail(pynvml.NVML_ERROR_NOT_FOUND)
            if present.computes:
                raise fail(pynvml.NVML_ERROR_IN_USE)
            gpu.instances.remove(present)
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, handle: Any, enum: int, engine: int, version: int = 2
    ) -> Any:
        _, _, gpu, instance = self.instance("nvmlGpuInstanceGetComputeInstanceProfileInfo", handle)
        if not 0 <= enum < pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT:
            raise fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        found = next((c for c in self._of(gpu, instance).compute if c.profile_id == enum), None)
        if found is None or engine != pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED:
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        v2 = version == 2
        info = (
            pynvml.c_nvmlComputeInstanceProfileInfo_v2_t()
            if v2
            else pynvml.c_nvmlComputeInstanceProfileInfo_t()
        )
        info.id, info.sliceCount, info.instanceCount = (
            found.profile_id,
            found.compute_slices,
            found.max_instances,
        )
        info.multiprocessorCount = found.multiprocessors
        return info

    def _of(self, gpu: SimGpu, instance: SimInstance) -> SimProfile:
        profile = model(gpu.model).profile(instance.profile_id)
        if profile is None:
            raise fail(pynvml.NVML_ERROR_UNKNOWN)
        return profile

    def nvmlGpuInstanceGetComputeInstances(self, handle: Any, profile_id: int, array: Any, count: Any) -> int:
        _, _, _, instance = self.instance("nvmlGpuInstanceGetComputeInstances", handle)
        _fill(
            array,
            count,
            [self.handle("ci", c.serial) for c in instance.computes if c.profile_id == profile_id],
        )
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpuInstanceCreateComputeInstance(self, handle: Any, profile_id: int) -> Any:
        _, index, gpu, found = self.instance("nvmlGpuInstanceCreateComputeInstance", handle)
        profile = self._of(gpu, found)
        wanted = next((c for c in profile.compute if c.profile_id == profile_id), None)
        if wanted is None:
            raise fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        with self._state.change() as state:
            instance = next((i for i in state.gpus[index].instances if i.serial == found.serial), None)
            if instance is None:
                raise fail(pynvml.NVML_ERROR_NOT_FOUND)
            if remaining_computes(profile, instance, wanted) < 1:
                raise fail(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
            taken = {c.ci_id for c in instance.computes}
            ci_id = next(n for n in range(len(taken) + 1) if n not in taken)
            serial = state.next_serial()
            uuid = f"MIG-{state.derived_uuid('mig', state.gpus[index].uuid, serial)}"
            instance.computes.append(SimCompute(serial=serial, ci_id=ci_id, profile_id=profile_id, uuid=uuid))
        return self.handle("ci", serial)

    def nvmlComputeInstanceGetInfo_v2(self, handle: Any) -> Any:
        _, _, _, instance, compute = self.compute("nvmlComputeInstanceGetInfo_v2", handle)
        info = pynvml.c_nvmlComputeInstanceInfo_t()
        info.device, info.gpuInstance = self.handle("mig", compute.serial), self.handle("gi", instance.serial)
        info.id, info.profileId = compute.ci_id, compute.profile_id
        return info

    def nvmlComputeInstanceDestroy(self, handle: Any) -> int:
        *_, found = self.compute("nvmlComputeInstanceDestroy", handle)
        with self._state.change() as state:
            place = find_compute(state, found.serial)
            if place is None:
                raise fail(pynvml.NVML_ERROR_NOT_FOUND)
            _, instance, compute = place
            if any(p.device_uuid == compute.uuid for p in alive(state.processes)):
                raise fail(pynvml.NVML_ERROR_IN_USE)
            instance.computes.remove(compute)
        return int(pynvml.NVML_SUCCESS)
