"""The hardware accepts what the allocator decides: every placement is cut on the simulator."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from allotment_spawner.core.allocator import (
    Candidate,
    Demand,
    GpuState,
    IdleSlice,
    Placed,
    Placement,
    Request,
    Snapshot,
    Want,
    place,
)
from allotment_spawner.core.geometry import mask
from allotment_spawner.core.inventory import Gpu
from allotment_spawner.gpu.simulator.models import known_models
from allotment_testing.agents import InProcessAgent

POOL = frozenset({"mig"})
STEPS = 60


class Day:
    """People come and go; what is leased is remembered here, everything else is read from the agent."""

    def __init__(self, agent: InProcessAgent, draw: random.Random) -> None:
        self._agent = agent
        self._draw = draw
        self.leased: list[tuple[str, IdleSlice]] = []
        self.granted = self.refused = self.destroyed = self.reused = 0

    async def snapshot(self) -> Snapshot:
        inventory = await self._agent.inventory()
        return Snapshot(tuple(self._state(gpu) for gpu in inventory.gpus))

    def _state(self, gpu: Gpu) -> GpuState:
        media = {profile.name for profile in gpu.profiles if profile.media}
        mine = [piece for uuid, piece in self.leased if uuid == gpu.uuid]
        there = [IdleSlice(piece.profile, piece.start, piece.size) for piece in gpu.slices]
        assert set(mine) <= set(there), "the hardware lost a leased slice"
        return GpuState(
            gpu_uuid=gpu.uuid,
            node="node-1",
            pool="mig",
            mig=gpu.mig,
            axis=gpu.axis,
            island=gpu.island,
            profiles=gpu.profiles,
            taken=sum(mask(piece.start, piece.size) for piece in mine),
            me_taken=any(piece.profile in media for piece in mine),
            idle=tuple(piece for piece in there if piece not in mine),
        )

    async def arrive(self, snapshot: Snapshot) -> None:
        profiles = snapshot.gpus[0].profiles
        names = [p.name for p in profiles if p.name.endswith(("gb", "+me"))]
        want = Want("profile", profile=self._draw.choice(names))
        answer = place(Request((Candidate(POOL, want),)), snapshot, Demand.uniform())
        if not isinstance(answer, Placement):
            self.refused += 1
            return
        await self._cut(answer.devices[0])

    async def _cut(self, device: Placed) -> None:
        assert device.profile is not None and device.start is not None and device.size is not None
        for piece in device.destroy:
            await self._agent.destroy_slice(device.gpu_uuid, piece.profile, piece.start)
        made = await self._agent.ensure_slice(device.gpu_uuid, device.profile, device.start)
        assert (made.profile, made.start, made.size) == (device.profile, device.start, device.size)
        assert made.uuid is not None
        self.leased.append((device.gpu_uuid, IdleSlice(made.profile, made.start, made.size)))
        self.granted += 1
        self.reused += device.reuse
        self.destroyed += len(device.destroy)

    def leave(self) -> None:
        self.leased.pop(self._draw.randrange(len(self.leased)))


@pytest.mark.parametrize("key", known_models())
async def test_every_decision_can_be_cut(key: str, tmp_path: Path) -> None:
    draw = random.Random(key)
    agent = InProcessAgent(tmp_path / "sim.json", f"sim:2x{key}:mig")
    day = Day(agent, draw)
    for _ in range(STEPS):
        if day.leased and draw.random() < 0.45:
            day.leave()
        else:
            await day.arrive(await day.snapshot())
    final = await day.snapshot()
    assert day.granted and day.reused and day.destroyed
    held = [piece for gpu in final.gpus for piece in gpu.idle]
    cut = [piece for gpu in (await agent.inventory()).gpus for piece in gpu.slices]
    assert len(cut) == len(held) + len(day.leased)
