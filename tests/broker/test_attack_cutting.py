"""The agent refuses, lies, or finds a machine that was restarted: no lease may hang or share a device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.site import Layout, Policies, Pool, Site
from allotment_spawner.core.errors import AgentUnavailable, FlavorUnavailable, Refusal
from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.core.samples import NodeSamples
from allotment_testing.agents import InProcessAgent
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.protocol_spawner import ProtocolSpawner

ROOMY = Policies(sessions_per_person=50)
ONE_MIG = "sim:1xA100-80GB:mig"


class Liar:
    """The real agent, with one verb bent."""

    def __init__(self, agent: InProcessAgent) -> None:
        self._agent = agent
        self.control = agent.control
        self.bend_slice: Callable[[Slice], Slice] = lambda piece: piece
        self.bend_inventory: Callable[[NodeInventory], NodeInventory] = lambda found: found
        self.refusal: Refusal | None = None

    async def inventory(self) -> NodeInventory:
        return self.bend_inventory(await self._agent.inventory())

    async def samples(self) -> NodeSamples:
        return await self._agent.samples()

    async def ensure_slice(self, gpu_uuid: str, profile: str, start: int) -> Slice:
        if self.refusal is not None:
            raise self.refusal
        return self.bend_slice(await self._agent.ensure_slice(gpu_uuid, profile, start))

    async def destroy_slice(self, gpu_uuid: str, profile: str, start: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        await self._agent.destroy_slice(gpu_uuid, profile, start)


def lying(world: BrokerWorld) -> Liar:
    liar = Liar(world.agent)
    world.agent = liar  # type: ignore[assignment]
    return liar


async def state_of(broker: Broker, spawner: ProtocolSpawner) -> LeaseState:
    return (await broker.leases.get(spawner.lease)).lease.state


async def slot_count(broker: Broker) -> int:
    return len(await broker.store.read(lambda tx: tx.slot_rows()))


REFUSALS = [
    FlavorUnavailable("This machine has no GPU of that name.", "Choose another size."),
    Refusal("A word of a newer agent.", "Update both."),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_cut_that_is_refused_gives_the_reservation_back(tmp_path: Path, refusal: Refusal) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    liar = lying(world)
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        liar.refusal = refusal
        await spawner.request(broker)
        await broker.jobs.idle()
        assert broker.jobs.failure is None
        assert await state_of(broker, spawner) is LeaseState.QUEUED
        assert await slot_count(broker) == 0
        liar.refusal = None
        world.clock.advance(15)
        await broker.reconciler.once()
        assert (await spawner.wait(broker)).type == "granted"


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_layout_that_is_refused_is_trouble_not_a_crash(tmp_path: Path, refusal: Refusal) -> None:
    pool = Pool(name="static", mig=True, layout=Layout(devices={"1g.10gb": 7}))
    world = BrokerWorld(tmp_path, spec=ONE_MIG, site=Site(pools=(pool,), policies=ROOMY))
    liar = lying(world)
    liar.refusal = refusal
    async with world.broker() as broker:
        await world.rounds(broker, 2)
        assert broker.jobs.failure is None
        liar.refusal = None
        await world.rounds(broker, 30)
        spawner = ProtocolSpawner(world, "ada")
        assert (await spawner.request(broker)).lease.state is LeaseState.GRANTED


async def test_a_layout_in_the_making_queues_a_request_and_refuses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after a first start or a restart of the machine its declared slices are not there yet."""
    pool = Pool(name="static", mig=True, layout=Layout(devices={"1g.10gb": 7}))
    world = BrokerWorld(tmp_path, spec=ONE_MIG, site=Site(pools=(pool,), policies=ROOMY))
    world.settle_s = 0.05
    real, go_on = world.agent.ensure_slice, asyncio.Event()

    async def slow(gpu_uuid: str, profile: str, start: int) -> Slice:
        await go_on.wait()
        return await real(gpu_uuid, profile, start)

    monkeypatch.setattr(world.agent, "ensure_slice", slow)
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        assert (await spawner.request(broker)).lease.state is LeaseState.QUEUED
        with pytest.raises(FlavorUnavailable):
            await ProtocolSpawner(world, "bob", flavor="gpu-full").request(broker)
        go_on.set()
        await world.rounds(broker, 2)
        assert (await spawner.wait(broker)).type == "granted"
        with pytest.raises(FlavorUnavailable):
            await ProtocolSpawner(world, "bob", flavor="gpu-20gb").request(broker)


