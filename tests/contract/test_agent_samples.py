"""Samples from the agent: one GPU that hangs or is lost costs no other, and cutting is not kept waiting."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.core.samples import DeviceSample, NodeSamples
from allotment_spawner.gpu.agent_client import UnixAgent
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_spawner.gpu.simulator.state import SimWork
from allotment_testing.agent_process import AgentProcess, eventually
from allotment_testing.agents import InProcessAgent

SPEC = "sim:1xH100:mig,1xA100-80GB:mig,2xA100-80GB:whole"
QUICK = {"sample": 1.0, "inventory": 5.0}
GIB = 1 << 30


class Node:
    def __init__(self, agent: InProcessAgent | UnixAgent, control: SimControl) -> None:
        self.agent = agent
        self.control = control
        self.gpus = [g.uuid for g in control.state().gpus]


@pytest.fixture(params=["in process", "socket"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Node]:
    if request.param == "in process":
        agent = InProcessAgent(tmp_path / "sim.json", SPEC)
        yield Node(agent, agent.control)
        return
    async with AgentProcess(tmp_path, spec=SPEC) as process:
        yield Node(process.client, process.control)


def by_device(samples: NodeSamples) -> dict[str, DeviceSample]:
    return {s.device_uuid: s for s in samples.devices}


async def test_every_gpu_and_slice_is_told(node: Node) -> None:
    made = await node.agent.ensure_slice(node.gpus[0], "2g.20gb", 0)
    assert made.uuid is not None
    node.control.load(made.uuid, used_bytes=6 * GIB, work=SimWork(sm_percent=40, power_w=200))
    node.control.load(node.gpus[2], used_bytes=GIB, work=SimWork(sm_percent=75))
    samples = await node.agent.samples()
    assert samples.simulated
    assert samples.unread == {}
    found = by_device(samples)
    assert set(found) == {*node.gpus, made.uuid}
    assert found[made.uuid].gpu_uuid == node.gpus[0]
    assert (found[made.uuid].memory_used_bytes, found[made.uuid].processes) == (6 * GIB, 1)
    assert (found[node.gpus[0]].power_w, found[node.gpus[0]].sm_percent) == (200, None)
    assert (found[node.gpus[2]].sm_percent, found[node.gpus[3]].sm_percent) == (75, 0)


async def test_gpm_tells_from_the_second_round_on(node: Node) -> None:
    made = await node.agent.ensure_slice(node.gpus[0], "1g.10gb", 0)
    assert made.uuid is not None
    node.control.load(made.uuid, work=SimWork(sm_percent=40, bandwidth_percent=5))
    assert by_device(await node.agent.samples())[made.uuid].sm_percent is None
    for _ in range(50):
        found = by_device(await node.agent.samples())[made.uuid]
        if found.sm_percent is not None:
            break
        await asyncio.sleep(0.02)
    assert (found.sm_percent, found.memory_bandwidth_percent) == (40, 5)


async def test_an_xid_is_in_the_samples_and_in_the_health(node: Node) -> None:
    await node.agent.samples()
    node.control.fault(node.gpus[2], 31)
    node.control.fault(node.gpus[2], 48)
    assert by_device(await node.agent.samples())[node.gpus[2]].xids == (31, 48)
    problems = [g.problem for g in (await node.agent.inventory()).gpus]
    assert problems == [None, None, "the driver reported Xid 48", None]
    assert by_device(await node.agent.samples())[node.gpus[2]].xids == ()


async def test_an_xid_that_the_inventory_read_is_in_the_next_samples(node: Node) -> None:
    await node.agent.inventory()
    node.control.fault(node.gpus[3], 13)
    assert [g.problem for g in (await node.agent.inventory()).gpus] == [None] * 4
    assert by_device(await node.agent.samples())[node.gpus[3]].xids == (13,)


async def test_a_lost_gpu_is_unread_and_the_rest_is_told(node: Node) -> None:
    await node.agent.samples()
    node.control.fault(node.gpus[2], 79)
    samples = await node.agent.samples()
    assert set(by_device(samples)) == {node.gpus[0], node.gpus[1], node.gpus[3]}
    assert "fallen off the bus" in samples.unread[node.gpus[2]]


async def test_a_gpu_that_hangs_is_marked_and_the_rest_is_told(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec=SPEC, deadlines=QUICK) as agent:
        gpus = [g.uuid for g in (await agent.client.inventory()).gpus]
        agent.control.hang(gpus[1], "sample")
        samples = await agent.client.samples()
        assert set(by_device(samples)) == {gpus[0], gpus[2], gpus[3]}
        assert "did not return within 1 s, sampling it" in samples.unread[gpus[1]]
        assert [u.gpu_uuid for u in (await agent.client.health()).unhealthy] == [gpus[1]]
        # It is not touched again: the next round is as quick as without it.
        began = time.monotonic()
        again = await agent.client.samples()
        assert time.monotonic() - began < 1.0
        assert set(again.unread) == {gpus[1]}
        seen = (await agent.client.inventory()).gpus[1]
        assert seen.problem is not None
        agent.control.unhang(gpus[1])
        await agent.client.heal(gpus[1])
        assert (await agent.client.samples()).unread == {}


async def test_all_gpus_hanging_is_an_answer_too(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec="sim:2xA100-80GB:whole", deadlines={"sample": 0.5}) as agent:
        gpus = [g.uuid for g in (await agent.client.inventory()).gpus]
        for gpu in gpus:
            agent.control.hang(gpu, "sample")
        samples = await agent.client.samples()
        assert samples.devices == ()
        assert set(samples.unread) == set(gpus)


async def test_cutting_waits_for_one_gpu_at_the_most(tmp_path: Path) -> None:
    """Eight GPUs that take a quarter of a second each: the slice is there long before the samples are."""
    async with AgentProcess(tmp_path, spec="sim:8xA100-80GB:mig", deadlines={"sample": 20}) as agent:
        gpu = (await agent.client.inventory()).gpus[7].uuid
        agent.control.latency(0.25, "nvmlDeviceGetPowerUsage")
        sampling = asyncio.create_task(agent.client.samples())
        await asyncio.sleep(0.1)  # so that the first reading has begun; later is as good
        began = time.monotonic()
        await agent.client.ensure_slice(gpu, "1g.10gb", 0)
        cut_s = time.monotonic() - began
        assert not sampling.done()
        samples = await sampling
        sampled_s = time.monotonic() - began
        assert len(samples.devices) >= 8
        assert cut_s < sampled_s / 2


async def test_a_worker_that_dies_while_it_samples_is_replaced(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec=SPEC) as agent:
        agent.control.latency(0.5, "nvmlDeviceGetPowerUsage")
        sampling = asyncio.create_task(agent.client.samples())
        await asyncio.sleep(0.2)  # any moment of the round will do
        pid = (await agent.client.health()).worker_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(AgentUnavailable):
            await sampling
        agent.control.latency(0, "nvmlDeviceGetPowerUsage")
        await eventually(lambda: _all_told(agent))


async def test_slices_come_and_go_while_everything_is_sampled(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec="sim:2xH100:mig") as agent:
        gpus = [g.uuid for g in (await agent.client.inventory()).gpus]
        cutting = asyncio.create_task(_cut_and_remove(agent, gpus))
        rounds: list[NodeSamples] = []
        while not cutting.done():
            rounds.append(await agent.client.samples())
        await cutting
        assert len(rounds) > 3
        assert [r.unread for r in rounds] == [{}] * len(rounds)
        assert all({s.gpu_uuid for s in r.devices} == set(gpus) for r in rounds)
        assert any(len(r.devices) > 2 for r in rounds)
        assert (await agent.client.health()).unhealthy == ()


async def _cut_and_remove(agent: AgentProcess, gpus: list[str]) -> None:
    for turn in range(16):
        await agent.client.ensure_slice(gpus[turn % 2], "1g.10gb", turn % 7)
        if turn % 3:
            await agent.client.destroy_slice(gpus[turn % 2], "1g.10gb", turn % 7)


async def _all_told(agent: AgentProcess) -> bool:
    samples = await agent.client.samples()
    return len(samples.devices) == 4 and not samples.unread


async def test_a_node_without_gpus_has_no_samples(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec="none") as agent:
        samples = await agent.client.samples()
        assert (samples.devices, samples.unread, samples.simulated) == ((), {}, False)
