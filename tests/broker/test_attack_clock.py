"""A clock that is set back: nothing waits for the time to come again, nothing is believed longer."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from allotment_hub.broker import main
from allotment_hub.broker.factory import Broker
from allotment_spawner.core.errors import DeviceBusy
from allotment_spawner.core.inventory import Slice
from allotment_spawner.core.lease import LeaseState
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.protocol_spawner import ProtocolSpawner

HOUR_S = 3600


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path, spec="sim:1xA100-80GB:mig")


async def state_of(broker: Broker, spawner: ProtocolSpawner) -> LeaseState:
    return (await broker.leases.get(spawner.lease)).lease.state


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_dead_start_gives_its_device_back_in_its_time(world: BrokerWorld, confirmed: bool) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        if confirmed:
            spawner.create()
            await spawner.confirm(broker)
            spawner.start()
        world.clock.advance(-HOUR_S)
        await world.rounds(broker, 2)
    world.hub.servers["ada", ""] = "ready" if confirmed else "absent"
    if confirmed:
        assert spawner.ref is not None
        world.engine.remove(spawner.ref)
    async with world.broker() as broker:
        await world.rounds(broker, 100, seconds=2)
        assert await state_of(broker, spawner) is LeaseState.ENDED


async def test_an_orphan_is_found_all_the_same(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        await world.rounds(broker, 20)
        world.hub.servers.clear()
        await world.rounds(broker, 17)
        world.clock.advance(-HOUR_S)
        await world.rounds(broker, 60)
        assert await state_of(broker, spawner) is LeaseState.ENDED


async def test_a_gpu_in_trouble_is_tried_again(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(gpu_uuid: str, profile: str, start: int) -> Slice:
        raise DeviceBusy(f"A profiler holds {gpu_uuid} {profile} {start}.", "Wait.")

    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        with monkeypatch.context() as patched:
            patched.setattr(world.agent, "ensure_slice", busy)
            await spawner.request(broker)
            await broker.jobs.idle()
        world.clock.advance(-HOUR_S)
        await world.rounds(broker, 12)
        assert (await spawner.wait(broker)).type == "granted"


async def test_a_revoked_token_is_not_believed_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only this process remembers is timed by a clock that nobody sets."""
    before = main.steady()
    monkeypatch.setattr(main, "datetime", SetBack)
    assert timedelta(0) <= main.steady() - before < timedelta(minutes=1)


class SetBack(datetime):
    """A wall clock an hour slow."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> SetBack:
        return super().now(tz) - timedelta(hours=1)