async def test_an_adopted_idle_slice_makes_room(tmp_path: Path) -> None:
    site = Site(pools=(Pool(name="mig", mig=True, foreign="adopt"),), policies=ROOMY)
    world = BrokerWorld(tmp_path, spec=ONE_MIG, site=site)
    gpu = (await world.agent.inventory()).gpus[0].uuid
    async with world.broker() as before:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(before)
        await spawner.stop(before)
        await world.rounds(before, 3)
    # the slice stays, and both books forget who made it: as if nvidia-smi had
    for book in world.paths.agent_state.glob("*journal*"):
        book.unlink()
    world.restart_agent()
    found = (await world.agent.inventory()).gpus[0].slices
    assert [piece.ours for piece in found] == [False]
    async with world.broker() as broker:
        await broker.store.write("forget", lambda tx: tx.drop_cut(gpu, found[0].profile, found[0].start))
    async with world.broker() as broker:
        large = [ProtocolSpawner(world, name, flavor="gpu-40gb") for name in ("ada", "bob")]
        for one in large:
            await one.request(broker)
            await broker.jobs.idle()
        await world.rounds(broker, 3)
        assert [await state_of(broker, one) for one in large] == [LeaseState.GRANTED] * 2


async def test_a_slice_cut_after_a_restart_of_the_machine_stays_ours(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    world.settle_s = 0.1
    liar = lying(world)
    liar.refusal = AgentUnavailable("The agent does not answer.", "Try again in a minute.")
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        assert await state_of(broker, spawner) is LeaseState.QUEUED
        liar.control.reboot()
        await world.rounds(broker, 2)
        liar.refusal = None
        await spawner.run(broker)
        await spawner.stop(broker)
        await world.rounds(broker, 3)
        fleet = await broker.fleet.view()
        assert [piece.state for piece in fleet.gpus[0].slices] == ["idle"]


@pytest.mark.parametrize("what", ["uuid", "profile", "start"])
async def test_another_slice_than_asked_for_is_never_granted(tmp_path: Path, what: str) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    liar = lying(world)
    async with world.broker() as broker:
        first = ProtocolSpawner(world, "ada")
        await first.run(broker)
        bent = {"uuid": first.device, "profile": "2g.20gb", "start": 5}
        liar.bend_slice = lambda piece: replace(piece, **{what: bent[what]})  # type: ignore[arg-type]
        second = ProtocolSpawner(world, "bob")
        await second.request(broker)
        await broker.jobs.idle()
        assert await state_of(broker, second) is LeaseState.QUEUED
        liar.bend_slice = lambda piece: piece
        world.clock.advance(15)
        await broker.reconciler.once()
        assert (await second.wait(broker)).type == "granted"
        assert second.device != first.device


def _odd_start(found: NodeInventory) -> NodeInventory:
    gpu = found.gpus[0]
    return replace(found, gpus=(replace(gpu, slices=tuple(replace(s, start=-3) for s in gpu.slices)),))


def _twice(found: NodeInventory) -> NodeInventory:
    return replace(found, gpus=found.gpus * 2)


def _twin(found: NodeInventory) -> NodeInventory:
    gpu = found.gpus[0]
    return replace(found, gpus=(replace(gpu, slices=gpu.slices * 2),))


def _far(found: NodeInventory) -> NodeInventory:
    gpu = found.gpus[0]
    return replace(found, gpus=(replace(gpu, slices=tuple(replace(s, size=500) for s in gpu.slices)),))


@pytest.mark.parametrize("bend", [_odd_start, _twice, _twin, _far])
async def test_an_inventory_that_cannot_be_is_no_answer(
    tmp_path: Path, bend: Callable[[NodeInventory], NodeInventory]
) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    liar = lying(world)
    async with world.broker() as broker:
        first = ProtocolSpawner(world, "ada")
        await first.run(broker)
        liar.bend_inventory = bend
        await world.rounds(broker, 3)
        assert (await broker.fleet.view()).agent.ok is False
        assert await state_of(broker, first) is LeaseState.ACTIVE
        liar.bend_inventory = lambda found: found
        await world.rounds(broker, 2)
        assert (await broker.fleet.view()).agent.ok
