"""The agent as a process: kill -9 at every step, hangs, reboots, deadlines, hostile and clumsy peers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path

import pytest
from allotment_spawner.core.errors import AgentUnavailable, DeviceBusy, FlavorUnavailable
from allotment_spawner.core.inventory import NodeInventory
from allotment_testing.agent_process import AgentProcess, eventually

ENSURE_STEPS = [
    "ensure:asserted",
    "ensure:begun",
    "ensure:instance made",
    "ensure:compute made",
    "ensure:entry written",
    "ensure:finished",
]
DESTROY_STEPS = [
    "destroy:asserted",
    "destroy:begun",
    "destroy:entry removed",
    "destroy:compute removed",
    "destroy:instance removed",
    "destroy:finished",
]
QUICK = {"inventory": 1.5, "ensure": 1.5, "destroy": 1.5}


def half_made(inventory: NodeInventory) -> list[str]:
    return [s.profile for g in inventory.gpus for s in g.slices if s.uuid is None]


@pytest.mark.parametrize("victim", ["worker", "agent"])
@pytest.mark.parametrize("step", ENSURE_STEPS)
async def test_killed_while_a_slice_is_made(tmp_path: Path, step: str, victim: str) -> None:
    async with AgentProcess(tmp_path, dies_at=(step, victim)) as agent:
        gpu = (await agent.client.inventory()).gpus[0].uuid
        with pytest.raises(AgentUnavailable):
            await agent.client.ensure_slice(gpu, "2g.20gb", 2)
        assert agent.died
        if victim == "agent":
            await agent.restart()
        after = await agent.client.inventory()
        assert half_made(after) == []
        assert all(s.ours for g in after.gpus for s in g.slices)
        made = await agent.client.ensure_slice(gpu, "2g.20gb", 2)
        assert (await agent.client.inventory()).gpus[0].slices == (made,)


@pytest.mark.parametrize("victim", ["worker", "agent"])
@pytest.mark.parametrize("step", DESTROY_STEPS)
async def test_killed_while_a_slice_is_removed(tmp_path: Path, step: str, victim: str) -> None:
    async with AgentProcess(tmp_path, dies_at=(step, victim)) as agent:
        gpu = (await agent.client.inventory()).gpus[0].uuid
        await agent.client.ensure_slice(gpu, "2g.20gb", 2)
        with pytest.raises(AgentUnavailable):
            await agent.client.destroy_slice(gpu, "2g.20gb", 2)
        assert agent.died
        if victim == "agent":
            await agent.restart()
        assert half_made(await agent.client.inventory()) == []
        await agent.client.destroy_slice(gpu, "2g.20gb", 2)
        assert (await agent.client.inventory()).gpus[0].slices == ()
        # The place is really free: something else fits over it.
        await agent.client.ensure_slice(gpu, "4g.40gb", 0)


async def test_worker_dies_with_its_agent(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        worker = (await agent.client.health()).worker_pid
        assert worker is not None
        await agent.kill()

        async def gone() -> bool:
            status = Path(f"/proc/{worker}/status")
            return not status.exists() or "\nState:\tZ" in status.read_text()

        await eventually(gone)


async def test_killed_worker_is_replaced(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        first = (await agent.client.health()).worker_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)

        async def another() -> bool:
            try:
                return bool((await agent.client.inventory()).gpus)
            except AgentUnavailable:
                return False

        await eventually(another)
        assert (await agent.client.health()).worker_pid != first


@pytest.mark.parametrize("verb", ["inventory", "ensure_slice", "destroy_slice"])
async def test_hang_condemns_one_gpu_only(tmp_path: Path, verb: str) -> None:
    async with AgentProcess(tmp_path, deadlines=QUICK) as agent:
        bad, good, _ = (g.uuid for g in (await agent.client.inventory()).gpus)
        made = await agent.client.ensure_slice(bad, "1g.10gb", 0)
        await agent.client.inventory()
        agent.control.hang(bad, verb)
        if verb == "ensure_slice":
            with pytest.raises(AgentUnavailable, match="not known"):
                await agent.client.ensure_slice(bad, "1g.10gb", 1)
        elif verb == "destroy_slice":
            with pytest.raises(AgentUnavailable, match="not known"):
                await agent.client.destroy_slice(bad, "1g.10gb", 0)
        seen = await agent.client.inventory()
        assert [g.uuid for g in seen.gpus if g.problem] == [bad]
        # Unknown is not gone: its slices are shown as they were last seen.
        assert made in seen.gpus[0].slices
        assert (await agent.client.ensure_slice(good, "1g.10gb", 0)).uuid
        for change in (agent.client.ensure_slice, agent.client.destroy_slice):
            with pytest.raises(AgentUnavailable, match="unhealthy"):
                await change(bad, "1g.10gb", 3)


async def test_condemned_gpu_stays_so_over_a_restart_until_healed(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, deadlines=QUICK) as agent:
        bad = (await agent.client.inventory()).gpus[0].uuid
        agent.control.hang(bad, "*")
        assert (await agent.client.inventory()).gpus[0].problem
        await agent.restart()
        assert (await agent.client.inventory()).gpus[0].problem
        assert [u.gpu_uuid for u in (await agent.client.health()).unhealthy] == [bad]
        agent.control.unhang(bad)
        assert (await agent.client.inventory()).gpus[0].problem
        await agent.client.heal(bad)
        assert (await agent.client.inventory()).gpus[0].problem is None


async def test_change_cut_short_by_a_hang_is_settled_after_heal(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, deadlines=QUICK) as agent:
        gpu = (await agent.client.inventory()).gpus[0].uuid
        agent.control.hang(gpu, "nvmlGpuInstanceCreateComputeInstance")
        with pytest.raises(AgentUnavailable):
            await agent.client.ensure_slice(gpu, "3g.40gb", 4)
        agent.control.unhang(gpu)
        await agent.client.heal(gpu)
        await agent.client.destroy_slice(gpu, "3g.40gb", 4)
        assert (await agent.client.inventory()).gpus[0].slices == ()


async def test_reboot_clears_marks_and_slices(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, deadlines=QUICK) as agent:
        before = await agent.client.inventory()
        bad, good, _ = (g.uuid for g in before.gpus)
        await agent.client.ensure_slice(good, "1g.10gb", 0)
        agent.control.hang(bad, "*")
        assert (await agent.client.inventory()).gpus[0].problem
        agent.control.reboot()
        after = await agent.client.inventory()
        assert after.boot_id != before.boot_id
        assert [g.problem for g in after.gpus] == [None, None, None]
        assert [g.slices for g in after.gpus] == [(), (), ()]
        assert (await agent.client.health()).unhealthy == ()


async def test_lost_gpu_is_reported_and_others_go_on(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        lost, good, _ = (g.uuid for g in (await agent.client.inventory()).gpus)
        made = await agent.client.ensure_slice(lost, "1g.10gb", 0)
        await agent.client.inventory()
        agent.control.fault(lost, 79)
        seen = await agent.client.inventory()
        assert "GPU_IS_LOST" in (seen.gpus[0].problem or "")
        assert seen.gpus[0].slices == (made,)
        assert (await agent.client.ensure_slice(good, "1g.10gb", 0)).uuid
        with pytest.raises(AgentUnavailable):
            await agent.client.destroy_slice(lost, "1g.10gb", 0)


async def test_application_xid_is_no_fault_but_others_are(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        gpu = (await agent.client.inventory()).gpus[0].uuid
        agent.control.fault(gpu, 31)
        assert (await agent.client.inventory()).gpus[0].problem is None
        agent.control.fault(gpu, 94)
        assert "Xid 94" in ((await agent.client.inventory()).gpus[0].problem or "")
        await agent.restart()
        assert "Xid 94" in ((await agent.client.inventory()).gpus[0].problem or "")


async def test_every_gpu_has_the_deadline_for_itself(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, deadlines={"inventory": 2.0}) as agent:
        await agent.client.inventory()
        agent.control.latency(0.8, "nvmlDeviceGetComputeRunningProcesses")
        assert [g.problem for g in (await agent.client.inventory()).gpus] == [None, None, None]


async def test_change_waits_for_no_other_gpu(tmp_path: Path) -> None:
    """A change of one GPU is to be settled at the start and hangs; the change of another one is made."""
    async with AgentProcess(
        tmp_path, deadlines=QUICK | {"ensure": 5}, dies_at=("ensure:instance made", "agent")
    ) as agent:
        bad, good, _ = (g.uuid for g in (await agent.client.inventory()).gpus)
        with pytest.raises(AgentUnavailable):
            await agent.client.ensure_slice(bad, "1g.10gb", 0)
        await agent.kill()
        agent.control.hang(bad, "nvmlGpuInstanceDestroy")
        await agent.start()
        assert (await agent.client.ensure_slice(good, "1g.10gb", 0)).uuid
        assert [u.gpu_uuid for u in (await agent.client.health()).unhealthy] == [bad]


async def test_faulty_gpu_takes_no_new_slice_but_gives_up_old_ones(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        gpu = (await agent.client.inventory()).gpus[0].uuid
        await agent.client.ensure_slice(gpu, "1g.10gb", 0)
        agent.control.fault(gpu, 94)
        assert (await agent.client.inventory()).gpus[0].problem
        with pytest.raises(AgentUnavailable, match="Xid 94"):
            await agent.client.ensure_slice(gpu, "1g.10gb", 1)
        await agent.client.destroy_slice(gpu, "1g.10gb", 0)
        assert (await agent.client.inventory()).gpus[0].slices == ()


async def test_client_deadline(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        gpu = (await agent.client.inventory()).gpus[0].uuid
        agent.control.hang(gpu, "*", 30)
        hurried = type(agent.client)(socket_path=agent.socket, deadline_s=0.2)
        with pytest.raises(AgentUnavailable, match=r"0\.2 s"):
            await hurried.inventory()
        # The front itself is never stuck.
        assert (await hurried.health()).worker_pid


async def raw(agent: AgentProcess, *lines: bytes) -> list[bytes]:
    reader, writer = await asyncio.open_unix_connection(str(agent.socket))
    writer.writelines(lines)
    writer.write_eof()
    replies = [line async for line in reader]
    writer.close()
    return replies


async def test_malformed_messages_are_answered(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        broken = [
            b"\n",
            b"hello\n",
            b"[]\n",
            b'{"verb": "reboot"}\n',
            b'{"verb": "ensure_slice", "gpu_uuid": "GPU-1", "profile": "1g.10gb", "start": "0"}\n',
            b'{"verb": "ensure_slice", "gpu_uuid": "GPU-1", "profile": "1g.10gb", "start": 99999999999}\n',
            b'{"verb": "ensure_slice", "gpu_uuid": "GPU-1", "profile": "1g.10gb", "start": true}\n',
            b'{"verb": "inventory", "extra": 1}\n',
            b'{"verb": "inventory", "id": -1}\n',
            b"\xff\xfe\x00\n",
        ]
        replies = [json.loads(line) for line in await raw(agent, *broken, b'{"verb": "health", "id": 7}\n')]
        assert len(replies) == len(broken) + 1
        assert {r["problem"]["code"] for r in replies[:-1]} == {"bad_options"}
        assert replies[-1]["id"] == 7
        assert replies[-1]["problem"] is None


async def test_oversized_and_torn_messages_end_only_that_peer(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        [reply] = await raw(agent, b"x" * 100_000 + b"\n", b'{"verb": "health"}\n')
        assert b"bytes" in reply
        assert await raw(agent, b'{"verb": "hea') == []
        assert (await agent.client.health()).ok


async def test_unknown_devices_are_refused(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        whole = (await agent.client.inventory()).gpus[2]
        mig = (await agent.client.inventory()).gpus[0].uuid
        for gpu, profile, start in [
            ("GPU-none", "1g.10gb", 0),
            (whole.uuid, "1g.10gb", 0),
            (mig, "9g.90gb", 0),
            (mig, "2g.20gb", 1),
            (mig, "1g.10gb", 63),
        ]:
            with pytest.raises(FlavorUnavailable):
                await agent.client.ensure_slice(gpu, profile, start)


async def test_refusal_keeps_its_details_over_the_socket(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        gpu = (await agent.client.inventory()).gpus[0].uuid
        made = await agent.client.ensure_slice(gpu, "1g.10gb", 0)
        assert made.uuid is not None
        pid = agent.control.load(made.uuid, name="trainer")
        with pytest.raises(DeviceBusy, match=rf"process {pid} \(trainer\)") as busy:
            await agent.client.destroy_slice(gpu, "1g.10gb", 0)
        assert busy.value.details["pids"] == [pid]


async def test_sigterm_stops_cleanly(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        assert agent.process is not None
        assert stat.S_IMODE(agent.socket.stat().st_mode) == 0o600
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.process.wait() == 0
        assert not agent.socket.exists()
        with pytest.raises(AgentUnavailable):
            await agent.client.inventory()


async def test_stale_socket_is_taken_over_but_a_living_agent_is_not_robbed(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        await agent.restart()  # kill -9 left the socket behind
        second = await asyncio.create_subprocess_exec(*agent.command(), stderr=asyncio.subprocess.PIPE)
        _, said = await second.communicate()
        assert second.returncode == 2
        assert b"already runs" in said
        assert (await agent.client.inventory()).gpus


@pytest.mark.parametrize(
    ("gpus", "word"), [("sim:3xFOO", b"FOO"), ("tpu", b"--gpus takes"), ("sim:0xA100", b"1 to 1024")]
)
async def test_bad_hardware_is_one_sentence(tmp_path: Path, gpus: str, word: bytes) -> None:
    command = AgentProcess(tmp_path, spec=gpus).command()
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 2
    assert word in said
    assert b"Traceback" not in said


async def test_node_without_gpus(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec="none") as agent:
        seen = await agent.client.inventory()
        assert seen.gpus == ()
        assert seen.driver_version is None
        assert not seen.simulated
        with pytest.raises(FlavorUnavailable):
            await agent.client.ensure_slice("GPU-1", "1g.10gb", 0)


async def test_many_callers_at_once(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path) as agent:
        gpu = (await agent.client.inventory()).gpus[0].uuid
        made = await asyncio.gather(
            *(agent.client.ensure_slice(gpu, "1g.10gb", start) for start in range(7)),
            *(agent.client.ensure_slice(gpu, "1g.10gb", start) for start in range(7)),
        )
        assert len({s.uuid for s in made}) == 7
