"""Scratch folders follow their leases, and a disk that is nearly full starts nothing new."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.site import DiskSettings, HomeSettings, Policies, ScratchSettings, Site
from allotment_spawner.core.errors import DiskFull
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.disk.space import Space
from allotment_testing.broker_world import BrokerWorld, until
from allotment_testing.protocol_spawner import ProtocolSpawner
from allotment_testing.room import AgentFolders, SettableSpace, room_of

GIB = 2**30
SITE = Site(
    policies=Policies(sessions_per_person=50),
    homes=HomeSettings(uid=1234, gid=2345),
    scratch=ScratchSettings(size_gib=0.001),
    disk=DiskSettings(floor_gib=5),
)


@pytest.fixture
def space() -> SettableSpace:
    return SettableSpace()


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "world" / "scratch"


@pytest.fixture
def folders(scratch: Path, tmp_path: Path) -> Iterator[AgentFolders]:
    made = AgentFolders(scratch, tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path, folders: AgentFolders, space: SettableSpace) -> BrokerWorld:
    made = BrokerWorld(tmp_path / "world", site=SITE)
    made.room = room_of(folders, space)
    return made


def session(world: BrokerWorld, user: str = "ann", flavor: str = "cpu") -> ProtocolSpawner:
    return ProtocolSpawner(world, user, flavor=flavor)


def names(scratch: Path) -> list[str]:
    return sorted(path.name for path in scratch.iterdir() if not path.name.startswith("."))


async def place_of(broker: Broker, spawner: ProtocolSpawner) -> int | None:
    return (await broker.leases.get(spawner.lease)).lease.place


async def test_the_first_answer_has_the_folder(world: BrokerWorld, scratch: Path) -> None:
    async with world.broker() as broker:
        spawner = session(world)
        reply = await spawner.request(broker)
        assert reply.lease.state is LeaseState.GRANTED
        assert reply.launch is not None
        assert reply.launch.scratch is not None
        assert reply.launch.scratch.source == str(scratch / spawner.lease)
        assert not reply.launch.scratch.enforced, "nothing limits it on this disk"
        assert Path(reply.launch.scratch.source).is_dir()


async def test_wiped_at_the_end_and_not_before(world: BrokerWorld, scratch: Path) -> None:
    async with world.broker() as broker:
        ann, ben = session(world), session(world, "ben")
        for one in (ann, ben):
            await one.run(broker)
            (scratch / one.lease / "data").write_text("x")
        await ann.stop(broker)
        await world.rounds(broker, 2)
        assert names(scratch) == [ben.lease]
        await until(lambda: not list((scratch / ".trash").iterdir()))
        assert (scratch / ben.lease / "data").exists()


async def test_who_gives_the_place_up_leaves_nothing(world: BrokerWorld, scratch: Path) -> None:
    async with world.broker() as broker:
        for number in range(7):
            await session(world, f"p{number}", "gpu-10gb").run(broker)
        late = session(world, "late", "gpu-10gb")
        reply = await late.request(broker)
        assert reply.lease.state is LeaseState.QUEUED
        await until(lambda: late.lease in names(scratch))
        await broker.leases.release(lease_id=late.lease, reason=EndReason.CANCELLED, attempt=late.attempt)
        await broker.jobs.idle()
        assert late.lease not in names(scratch)


async def test_a_folder_that_takes_a_moment_costs_nobody_the_turn(
    world: BrokerWorld, folders: AgentFolders
) -> None:
    world.settle_s = 0.05
    async with world.broker() as broker:
        for number in range(6):
            await session(world, f"p{number}", "gpu-10gb").run(broker)
        gate = folders.next_is_slow = asyncio.Event()
        ann, ben = session(world, "ann", "gpu-10gb"), session(world, "ben", "gpu-10gb")
        waits = []
        try:
            for one in (ann, ben):
                await one.request(broker)
                waits.append(asyncio.ensure_future(one.wait(broker)))
            # not rounds of the world: they wait until no job is left
            await broker.reconciler.once()
            await broker.scheduler.kick()
            places = [await place_of(broker, one) for one in (ann, ben)]
        finally:
            gate.set()
        assert places == [1, 2], "the last slice waits for ann"
        assert (await waits[0]).type == "granted"
        waits[1].cancel()
        await asyncio.gather(waits[1], return_exceptions=True)


async def test_leftovers_of_a_killed_broker_are_wiped_and_the_living_kept(
    world: BrokerWorld, scratch: Path, folders: AgentFolders
) -> None:
    async with world.broker() as broker:
        ann, ben = session(world), session(world, "ben")
        await ann.run(broker)
        await ben.run(broker)
        folders.silent = True
        await ann.stop(broker)
        await world.rounds(broker, 2)
        assert len(names(scratch)) == 2, "the agent was silent when it ended"
    folders.silent = False
    (scratch / "0123456789abcdef").mkdir()
    async with world.broker() as broker:
        assert broker.scratch is not None
        await broker.scratch.round()
        await broker.jobs.idle()
        assert names(scratch) == sorted(["0123456789abcdef", ben.lease]), "an unknown lease's is left alone"


async def test_nothing_is_wiped_while_the_engine_is_silent(world: BrokerWorld, scratch: Path) -> None:
    """Unknown is not gone: a container may still use it."""
    async with world.broker() as broker:
        ann = session(world)
        await ann.run(broker)
        world.engine.silent = True
        await broker.leases.release(lease_id=ann.lease, reason=EndReason.STOPPED, attempt=ann.attempt)
        await world.rounds(broker, 3)
        assert broker.scratch is not None
        await broker.scratch.round()
        assert names(scratch) == [ann.lease]


@pytest.mark.parametrize("set_back_s", [0, 3600])
async def test_a_silent_agent_keeps_nobody_from_a_cpu_session(
    world: BrokerWorld, folders: AgentFolders, set_back_s: float
) -> None:
    world.settle_s = 0.2
    async with world.broker() as broker:
        folders.silent = True
        spawner = session(world)
        waits = asyncio.ensure_future(spawner.request(broker))
        assert (await waits).lease.state is LeaseState.QUEUED
        watching = asyncio.ensure_future(spawner.wait(broker))
        await asyncio.sleep(0)
        world.clock.advance(-set_back_s)
        await world.rounds(broker, 3, seconds=3)
        event = await watching
        assert event.type == "granted"
        assert event.reply.launch is not None
        assert event.reply.launch.scratch is None, "nothing is said to be there that is not"


async def test_who_holds_too_much_is_told_once(world: BrokerWorld, scratch: Path) -> None:
    async with world.broker() as broker:
        ann = session(world)
        await ann.run(broker)
        assert broker.scratch is not None
        await broker.scratch.round()
        assert await broker.notices.of(ann.lease) == []
        (scratch / ann.lease / "data").write_bytes(b"x" * 3_000_000)
        for _ in range(3):
            await broker.scratch.round()
        [notice] = await broker.notices.of(ann.lease)
        assert "more than it may" in notice.sentence
        assert "/scratch" in notice.next_step


async def test_below_the_floor_nothing_new_starts_and_what_runs_goes_on(
    world: BrokerWorld, space: SettableSpace
) -> None:
    async with world.broker() as broker:
        ann = session(world)
        await ann.run(broker)
        space.free_bytes = 4 * GIB
        with pytest.raises(DiskFull, match=r"4\.0 GiB left; below 5 GiB"):
            await session(world, "ben").request(broker)
        assert (await broker.leases.get(ann.lease)).lease.state is LeaseState.ACTIVE
        reasons = {flavor.id: flavor.reason for flavor in await broker.fleet.flavors("ben")}
        assert "4.0 GiB" in (reasons["cpu"] or "")
        assert "4.0 GiB" in (reasons["gpu-10gb"] or "")
        await ann.stop(broker)
        await world.rounds(broker, 2)
        assert (await broker.leases.get(ann.lease)).lease.state is LeaseState.ENDED
        space.free_bytes = 6 * GIB
        await session(world, "ben").run(broker)


async def test_who_waits_keeps_the_place_until_there_is_room(
    world: BrokerWorld, space: SettableSpace
) -> None:
    async with world.broker() as broker:
        people = [session(world, f"p{number}", "gpu-10gb") for number in range(7)]
        for one in people:
            await one.run(broker)
        late = session(world, "late", "gpu-10gb")
        await late.request(broker)
        waits = asyncio.ensure_future(late.wait(broker))
        space.free_bytes = 1
        await broker.disk.look()
        await people[0].stop(broker)
        await world.rounds(broker, 2)
        reply = await broker.leases.get(late.lease)
        assert reply.lease.state is LeaseState.QUEUED
        assert reply.waits_for is not None
        assert "room" in reply.waits_for.sentence
        told = await broker.explainer.explain(late.lease, for_operator=False)
        assert "disk_full" in {rule.rule for rule in told.rules}
        assert told.help == (), "no other size starts on a full disk"
        space.free_bytes = 2**40
        await broker.disk.look()
        assert (await waits).type == "granted"


async def test_a_disk_that_cannot_be_read_refuses_nobody(world: BrokerWorld, space: SettableSpace) -> None:
    space.free_bytes = None
    async with world.broker() as broker:
        await session(world).run(broker)
        view = await broker.disk.view()
        assert view.ok
        assert {place.free_bytes for place in view.places} == {None}


async def test_a_disk_that_hangs_is_unknown_and_hides_no_other(
    world: BrokerWorld, space: SettableSpace, folders: AgentFolders, scratch: Path
) -> None:
    """Nor does it gather threads: the others' work needs them, and a broker that stops waits for them."""
    server_is_back = threading.Event()

    def hangs_below(path: Path) -> Space | None:
        if path == scratch:
            server_is_back.wait(30)
        return space(path)

    world.room = replace(room_of(folders, space), space=hangs_below)
    space.free_bytes = 4 * GIB
    async with world.broker() as broker:
        await asyncio.gather(*(broker.disk.look() for _ in range(3)))
        assert "Allotment's own data has 4.0 GiB" in (broker.disk.reason() or "")
        hanging = [thread for thread in threading.enumerate() if thread.name == "disk-space"]
        assert [thread.daemon for thread in hanging] == [True]
        server_is_back.set()
        for thread in hanging:
            await asyncio.to_thread(thread.join, 10)
        view = await broker.disk.view()
        assert {place.free_bytes for place in view.places} == {4 * GIB}


async def test_operators_see_each_disk(world: BrokerWorld, scratch: Path) -> None:
    async with world.broker() as broker:
        await session(world).run(broker)
        view = await broker.disk.view()
        assert {place.name for place in view.places} == {"data", "scratch", "datasets"}
        assert view.quota == "none"
        assert view.quota_note
        assert view.leftovers == 0
        assert view.floor_bytes == 5 * GIB


async def test_without_containers_there_is_no_scratch(tmp_path: Path, folders: AgentFolders) -> None:
    world = BrokerWorld(tmp_path / "local", site=SITE, engine="local", trust_users=True)
    world.room = room_of(folders, SettableSpace())
    async with world.broker() as broker:
        reply = await session(world).request(broker)
        assert reply.launch is not None
        assert reply.launch.scratch is None
