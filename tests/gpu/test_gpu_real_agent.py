"""The whole agent on a machine with a driver: it reads, and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from allotment_spawner.core.errors import FlavorUnavailable
from allotment_testing.agent_process import AgentProcess

pytestmark = pytest.mark.gpu


async def test_inventory_of_real_gpus(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec="nvml", deadlines={"inventory": 30}) as agent:
        first, second = await agent.client.inventory(), await agent.client.inventory()
        assert first.gpus
        assert not first.simulated
        assert first.driver_version
        assert [g.problem for g in first.gpus] == [None] * len(first.gpus)
        assert [g.uuid for g in first.gpus] == [g.uuid for g in second.gpus]
        assert first.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def test_samples_of_real_gpus(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec="nvml", deadlines={"inventory": 30, "sample": 30}) as agent:
        present = (await agent.client.inventory()).gpus
        await agent.client.samples()
        await asyncio.sleep(0.3)  # GPM's counters need that long
        samples = await agent.client.samples()
        assert samples.unread == {}
        assert not samples.simulated
        devices = {s.device_uuid: s for s in samples.devices}
        assert set(devices) == {g.uuid for g in present} | {
            s.uuid for g in present for s in g.slices if s.uuid
        }
        for gpu in present:
            assert devices[gpu.uuid].memory_total_bytes is not None
            assert gpu.mig == (devices[gpu.uuid].sm_percent is None)


async def test_gpu_without_mig_mode_is_not_cut(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path, spec="nvml", deadlines={"inventory": 30}) as agent:
        for gpu in (await agent.client.inventory()).gpus:
            if not gpu.mig:
                with pytest.raises(FlavorUnavailable, match="MIG"):
                    await agent.client.ensure_slice(gpu.uuid, "1g.10gb", 0)
