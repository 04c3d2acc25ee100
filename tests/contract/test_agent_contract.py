"""The same promises from the agent in process and from the agent behind its socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from ctypes import byref
from pathlib import Path
from typing import Any

import pytest
from allotment_spawner.core.errors import DeviceBusy, FlavorUnavailable
from allotment_spawner.gpu.agent_client import UnixAgent
from allotment_spawner.gpu.nvml.calls import compute_profile, discover_profiles
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import StateFile
from allotment_testing.agent_process import AgentProcess
from allotment_testing.agents import InProcessAgent

SPEC = "sim:2xA100-80GB:mig,1xA100-80GB:whole"


class Node:
    """An agent, the machine below it, and somebody else who cuts on that machine."""

    def __init__(self, agent: InProcessAgent | UnixAgent, state_path: Path) -> None:
        self.agent = agent
        self.control = SimControl(state_path)
        self.nvml: Any = SimulatedNvml(state=StateFile(state_path))
        self.nvml.nvmlInit()
        self.gpus = [g.uuid for g in self.control.state().gpus]

    def foreign(self, profile: str, start: int, *, half: bool = False) -> None:
        """As with nvidia-smi, past the agent."""
        board = self.nvml.nvmlDeviceGetHandleByIndex(0)
        wanted = next(p for p in discover_profiles(self.nvml, board) if p.name == profile)
        placement = self.nvml.c_nvmlGpuInstancePlacement_t(start, wanted.size)
        made = self.nvml.nvmlDeviceCreateGpuInstanceWithPlacement(board, wanted.profile_id, byref(placement))
        if not half:
            self.nvml.nvmlGpuInstanceCreateComputeInstance(made, compute_profile(self.nvml, made))


@pytest.fixture(params=["in process", "socket"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Node]:
    if request.param == "in process":
        yield Node(InProcessAgent(tmp_path / "sim.json", SPEC), tmp_path / "sim.json")
        return
    async with AgentProcess(tmp_path, spec=SPEC) as process:
        yield Node(process.client, process.state_dir / "sim.json")


async def test_inventory(node: Node) -> None:
    seen = await node.agent.inventory()
    assert seen.simulated
    assert seen.boot_id == node.control.state().boot_id
    assert [(g.mig, g.axis, g.island) for g in seen.gpus] == [(True, 8, 0), (True, 8, 0), (False, 0, 2)]
    assert {p.name for p in seen.gpus[0].profiles} >= {"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"}


async def test_ensure_is_idempotent(node: Node) -> None:
    first = await node.agent.ensure_slice(node.gpus[0], "2g.20gb", 2)
    assert await node.agent.ensure_slice(node.gpus[0], "2g.20gb", 2) == first
    assert first.uuid is not None
    assert (first.start, first.size, first.ours) == (2, 2, True)
    assert (await node.agent.inventory()).gpus[0].slices == (first,)


async def test_destroy_is_idempotent(node: Node) -> None:
    await node.agent.ensure_slice(node.gpus[0], "2g.20gb", 2)
    await node.agent.destroy_slice(node.gpus[0], "2g.20gb", 2)
    await node.agent.destroy_slice(node.gpus[0], "2g.20gb", 2)
    assert (await node.agent.inventory()).gpus[0].slices == ()


async def test_what_overlaps_is_named(node: Node) -> None:
    await node.agent.ensure_slice(node.gpus[0], "2g.20gb", 2)
    with pytest.raises(DeviceBusy, match=r"2g\.20gb at memory slices 2 to 3"):
        await node.agent.ensure_slice(node.gpus[0], "3g.40gb", 0)
    assert len((await node.agent.inventory()).gpus[0].slices) == 1


async def test_slice_in_use_is_not_removed(node: Node) -> None:
    made = await node.agent.ensure_slice(node.gpus[0], "2g.20gb", 2)
    assert made.uuid is not None
    pid = node.control.load(made.uuid)
    with pytest.raises(DeviceBusy, match=str(pid)):
        await node.agent.destroy_slice(node.gpus[0], "2g.20gb", 2)
    seen = await node.agent.inventory()
    assert seen.gpus[0].slices == (made,)
    assert [(p.pid, p.device_uuid) for p in seen.gpus[0].processes] == [(pid, made.uuid)]
    node.control.unload(pid=pid)
    await node.agent.destroy_slice(node.gpus[0], "2g.20gb", 2)


async def test_program_on_the_board_is_named_when_it_blocks_cutting(node: Node) -> None:
    pid = node.control.load(node.gpus[0], name="dcgm")
    with pytest.raises(DeviceBusy, match=rf"process {pid} \(dcgm\)"):
        await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)
    assert (await node.agent.inventory()).gpus[0].slices == ()
    node.control.unload()
    await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)


async def test_foreign_slice_is_left_alone_until_it_is_adopted(node: Node) -> None:
    node.foreign("1g.10gb", 0)
    [seen] = (await node.agent.inventory()).gpus[0].slices
    assert not seen.ours
    with pytest.raises(DeviceBusy, match="somebody else"):
        await node.agent.destroy_slice(node.gpus[0], "1g.10gb", 0)
    with pytest.raises(DeviceBusy):
        await node.agent.ensure_slice(node.gpus[0], "2g.20gb", 0)
    adopted = await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)
    assert (adopted.uuid, adopted.ours) == (seen.uuid, True)
    await node.agent.destroy_slice(node.gpus[0], "1g.10gb", 0)


async def test_foreign_half_made_instance_is_in_the_way(node: Node) -> None:
    node.foreign("1g.10gb", 0, half=True)
    [seen] = (await node.agent.inventory()).gpus[0].slices
    assert (seen.uuid, seen.ours) == (None, False)
    with pytest.raises(DeviceBusy):
        await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)


async def test_slice_removed_behind_our_back_is_made_again(node: Node) -> None:
    await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)
    board = node.nvml.nvmlDeviceGetHandleByIndex(0)
    handle = node.nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, 0)
    instance = node.nvml.nvmlDeviceGetGpuInstanceById(board, node.nvml.nvmlDeviceGetGpuInstanceId(handle))
    array, count = (node.nvml.c_nvmlComputeInstance_t * 1)(), node.nvml.c_uint(1)
    node.nvml.nvmlGpuInstanceGetComputeInstances(instance, 0, array, byref(count))
    node.nvml.nvmlComputeInstanceDestroy(array[0])
    [half] = (await node.agent.inventory()).gpus[0].slices
    assert (half.uuid, half.ours) == (None, True)
    assert (await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)).uuid


async def test_impossible_wishes(node: Node) -> None:
    for gpu, profile, start in [
        ("GPU-none", "1g.10gb", 0),
        (node.gpus[2], "1g.10gb", 0),
        (node.gpus[0], "1g.5gb", 0),
        (node.gpus[0], "2g.20gb", 1),
    ]:
        with pytest.raises(FlavorUnavailable):
            await node.agent.ensure_slice(gpu, profile, start)


async def test_slice_that_went_with_the_mode_is_gone(node: Node) -> None:
    await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)
    node.control.reboot()
    node.control.set_mig_mode(node.gpus[0], False)
    await node.agent.destroy_slice(node.gpus[0], "1g.10gb", 0)


async def test_reboot_takes_slices_and_their_ownership(node: Node) -> None:
    await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)
    before = (await node.agent.inventory()).boot_id
    node.control.reboot()
    after = await node.agent.inventory()
    assert after.boot_id != before
    assert after.gpus[0].slices == ()
    node.foreign("1g.10gb", 0)
    assert not (await node.agent.inventory()).gpus[0].slices[0].ours
