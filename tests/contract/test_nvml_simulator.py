"""The simulator's rules: what the hardware refuses, with which code, and what it forgets."""

from __future__ import annotations

import os
import subprocess
from ctypes import byref
from pathlib import Path
from typing import Any

import pytest
from allotment_spawner.gpu.nvml.calls import compute_profile, discover_profiles
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import StateFile


class Machine:
    """One simulated board with short names for its calls."""

    def __init__(self, folder: Path, model: str) -> None:
        state = StateFile(folder / "sim.json")
        state.create(f"sim:1x{model}")
        self.nvml: Any = SimulatedNvml(state=state)
        self.nvml.nvmlInit()
        self.board = self.nvml.nvmlDeviceGetHandleByIndex(0)
        self.uuid = self.nvml.nvmlDeviceGetUUID(self.board)
        self.control = SimControl(state.path)
        self.profiles = {p.name: p for p in discover_profiles(self.nvml, self.board)}

    def create(self, name: str, start: int) -> Any:
        profile = self.profiles[name]
        placement = self.nvml.c_nvmlGpuInstancePlacement_t(start, profile.size)
        return self.nvml.nvmlDeviceCreateGpuInstanceWithPlacement(
            self.board, profile.profile_id, byref(placement)
        )

    def finish(self, instance: Any) -> Any:
        return self.nvml.nvmlGpuInstanceCreateComputeInstance(instance, compute_profile(self.nvml, instance))

    def device(self, compute: Any) -> Any:
        return self.nvml.nvmlComputeInstanceGetInfo_v2(compute).device


@pytest.fixture
def a100(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "A100-80GB")


def test_overlap_is_insufficient_resources(a100: Machine) -> None:
    a100.create("2g.20gb", 2)
    for name, start in [("1g.10gb", 3), ("3g.40gb", 0), ("7g.80gb", 0), ("2g.20gb", 2)]:
        with pytest.raises(a100.nvml.NVMLError_InsufficientResources):
            a100.create(name, start)


def test_illegal_placement_is_an_invalid_argument(a100: Machine) -> None:
    for name, start in [("2g.20gb", 1), ("1g.10gb", 7), ("3g.40gb", 2)]:
        with pytest.raises(a100.nvml.NVMLError_InvalidArgument):
            a100.create(name, start)


def test_one_media_instance_a_gpu(a100: Machine) -> None:
    a100.create("1g.10gb+me", 0)
    with pytest.raises(a100.nvml.NVMLError_InsufficientResources):
        a100.create("1g.10gb+me", 1)
    a100.create("1g.10gb", 1)


def test_all_media_engines_leave_room_only_for_profiles_without(tmp_path: Path) -> None:
    pro = Machine(tmp_path, "RTX-PRO-6000")
    pro.create("1g.24gb+me.all", 0)
    with pytest.raises(pro.nvml.NVMLError_InsufficientResources):
        pro.create("1g.24gb", 3)
    pro.create("1g.24gb-me", 3)


def test_instance_with_a_compute_instance_or_process_is_in_use(a100: Machine) -> None:
    instance = a100.create("1g.10gb", 0)
    compute = a100.finish(instance)
    with pytest.raises(a100.nvml.NVMLError_InUse):
        a100.nvml.nvmlGpuInstanceDestroy(instance)
    pid = a100.control.load(a100.nvml.nvmlDeviceGetUUID(a100.device(compute)))
    with pytest.raises(a100.nvml.NVMLError_InUse):
        a100.nvml.nvmlComputeInstanceDestroy(compute)
    a100.control.unload(pid=pid)
    a100.nvml.nvmlComputeInstanceDestroy(compute)
    a100.nvml.nvmlGpuInstanceDestroy(instance)
    with pytest.raises(a100.nvml.NVMLError_NotFound):
        a100.nvml.nvmlGpuInstanceGetInfo(instance)


def test_another_client_of_the_board_blocks_cutting(a100: Machine) -> None:
    a100.control.load(a100.uuid, name="dcgm")
    with pytest.raises(a100.nvml.NVMLError_InUse):
        a100.create("1g.10gb", 0)


def test_mig_indexes_have_holes_and_shift_but_uuids_stay(a100: Machine) -> None:
    nvml = a100.nvml
    first, second, third = (a100.create("1g.10gb", start) for start in (0, 1, 2))
    a100.finish(first)
    compute = a100.finish(third)
    uuid = nvml.nvmlDeviceGetUUID(a100.device(compute))
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(a100.board, 1)
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(a100.board, 2)) == uuid
    nvml.nvmlGpuInstanceDestroy(second)
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(a100.board, 1)) == uuid


def test_uuids_are_never_used_twice(a100: Machine) -> None:
    seen = set()
    for _ in range(5):
        instance = a100.create("7g.80gb", 0)
        compute = a100.finish(instance)
        seen.add(a100.nvml.nvmlDeviceGetUUID(a100.device(compute)))
        a100.nvml.nvmlComputeInstanceDestroy(compute)
        a100.nvml.nvmlGpuInstanceDestroy(instance)
    assert len(seen) == 5


@pytest.mark.parametrize(("model", "profile", "ci"), [("H100", "1g.20gb", 7), ("A100-80GB", "1g.20gb", 0)])
def test_double_memory_takes_the_compute_profile_with_all_processors(
    tmp_path: Path, model: str, profile: str, ci: int
) -> None:
    machine = Machine(tmp_path, model)
    assert compute_profile(machine.nvml, machine.create(profile, 0)) == ci


