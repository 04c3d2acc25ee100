"""A lease from its request to its end, with real services over a simulated machine."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from allotment_spawner.core.errors import (
    BadOptions,
    DeviceMismatch,
    GrantExpired,
    StaleAttempt,
    WrongState,
)
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import Activate
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.protocol_spawner import ProtocolSpawner


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path)


async def test_a_free_slice_is_granted_in_the_first_answer(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        reply = await spawner.request(broker)
        assert reply.lease.state is LeaseState.GRANTED
        device = reply.lease.devices[0]
        assert device.profile == "1g.10gb"
        assert reply.launch is not None
        assert reply.launch.devices == (device.uuid,)
        assert reply.launch.env["ALLOTMENT_DEVICES"] == device.uuid
        assert reply.launch.env["ALLOTMENT_LEASE"] == reply.lease.id
        assert reply.launch.simulated
        gpu = (await world.agent.inventory()).gpus[0]
        assert [piece.uuid for piece in gpu.slices] == [device.uuid]


async def test_from_request_to_ended(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        reply = await spawner.run(broker)
        assert reply.lease.state is LeaseState.ACTIVE
        assert reply.lease.price_per_hour == Decimal("0.40")
        await world.rounds(broker, 3)
        world.clock.advance(100)
        ended_at = world.clock.now
        await spawner.stop(broker)
        await world.rounds(broker, seconds=1)
        lease = (await broker.leases.get(spawner.lease)).lease
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.STOPPED)
        assert lease.stopped_at == ended_at, "it was gone when it was released, so money stops there"
        assert lease.granted_at is not None
        assert lease.active_at is not None
        assert lease.ended_at is not None
        assert lease.granted_at <= lease.active_at <= lease.stopped_at <= lease.ended_at
        fleet = await broker.fleet.view()
        assert [piece.state for piece in fleet.gpus[0].slices] == ["idle"], "kept until it blocks somebody"


async def test_the_same_key_again_is_the_same_lease(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        first = await spawner.request(broker)
        assert await spawner.request(broker) == first
        other = spawner.body.model_copy(update={"flavor": "cpu"})
        with pytest.raises(BadOptions):
            await broker.leases.request(attempt=spawner.attempt, body=other)


async def test_a_new_attempt_takes_over_and_the_older_one_is_stale(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        old, new = ProtocolSpawner(world, "ada"), ProtocolSpawner(world, "ada")
        await old.request(broker)
        await new.request(broker)
        assert old.lease == new.lease
        old.create()
        with pytest.raises(StaleAttempt):
            await old.confirm(broker)
        with pytest.raises(StaleAttempt):
            await broker.leases.release(lease_id=old.lease, reason=EndReason.CANCELLED, attempt=old.attempt)
        with pytest.raises(StaleAttempt):
            await old.request(broker)
        new.create()
        await new.confirm(broker)


async def test_another_choice_replaces(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        old = ProtocolSpawner(world, "ada")
        await old.run(broker)
        new = ProtocolSpawner(world, "ada", flavor="cpu")
        await new.request(broker)
        assert new.lease != old.lease
        await world.rounds(broker, 2)
        lease = (await broker.leases.get(old.lease)).lease
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.REPLACED)
        assert world.engine.of(old.lease) == [], "the broker stopped the workload that nobody else would"


async def test_a_late_confirm_is_refused_and_the_container_removed(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        spawner.create()
        world.hub.servers.clear()
        await world.rounds(broker, 2, seconds=world.site.policies.grant_deadline_s)
        with pytest.raises(GrantExpired):
            await spawner.confirm(broker)
        await world.rounds(broker, 2)
        lease = (await broker.leases.get(spawner.lease)).lease
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.GRANT_EXPIRED)
        assert world.engine.of(spawner.lease) == []


@pytest.mark.parametrize("away", [False, True])
async def test_the_deadline_does_not_run_while_the_hub_is_spawning_or_silent(
    world: BrokerWorld, away: bool
) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        world.hub.away = away
        await world.rounds(broker, 20, seconds=10)
        spawner.create()
        assert (await spawner.confirm(broker)).lease.state is LeaseState.GRANTED


async def test_renew_moves_the_deadline(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        first = await spawner.request(broker)
        world.clock.advance(20)
        renewed = await broker.leases.renew(lease_id=spawner.lease, attempt=spawner.attempt)
        assert first.deadline_at is not None
        assert renewed.deadline_at is not None
        assert (renewed.deadline_at - first.deadline_at).total_seconds() == 20


async def test_another_device_ends_the_lease(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        spawner.create()
        await spawner.confirm(broker)
        with pytest.raises(DeviceMismatch):
            await broker.leases.activate(
                lease_id=spawner.lease, attempt=spawner.attempt, body=Activate(devices_seen=("MIG-other",))
            )
        await world.rounds(broker, 2)
        lease = (await broker.leases.get(spawner.lease)).lease
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.DEVICE_MISMATCH)


async def test_active_needs_the_fence(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        reply = await spawner.request(broker)
        with pytest.raises(WrongState):
            await broker.leases.activate(
                lease_id=spawner.lease, attempt=spawner.attempt, body=Activate(devices_seen=(spawner.device,))
            )
        assert reply.lease.active_at is None


async def test_whole_cards_and_cpu(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        whole = ProtocolSpawner(world, "ada", flavor="gpu-full")
        reply = await whole.run(broker)
        assert reply.lease.devices[0].profile is None
        assert reply.lease.devices[0].uuid == reply.lease.devices[0].gpu_uuid
        cpu = ProtocolSpawner(world, "bob", flavor="cpu")
        reply = await cpu.run(broker)
        assert reply.lease.devices == ()
        assert reply.launch is not None
        assert reply.launch.env["ALLOTMENT_DEVICES"] == ""
        fleet = await broker.fleet.view()
        assert fleet.gpus[1].whole is not None
        assert (fleet.gpus[1].whole.state, fleet.gpus[1].whole.user) == ("leased", "ada")
