"""The reader and the partitioner against drivers that misbehave in one way each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pynvml
import pytest
from allotment_spawner.core.errors import AgentUnavailable, DeviceBusy
from allotment_spawner.core.inventory import NodeInventory
from allotment_spawner.gpu.cdi import CdiEntries
from allotment_spawner.gpu.journal import Change, Journal
from allotment_spawner.gpu.nvml.calls import error_word
from allotment_spawner.gpu.nvml.islands import islands
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.partitioner import Partitioner
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import StateFile


class FailsOnce:
    """The simulator, with one call that fails with one code: on one GPU index, or for all (None)."""

    def __init__(self, nvml: Any, call: str, code: int, *, index: int | None = None, times: int = 1) -> None:
        self._nvml = nvml
        self._call = call
        self._code = code
        self._index = index
        self._times = times

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        if name != self._call:
            return found

        def fails(handle: Any, *rest: Any, **named: Any) -> Any:
            on_it = self._index is None or self._nvml.decode(handle)[1] == self._index
            if on_it and self._times > 0:
                self._times -= 1
                raise pynvml.NVMLError(self._code)
            return found(handle, *rest, **named)

        return fails


class Node:
    def __init__(self, folder: Path, spec: str = "sim:2xA100-80GB") -> None:
        self.state = StateFile(folder / "sim.json")
        self.state.create(spec)
        self.nvml: Any = SimulatedNvml(state=self.state)
        self.nvml.nvmlInit()
        self.control = SimControl(self.state.path)
        self.journal = Journal(path=folder / "journal.json")
        self.journal.boot("b")
        self.cdi_folder = folder / "cdi"
        self.gpu = self.state.read().gpus[0].uuid

    def reader(self, nvml: Any = None) -> NvmlReader:
        return NvmlReader(
            nvml=nvml or self.nvml, node="n", boot_id=lambda: "b", simulated=True, owns=self.journal.owns
        )

    def partitioner(self, nvml: Any = None) -> Partitioner:
        return Partitioner(
            nvml=nvml or self.nvml,
            reader=self.reader(nvml),
            journal=self.journal,
            cdi=CdiEntries(folder=self.cdi_folder, base_folders=()),
        )

    def read(self) -> NodeInventory:
        return self.reader().inventory()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_one_failing_gpu_is_reported_and_the_others_go_on(node: Node) -> None:
    nvml = FailsOnce(
        node.nvml, "nvmlDeviceGetComputeRunningProcesses", pynvml.NVML_ERROR_UNKNOWN, index=0, times=9
    )
    first, second = node.reader(nvml).inventory().gpus
    assert first.problem == "reading it failed with UNKNOWN"
    assert (first.uuid, second.problem) == (node.gpu, None)


def test_gpu_that_cannot_even_say_its_name(node: Node) -> None:
    nvml = FailsOnce(node.nvml, "nvmlDeviceGetUUID", pynvml.NVML_ERROR_GPU_IS_LOST, index=1, times=9)
    first, second = node.reader(nvml).inventory().gpus
    assert first.problem is None
    assert second.uuid == "GPU-unknown-1"
    assert "GPU_IS_LOST" in (second.problem or "")


def test_instance_that_vanishes_while_it_is_read_is_read_again(node: Node) -> None:
    node.partitioner().ensure(node.gpu, "1g.10gb", 0)
    nvml = FailsOnce(node.nvml, "nvmlGpuInstanceGetInfo", pynvml.NVML_ERROR_NOT_FOUND)
    assert [g.problem for g in node.reader(nvml).inventory().gpus] == [None, None]


def test_skipped_gpu_is_not_touched(node: Node) -> None:
    node.control.hang("0")  # touching it would never return
    assert [g.index for g in node.reader().inventory(skip=[0]).gpus] == [1]


def test_driver_version_may_be_unknown(node: Node) -> None:
    class NoVersion:
        def __getattr__(self, name: str) -> Any:
            if name == "nvmlSystemGetDriverVersion":
                return lambda: (_ for _ in ()).throw(pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN))
            return getattr(node.nvml, name)

    assert node.reader(NoVersion()).inventory().driver_version is None


def test_islands_follow_links(tmp_path: Path) -> None:
    node = Node(tmp_path, "sim:2xA100-80GB,1xA30,2xH100,2xH100-PCIe-80GB")
    assert [g.island for g in node.read().gpus] == [0, 0, 2, 3, 3, 5, 6]


def test_switches_make_one_island() -> None:
    class Switched:
        NVML_NVLINK_MAX_LINKS = 3
        NVML_NVLINK_DEVICE_TYPE_SWITCH = 2
        NVMLError = pynvml.NVMLError

        def nvmlDeviceGetPciInfo(self, board: int) -> Any:  # noqa: N802
            return type("Pci", (), {"busId": f"0000:0{board}".encode()})

        def nvmlDeviceGetNvLinkState(self, _board: int, link: int) -> int:  # noqa: N802
            return link

        def nvmlDeviceGetNvLinkRemoteDeviceType(self, _board: int, _link: int) -> int:  # noqa: N802
            return 2

    assert islands(Switched(), {0: 0, 1: 1, 2: 2}) == {0: 0, 1: 0, 2: 0}


def test_refused_creation_leaves_nothing_pending(node: Node) -> None:
    nvml = FailsOnce(node.nvml, "nvmlDeviceCreateGpuInstanceWithPlacement", pynvml.NVML_ERROR_IN_USE)
    with pytest.raises(DeviceBusy, match="does not name"):
        node.partitioner(nvml).ensure(node.gpu, "1g.10gb", 0)
    assert node.journal.unsettled() == []
    assert node.read().gpus[0].slices == ()


def test_failing_second_half_is_undone(node: Node) -> None:
    nvml = FailsOnce(node.nvml, "nvmlGpuInstanceCreateComputeInstance", pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(AgentUnavailable, match="UNKNOWN"):
        node.partitioner(nvml).ensure(node.gpu, "1g.10gb", 0)
    assert node.journal.unsettled() == []
    assert node.read().gpus[0].slices == ()


def test_half_destroyed_slice_is_settled_by_the_next_verb(node: Node) -> None:
    node.partitioner().ensure(node.gpu, "1g.10gb", 0)
    nvml = FailsOnce(node.nvml, "nvmlGpuInstanceDestroy", pynvml.NVML_ERROR_IN_USE, times=2)
    with pytest.raises((DeviceBusy, AgentUnavailable)):
        node.partitioner(nvml).destroy(node.gpu, "1g.10gb", 0)
    assert node.journal.unsettled() == [node.gpu]
    assert node.read().gpus[0].slices[0].uuid is None
    node.partitioner().ensure(node.gpu, "2g.20gb", 0)
    assert [s.profile for s in node.read().gpus[0].slices] == ["2g.20gb"]


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGpuInstances",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetComputeRunningProcesses",
    ],
)
def test_driver_that_fails_in_between_is_unknown_never_gone(node: Node, call: str) -> None:
    made = node.partitioner().ensure(node.gpu, "1g.10gb", 0)
    nvml = FailsOnce(node.nvml, call, pynvml.NVML_ERROR_UNKNOWN, times=99)
    with pytest.raises(AgentUnavailable, match="UNKNOWN"):
        node.partitioner(nvml).destroy(node.gpu, "1g.10gb", 0)
        node.partitioner(nvml).ensure(node.gpu, "2g.20gb", 2)
    assert node.partitioner().ensure(node.gpu, "1g.10gb", 0).start == made.start


def test_reading_without_permission_says_what_to_do(node: Node) -> None:
    code = pynvml.NVML_ERROR_NO_PERMISSION
    nvml = FailsOnce(node.nvml, "nvmlDeviceGetGpuInstances", code, index=0, times=9)
    first, second = node.reader(nvml).inventory().gpus
    assert "as root" in (first.problem or "")
    assert second.problem is None


def test_no_permission_says_what_to_do(node: Node) -> None:
    code = pynvml.NVML_ERROR_NO_PERMISSION
    nvml = FailsOnce(node.nvml, "nvmlDeviceCreateGpuInstanceWithPlacement", code)
    with pytest.raises(AgentUnavailable, match="NO_PERMISSION") as refused:
        node.partitioner(nvml).ensure(node.gpu, "1g.10gb", 0)
    assert "root" in refused.value.next_step


def test_entry_comes_and_goes_with_the_slice(node: Node) -> None:
    made = node.partitioner().ensure(node.gpu, "2g.20gb", 4)
    [entry] = node.cdi_folder.iterdir()
    assert json.loads(entry.read_text())["devices"][0]["name"] == made.uuid
    node.partitioner().destroy(node.gpu, "2g.20gb", 4)
    assert list(node.cdi_folder.iterdir()) == []


def test_entry_that_was_lost_is_written_again_by_ensure(node: Node) -> None:
    node.partitioner().ensure(node.gpu, "2g.20gb", 4)
    [entry] = node.cdi_folder.iterdir()
    entry.unlink()
    node.partitioner().ensure(node.gpu, "2g.20gb", 4)
    assert entry.exists()


def test_slice_whose_entry_cannot_be_written_is_not_handed_out(node: Node) -> None:
    node.cdi_folder.write_text("a file where the folder should be")
    with pytest.raises(AgentUnavailable, match="CDI"):
        node.partitioner().ensure(node.gpu, "2g.20gb", 4)
    node.cdi_folder.unlink()
    assert node.partitioner().ensure(node.gpu, "2g.20gb", 4).uuid


def test_journal_survives_and_forgets_at_a_reboot(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    change = Change(verb="ensure", gpu_uuid="GPU-1", profile="1g.10gb", start=0)
    first = Journal(path=path)
    first.boot("one")
    first.begin(change)
    again = Journal(path=path)
    again.boot("one")
    assert again.pending("GPU-1") == [change]
    again.finish(change, owned=True)
    assert Journal(path=path).owns("GPU-1", "1g.10gb", 0)
    again.boot("two")
    assert not Journal(path=path).owns("GPU-1", "1g.10gb", 0)


@pytest.mark.parametrize("text", ["", "{", '{"version": 9}', "[]"])
def test_unreadable_journal_owns_nothing_and_is_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "journal.json"
    path.write_text(text)
    assert not Journal(path=path).owns("GPU-1", "1g.10gb", 0)
    assert path.with_suffix(".unreadable").read_text() == text


def test_error_words() -> None:
    assert error_word(pynvml.NVMLError(pynvml.NVML_ERROR_IN_USE), pynvml) == "IN_USE"
    assert error_word(pynvml.NVMLError(4711), pynvml) == "NVML error 4711"