def test_mig_device_answers_what_hardware_answers(a100: Machine) -> None:
    nvml = a100.nvml
    device = a100.device(a100.finish(a100.create("2g.20gb", 4)))
    assert bool(nvml.nvmlDeviceIsMigDeviceHandle(device))
    assert nvml.nvmlDeviceGetUUID(device).startswith("MIG-")
    assert nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2).total < 20 << 30
    for call in (nvml.nvmlDeviceGetUtilizationRates, nvml.nvmlDeviceGetMigMode):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call(device)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(a100.board)
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert nvml.nvmlDeviceGetUUID(parent) == a100.uuid


def test_processes_of_the_parent_name_their_instance(a100: Machine) -> None:
    nvml = a100.nvml
    device = a100.device(a100.finish(a100.create("2g.20gb", 4)))
    pid = a100.control.load(nvml.nvmlDeviceGetUUID(device), used_bytes=5 << 30)
    [process] = nvml.nvmlDeviceGetComputeRunningProcesses(a100.board)
    assert (process.pid, process.usedGpuMemory) == (pid, 5 << 30)
    assert process.gpuInstanceId == nvml.nvmlDeviceGetGpuInstanceId(device)
    assert process.computeInstanceId == nvml.nvmlDeviceGetComputeInstanceId(device)
    info = nvml.nvmlDeviceGetMemoryInfo(a100.board, version=nvml.nvmlMemory_v2)
    assert info.used == 5 << 30


def test_real_process_counts_while_it_lives(a100: Machine) -> None:
    assert a100.control.load(a100.uuid, os.getpid()) == os.getpid()
    assert [p.pid for p in a100.control.processes()] == [os.getpid()]
    with subprocess.Popen(["sleep", "60"]) as child:
        a100.control.load(a100.uuid, child.pid)
        assert len(a100.control.processes()) == 2
        child.kill()
    assert [p.pid for p in a100.control.processes()] == [os.getpid()]


def test_mode_switch_needs_a_reset_on_ampere_and_none_on_hopper(tmp_path: Path) -> None:
    ampere, hopper = Machine(tmp_path / "a", "A100-80GB"), Machine(tmp_path / "h", "H100")
    assert ampere.nvml.nvmlDeviceSetMigMode(ampere.board, 0) == ampere.nvml.NVML_ERROR_RESET_REQUIRED
    assert ampere.nvml.nvmlDeviceGetMigMode(ampere.board) == [1, 0]
    assert hopper.nvml.nvmlDeviceSetMigMode(hopper.board, 0) == hopper.nvml.NVML_SUCCESS
    assert hopper.nvml.nvmlDeviceGetMigMode(hopper.board) == [0, 0]
    busy = Machine(tmp_path / "b", "H100")
    busy.create("1g.10gb", 0)
    assert busy.nvml.nvmlDeviceSetMigMode(busy.board, 0) == busy.nvml.NVML_ERROR_IN_USE
    assert busy.nvml.nvmlDeviceGetMigMode(busy.board) == [1, 0]


@pytest.mark.parametrize(("model", "stays"), [("A100-80GB", 1), ("H100", 0)])
def test_reboot_forgets_geometry_and_where_so_the_mode(tmp_path: Path, model: str, stays: int) -> None:
    machine = Machine(tmp_path, model)
    machine.finish(machine.create("1g.10gb", 0))
    machine.control.load(machine.uuid)
    before = machine.control.state().boot_id
    assert machine.control.reboot() != before
    assert machine.nvml.nvmlDeviceGetMigMode(machine.board) == [stays, stays]
    assert machine.control.state().gpus[0].instances == []
    assert machine.control.processes() == []
    assert machine.nvml.nvmlDeviceGetUUID(machine.board) == machine.uuid


def test_lost_board_fails_every_call(a100: Machine) -> None:
    a100.control.fault("0", 79)
    for call in (a100.nvml.nvmlDeviceGetUUID, a100.nvml.nvmlDeviceGetMigMode):
        with pytest.raises(a100.nvml.NVMLError_GpuIsLost):
            call(a100.board)


def test_same_spec_is_the_same_machine_and_another_spec_is_another(tmp_path: Path) -> None:
    first = Machine(tmp_path, "A100-80GB")
    first.create("1g.10gb", 0)
    assert Machine(tmp_path, "A100-80GB").control.state().gpus[0].instances
    other = Machine(tmp_path, "H100").control.state()
    assert other.gpus[0].uuid != first.uuid
    assert other.gpus[0].instances == []


def test_a_call_before_init_and_an_unknown_call(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "sim.json")
    nvml: Any = SimulatedNvml(state=state)
    with pytest.raises(nvml.NVMLError_DriverNotLoaded):
        nvml.nvmlInit()
    state.create("sim:1xA100")
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    nvml.nvmlInit()
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetFanSpeed(nvml.nvmlDeviceGetHandleByIndex(0))


def test_gpus_are_named_by_index_too(a100: Machine) -> None:
    a100.control.load("0")
    assert [process.device_uuid for process in a100.control.processes()] == [a100.uuid]
    assert a100.control.unload("0") == 1
    with pytest.raises(LookupError):
        a100.control.load("7")
