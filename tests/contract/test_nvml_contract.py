"""What the reader relies on, asked of the simulator and, where a driver answers, of the real module.

The real one is only read: nothing here changes a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref
from itertools import pairwise
from pathlib import Path
from typing import Any

import pynvml
import pytest
from allotment_spawner.gpu.nvml.board import memory_axis
from allotment_spawner.gpu.nvml.calls import discover_profiles, instances
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import StateFile

SPEC = "sim:2xA100-80GB:mig,2xH100:mig,1xA30,1xRTX-PRO-6000,1xB200:mig,1xA100-40GB:whole"


def simulated(folder: Path) -> Any:
    state = StateFile(folder / "sim.json")
    state.create(SPEC)
    return SimulatedNvml(state=state)


@pytest.fixture(params=["simulator", pytest.param("real", marks=pytest.mark.gpu)])
def nvml(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    module = pynvml if request.param == "real" else simulated(tmp_path)
    module.nvmlInit()
    yield module
    module.nvmlShutdown()


def boards(nvml: Any) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]


def mig_boards(nvml: Any) -> list[Any]:
    return [board for board in boards(nvml) if mode(nvml, board) == 1]


def mode(nvml: Any, board: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMigMode(board)[0])
    except nvml.NVMLError_NotSupported:
        return None


def test_boards_have_an_identity(nvml: Any) -> None:
    assert boards(nvml)
    uuids = [nvml.nvmlDeviceGetUUID(board) for board in boards(nvml)]
    assert len(set(uuids)) == len(uuids)
    for board, uuid in zip(boards(nvml), uuids, strict=True):
        assert uuid.startswith("GPU-")
        assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(uuid)) == uuid
        assert nvml.nvmlDeviceGetName(board)
        assert nvml.nvmlDeviceGetMinorNumber(board) >= 0
        assert nvml.nvmlDeviceGetPciInfo(board).busId
        assert not bool(nvml.nvmlDeviceIsMigDeviceHandle(board))


def test_memory_adds_up(nvml: Any) -> None:
    for board in boards(nvml):
        info = nvml.nvmlDeviceGetMemoryInfo(board, version=nvml.nvmlMemory_v2)
        assert info.total >= info.used + info.free
        assert info.total > 1 << 30


def test_a_board_that_does_not_exist_is_an_invalid_argument(nvml: Any) -> None:
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(nvml.nvmlDeviceGetCount())


def test_profiles_only_in_mig_mode(nvml: Any) -> None:
    for board in boards(nvml):
        if mode(nvml, board) != 1:
            with pytest.raises(nvml.NVMLError_NotSupported):
                nvml.nvmlDeviceGetGpuInstanceProfileInfo(board, 0)


def test_enum_ends_with_invalid_argument(nvml: Any) -> None:
    for board in mig_boards(nvml):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            nvml.nvmlDeviceGetGpuInstanceProfileInfo(board, 64)


def test_profiles_and_placements_fit_one_axis(nvml: Any) -> None:
    for board in mig_boards(nvml):
        profiles = discover_profiles(nvml, board)
        axis = memory_axis(profiles)
        assert axis in (4, 8, 12)
        assert len({p.profile_id for p in profiles}) == len(profiles)
        assert len({p.name for p in profiles}) == len(profiles)
        for profile in profiles:
            assert profile.memory_bytes > 1 << 30
            assert profile.compute_slices >= 1
            assert not profile.name.startswith("MIG")
            assert all(start >= 0 and start + profile.size <= axis for start in profile.starts)
        assert any(p.starts == (0,) and p.size == axis for p in profiles)


def test_remaining_capacity_is_at_most_the_profile_s_own(nvml: Any) -> None:
    for board in mig_boards(nvml):
        for profile in discover_profiles(nvml, board):
            left = nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(board, profile.profile_id)
            assert 0 <= left <= profile.max_instances


def test_instances_are_listed_once_and_do_not_overlap(nvml: Any) -> None:
    for board in mig_boards(nvml):
        found = instances(nvml, board, discover_profiles(nvml, board))
        for before, after in pairwise(found):
            assert before.start + before.size <= after.start


def test_mig_index_beyond_all_is_not_found(nvml: Any) -> None:
    for board in mig_boards(nvml):
        with pytest.raises((nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument)):
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, nvml.nvmlDeviceGetMaxMigDeviceCount(board) + 1)


def test_no_event_is_a_timeout(nvml: Any) -> None:
    events = nvml.nvmlEventSetCreate()
    board = boards(nvml)[0]
    nvml.nvmlDeviceRegisterEvents(board, nvml.nvmlEventTypeXidCriticalError, events)
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 1)
    nvml.nvmlEventSetFree(events)


def test_placements_may_be_counted_first(nvml: Any) -> None:
    for board in mig_boards(nvml):
        profile = discover_profiles(nvml, board)[0]
        count = nvml.c_uint(0)
        nvml.nvmlDeviceGetGpuInstancePossiblePlacements(board, profile.profile_id, None, byref(count))
        assert count.value == len(profile.starts)


def test_reader_sees_every_board(nvml: Any) -> None:
    reader = NvmlReader(nvml=nvml, node="n", boot_id=lambda: "b", simulated=False, owns=lambda *_: False)
    seen = reader.inventory()
    assert len(seen.gpus) == nvml.nvmlDeviceGetCount()
    assert [g.problem for g in seen.gpus] == [None] * len(seen.gpus)
    assert seen.driver_version
    for gpu in seen.gpus:
        assert gpu.mig == bool(gpu.axis) == bool(gpu.profiles)
        assert gpu.compute_capability
        assert gpu.island <= gpu.index
        assert all(p.device_uuid for p in gpu.processes)
