"""Operators change what starts wait for, at the worst moment: nothing hangs, nothing mounted goes away."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.core.samples import NodeSamples
from allotment_testing.agents import InProcessAgent
from allotment_testing.broker_world import BrokerWorld, until
from allotment_testing.data_world import all_there, granted, person, register, states, world_of
from allotment_testing.file_server import FileServer, file_server
from allotment_testing.protocol_spawner import ProtocolSpawner

BODY = os.urandom(500_000)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server(**{"iris.bin": BODY, "wine.bin": BODY[:90_000]}) as served:
        yield served


@pytest.fixture
def world(tmp_path: Path, server: FileServer) -> BrokerWorld:
    return world_of(tmp_path, server)


class SlowCutter:
    """The real agent; a slice comes only when it is let."""

    def __init__(self, agent: InProcessAgent) -> None:
        self._agent = agent
        self.control = agent.control
        self.cutting = asyncio.Event()
        self.go_on = asyncio.Event()

    async def inventory(self) -> NodeInventory:
        return await self._agent.inventory()

    async def samples(self) -> NodeSamples:
        return await self._agent.samples()

    async def ensure_slice(self, gpu_uuid: str, profile: str, start: int) -> Slice:
        self.cutting.set()
        await self.go_on.wait()
        return await self._agent.ensure_slice(gpu_uuid, profile, start)

    async def destroy_slice(self, gpu_uuid: str, profile: str, start: int) -> None:
        await self._agent.destroy_slice(gpu_uuid, profile, start)


async def slots(broker: Broker) -> int:
    return len(await broker.store.read(lambda tx: tx.slot_rows()))


async def test_a_dataset_replaced_while_the_slice_is_cut_holds_no_device(
    world: BrokerWorld, server: FileServer
) -> None:
    cutter = SlowCutter(world.agent)
    world.agent = cutter  # type: ignore[assignment]
    world.settle_s = 0.05
    async with world.broker() as broker:
        await register(broker, server, "iris")
        await broker.datasets.warm("iris")
        await all_there(broker, "iris")
        ann = ProtocolSpawner(world, "ann")
        ann.body = ann.body.model_copy(update={"datasets": ("iris",)})
        await ann.request(broker)
        waiting = asyncio.ensure_future(granted(ann, broker))
        await asyncio.wait_for(cutter.cutting.wait(), 10)
        server.hold = threading.Event()
        await register(broker, server, "iris", source=server.url("/wine.bin"))
        cutter.go_on.set()
        async with asyncio.timeout(20):
            while await slots(broker):  # noqa: ASYNC110 - the database has no event
                await asyncio.sleep(0.02)
        reply = await broker.leases.get(ann.lease)
        assert (reply.lease.state, reply.lease.place) == (LeaseState.QUEUED, 1)
        server.hold.set()
        launch = (await waiting).launch
        assert launch is not None
        assert (Path(launch.mounts[0].source) / "wine.bin").is_file()
    assert broker.jobs.failure is None


async def test_a_source_that_comes_back_leaves_alone_what_a_session_has_mounted(
    world: BrokerWorld, server: FileServer
) -> None:
    """A typing error in the source, and the right one again: the same content under the same name."""
    async with world.broker() as broker:
        await register(broker, server, "iris")
        ann = person(world, "ann", "iris")
        await ann.request(broker)
        launch = (await granted(ann, broker)).launch
        assert launch is not None
        mounted = Path(launch.mounts[0].source)
        inode = mounted.stat().st_ino
        await register(broker, server, "iris", source=server.url("/wine.bin"))
        await register(broker, server, "iris")
        asked = len(server.asked)
        ben = person(world, "ben", "iris")
        await ben.request(broker)
        again = (await granted(ben, broker)).launch
        assert again is not None
        assert mounted.stat().st_ino == inode
        assert (Path(again.mounts[0].source) / "iris.bin").read_bytes() == BODY
        assert len(server.asked) == asked
        (row,) = broker.datasets.rows()
        assert (row.cached_bytes, row.files) == (len(BODY), 1)


async def test_evicting_at_the_moment_of_a_grant_leaves_the_data_where_it_is(
    world: BrokerWorld, server: FileServer
) -> None:
    """It arrived and is being written down; between the look and the removal a start gets it."""
    async with world.broker() as broker:
        await register(broker, server, "iris")
        ann = person(world, "ann", "iris")
        await broker.datasets.warm("iris")
        await until(lambda: states(broker)["iris"] == "ready", deadline_s=60)
        evicted, _ = await asyncio.gather(
            broker.datasets.evict("iris"), ann.request(broker), return_exceptions=True
        )
        launch = (await granted(ann, broker)).launch
        assert launch is not None
        assert (Path(launch.mounts[0].source) / "iris.bin").read_bytes() == BODY, evicted
