"""An engine that was away: what went down with it is not billed from then, whoever notices first."""

from __future__ import annotations

from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseView
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.protocol_spawner import ProtocolSpawner


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path)


async def view_of(broker: Broker, spawner: ProtocolSpawner) -> LeaseView:
    return (await broker.leases.get(spawner.lease)).lease


async def test_a_broker_that_restarts_meanwhile_does_not_forget_the_outage(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.engine.silent = True
        await world.rounds(broker)
        failed = world.clock()
    for _ in range(2):
        async with world.broker() as broker:
            await world.rounds(broker, 20)
            assert (await view_of(broker, spawner)).state is LeaseState.ACTIVE
    world.engine.silent = False
    world.engine.restart_without_live_restore()
    async with world.broker() as broker:
        await world.rounds(broker, 3)
        lease = await view_of(broker, spawner)
    assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.ENGINE_STOPPED)
    assert lease.stopped_at == failed


async def test_a_hub_that_sees_it_first_changes_nothing(world: BrokerWorld) -> None:
    """Its poll finds the dead container before the broker has looked again."""
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.engine.silent = True
        await world.rounds(broker)
        failed = world.clock()
        await world.rounds(broker, 20)
        world.engine.silent = False
        world.engine.restart_without_live_restore()
        await spawner.stop(broker, EndReason.WORKLOAD_EXITED)
        await world.rounds(broker, 3)
        lease = await view_of(broker, spawner)
    assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.ENGINE_STOPPED)
    assert lease.stopped_at == failed


async def test_an_outage_is_over_once_the_engine_answers(world: BrokerWorld) -> None:
    """A session that outlived it, and ends by itself later, is billed to its own end."""
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.engine.silent = True
        await world.rounds(broker, 5)
        world.engine.silent = False
        await world.rounds(broker, 5)
    async with world.broker() as broker:
        assert (await view_of(broker, spawner)).state is LeaseState.ACTIVE
        await world.rounds(broker, 5)
        ended = world.clock()
        await spawner.stop(broker, EndReason.WORKLOAD_EXITED)
        await world.rounds(broker, 3)
        lease = await view_of(broker, spawner)
    assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.WORKLOAD_EXITED)
    assert lease.stopped_at == ended
