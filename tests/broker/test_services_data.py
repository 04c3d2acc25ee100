"""Starts that wait for data: one fetch for all, seen as it goes, refused when it cannot come."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.site import DatasetSettings, DiskSettings, Mount, Policies, Site
from allotment_spawner.core.errors import (
    AddressNotAllowed,
    DatasetUnavailable,
    InUse,
    Refusal,
    UnknownDataset,
)
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseReply
from allotment_testing.broker_world import BrokerWorld, until
from allotment_testing.crashes import Crash, CrashPoint
from allotment_testing.file_server import FileServer, file_server
from allotment_testing.protocol_spawner import ProtocolSpawner

FULL = os.environ.get("ALLOTMENT_KILL_MATRIX") == "full"
BODY = os.urandom(2_500_000)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server(**{"iris.bin": BODY, "wine.bin": BODY[:900_000], "big.bin": BODY * 2}) as served:
        yield served


def world_of(
    tmp_path: Path, server: FileServer, *, mounts: tuple[Mount, ...] = (), mib: float = 1000
) -> BrokerWorld:
    site = Site(
        policies=Policies(sessions_per_person=50),
        datasets=DatasetSettings(allow_hosts=(server.host,), limit_gib=mib / 1024),
        disk=DiskSettings(floor_gib=0),
        mounts=mounts,
    )
    return BrokerWorld(tmp_path / "broker", site=site)


@pytest.fixture
def world(tmp_path: Path, server: FileServer) -> BrokerWorld:
    return world_of(tmp_path, server)


async def register(broker: Broker, server: FileServer, *names: str, **told: object) -> None:
    for name in names:
        await broker.datasets.register(
            name, by="admin", **({"source": server.url(f"/{name}.bin")} | BARE | told)
        )


BARE = {
    "title": "",
    "description": "",
    "licence": "",
    "checksum": None,
    "size_bytes": None,
    "unpack": False,
    "groups": None,
    "pinned": False,
}


def person(world: BrokerWorld, name: str, *datasets: str) -> ProtocolSpawner:
    spawner = ProtocolSpawner(world, name, flavor="cpu")
    spawner.body = spawner.body.model_copy(update={"datasets": datasets})
    return spawner


def states(broker: Broker) -> dict[str, str]:
    return {row.name: row.state for row in broker.datasets.rows()}


async def all_there(broker: Broker, *names: str) -> None:
    await until(lambda: all(states(broker)[name] == "ready" for name in names), deadline_s=60)


async def granted(spawner: ProtocolSpawner, broker: Broker) -> LeaseReply:
    """Connected until it is; longer than the wait of other tests, as a process is started for the data."""
    async with asyncio.timeout(60):
        async for event in broker.leases.watch(lease_id=spawner.lease, attempt=spawner.attempt):
            spawner.reply = event.reply
            if event.type != "queued":
                assert event.type == "granted", event.reply.refusal
                return event.reply
    raise AssertionError("the stream ended")


async def test_a_start_waits_for_its_data_sees_it_come_and_gets_it_read_only(
    world: BrokerWorld, server: FileServer
) -> None:
    server.hold = threading.Event()
    async with world.broker() as broker:
        await register(broker, server, "iris")
        ann = person(world, "ann", "iris")
        reply = await ann.request(broker)
        assert reply.lease.state is LeaseState.QUEUED
        assert reply.lease.datasets == ("iris",)
        said: list[str] = []
        async with asyncio.timeout(60):
            async for event in broker.leases.watch(lease_id=ann.lease, attempt=ann.attempt):
                work = event.reply.waits_for
                said.append(work.sentence if work else event.type)
                if work is not None and work.got_bytes:
                    server.hold.set()
                if event.type == "granted":
                    break
        assert any(sentence.startswith("Fetching iris: ") for sentence in said), said
        launch = (await broker.leases.get(ann.lease)).launch
        assert launch is not None
        (mount,) = launch.mounts
        assert (mount.target, mount.read_only) == ("/datasets/iris", True)
        assert (Path(mount.source) / "iris.bin").read_bytes() == BODY
        (view,) = await broker.datasets.views("ann")
        assert (view.state, view.size_bytes, view.reason) == ("ready", len(BODY), None)


async def test_one_download_serves_all_who_wait_and_later_ones_wait_for_nothing(
    world: BrokerWorld, server: FileServer
) -> None:
    async with world.broker() as broker:
        await register(broker, server, "iris")
        people = [person(world, f"p{number}", "iris") for number in range(8)]
        await asyncio.gather(*(one.request(broker) for one in people))
        await asyncio.gather(*(granted(one, broker) for one in people))
        assert len(server.asked) == 1
        late = person(world, "late", "iris")
        assert (await late.request(broker)).lease.state is LeaseState.GRANTED
        assert len(server.asked) == 1


async def test_who_waits_for_data_holds_no_device_and_keeps_the_place(
    world: BrokerWorld, server: FileServer
) -> None:
    server.hold = threading.Event()
    async with world.broker() as broker:
        await register(broker, server, "iris")
        ann = ProtocolSpawner(world, "ann")
        ann.body = ann.body.model_copy(update={"datasets": ("iris",)})
        assert (await ann.request(broker)).lease.place == 1
        why = await broker.explainer.explain(ann.lease, for_operator=False)
        assert ("data_on_its_way" in {rule.rule for rule in why.rules}) == (states(broker)["iris"] != "ready")
        assert "iris" in why.sentence + " ".join(rule.sentence for rule in why.rules)
        others = [ProtocolSpawner(world, f"p{number}") for number in range(7)]
        for one in others:
            assert (await one.request(broker)).lease.state is LeaseState.GRANTED, (
                "slices go to who can use them"
            )
        server.hold.set()
        await all_there(broker, "iris")
        last = ProtocolSpawner(world, "last")
        assert (await last.request(broker)).lease.place == 2
        assert (await broker.leases.get(ann.lease)).lease.place == 1


async def test_a_fetch_that_fails_ends_the_wait_with_its_reason_and_may_be_tried_again(
    world: BrokerWorld, server: FileServer
) -> None:
    async with world.broker() as broker:
        await register(broker, server, "none")
        ann = person(world, "ann", "none")
        await ann.request(broker)
        await until(lambda: states(broker)["none"] == "failed", deadline_s=60)
        await world.rounds(broker)
        reply = await broker.leases.get(ann.lease)
        assert reply.lease.end_reason is EndReason.REFUSED
        assert reply.refusal is not None
        assert reply.refusal.code == "dataset_unavailable"
        assert "none" in reply.refusal.detail
        assert "HTTP 404" in reply.refusal.detail
        server.files["/none.bin"] = b"here now"
        again = person(world, "ann", "none")
        await again.request(broker)
        await granted(again, broker)


async def test_unknown_datasets_and_those_of_other_groups_are_the_same_to_who_may_not(
    world: BrokerWorld, server: FileServer
) -> None:
    world.hub.groups["tea"] = frozenset({"teachers"})
    async with world.broker() as broker:
        await register(broker, server, "iris", groups=("teachers",))
        said = set()
        for name in ("iris", "never-was"):
            with pytest.raises(UnknownDataset) as refused:
                await person(world, "ann", name).request(broker)
            said.add(refused.value.sentence.replace(name, "NAME"))
        assert len(said) == 1
        assert await broker.datasets.views("ann") == []
        assert server.asked == []
        teacher = person(world, "tea", "iris")
        await teacher.request(broker)
        await granted(teacher, broker)
        assert [view.name for view in await broker.datasets.views("tea")] == ["iris"]


async def test_the_least_recently_used_leaves_but_never_what_is_pinned_or_in_use(
    tmp_path: Path, server: FileServer
) -> None:
    """Room for 4 MiB: iris (2.4) and wine (0.9) fit; big (4.8) fits never."""
    world = world_of(tmp_path, server, mib=4)
    server.files["/rose.bin"] = BODY[:2_000_000]
    async with world.broker() as broker:
        await register(broker, server, "iris", "wine", "rose", "big", size_bytes=None)
        for name in ("iris", "wine"):
            world.clock.advance(10)
            await broker.datasets.warm(name)
            await all_there(broker, name)
        ann = person(world, "ann", "iris")
        await ann.run(broker)
        await broker.datasets.pin("wine", pinned=True)
        with pytest.raises(InUse, match="session"):
            await broker.datasets.evict("iris")
        with pytest.raises(InUse, match="pinned"):
            await broker.datasets.evict("wine")
        with pytest.raises(InUse, match="session"):
            await broker.datasets.remove("iris")
        await broker.datasets.warm("rose")
        await until(lambda: states(broker)["rose"] == "failed", deadline_s=60)
        assert states(broker) | {"big": ""} == {"iris": "ready", "wine": "ready", "rose": "failed", "big": ""}
        await ann.stop(broker)
        await world.rounds(broker, 3)
        await broker.datasets.warm("rose")
        await all_there(broker, "rose")
        assert states(broker)["iris"] == "absent"
        assert states(broker)["wine"] == "ready"
        ready = {path.name.rpartition("-")[0] for path in (world.paths.datasets / "ready").iterdir()}
        assert ready == {"wine", "rose"}
        await broker.datasets.warm("big")
        await until(lambda: states(broker)["big"] == "failed", deadline_s=60)
        assert states(broker)["wine"] == "ready"


async def test_a_dataset_that_was_replaced_stays_for_who_has_the_old_one(
    world: BrokerWorld, server: FileServer
) -> None:
    async with world.broker() as broker:
        await register(broker, server, "iris")
        ann = person(world, "ann", "iris")
        await ann.request(broker)
        first = await granted(ann, broker)
        assert first.launch is not None
        await register(broker, server, "iris", source=server.url("/wine.bin"))
        ben = person(world, "ben", "iris")
        await ben.request(broker)
        second = await granted(ben, broker)
        assert second.launch is not None
        old, new = (Path(one.mounts[0].source) for one in (first.launch, second.launch))
        assert old != new
        assert (old / "iris.bin").read_bytes() == BODY
        assert (new / "wine.bin").stat().st_size == 900_000
        await ann.stop(broker)
        await world.rounds(broker, 2)
        assert not old.exists()
        assert new.exists()


async def test_another_content_than_the_first_time_is_not_taken_quietly(
    world: BrokerWorld, server: FileServer
) -> None:
    async with world.broker() as broker:
        await register(broker, server, "iris")
        await broker.datasets.warm("iris")
        await all_there(broker, "iris")
        await broker.datasets.evict("iris")
        server.files["/iris.bin"] = b"another"
        await broker.datasets.warm("iris")
        await until(lambda: states(broker)["iris"] == "failed", deadline_s=60)
        (row,) = broker.datasets.rows()
        assert "SHA-256 differs" in (row.problem or {})["sentence"]
        await register(broker, server, "iris")  # the operator says: that is right
        await broker.datasets.warm("iris")
        await all_there(broker, "iris")


async def test_sources_that_may_not_be_asked_are_refused_at_once(
    world: BrokerWorld, server: FileServer
) -> None:
    async with world.broker() as broker:
        for source in ("file:///etc/passwd", "http://127.0.0.1:1/x", "/etc"):
            with pytest.raises(AddressNotAllowed):
                await register(broker, server, "evil", source=source)
        assert broker.datasets.rows() == []


async def test_mounts_by_group_and_a_missing_folder_is_refused(tmp_path: Path, server: FileServer) -> None:
    for name in ("course", "shared", "staff"):
        (tmp_path / "srv" / name).mkdir(parents=True)
    mounts = (
        Mount(name="course", path=str(tmp_path / "srv/course"), title="The course"),
        Mount(name="shared", path=str(tmp_path / "srv/shared"), target="/mnt/shared", write=("team",)),
        Mount(name="staff", path=str(tmp_path / "srv/staff"), read=("staff",), write=("team",)),
    )
    world = world_of(tmp_path, server, mounts=mounts)
    world.hub.groups |= {"bob": frozenset({"team"}), "cat": frozenset({"staff"})}
    async with world.broker() as broker:
        seen = {}
        for name in ("ann", "bob", "cat"):
            reply = await person(world, name).request(broker)
            assert reply.launch is not None
            seen[name] = [(mount.target, not mount.read_only) for mount in reply.launch.mounts]
            views = await broker.mounts.views(name)
            assert [(view.path, view.writable) for view in views] == seen[name]
        assert seen["ann"] == [("/data/course", False), ("/mnt/shared", False)]
        assert seen["bob"] == [("/data/course", False), ("/mnt/shared", True), ("/data/staff", True)]
        assert seen["cat"] == [("/data/course", False), ("/mnt/shared", False), ("/data/staff", False)]
        (tmp_path / "srv/course").rmdir()
        with pytest.raises(DatasetUnavailable, match="course") as refused:
            await person(world, "dan").request(broker)
        assert str(tmp_path) not in refused.value.sentence + refused.value.next_step
        (tmp_path / "srv/course").symlink_to("/etc")
        with pytest.raises(DatasetUnavailable, match="course"):
            await person(world, "dan").request(broker)
        world.hub.away = True
        with pytest.raises(Refusal, match="hub does not answer"):
            await person(world, "dan").request(broker)


async def test_on_the_local_engine_there_are_none_and_it_is_said(tmp_path: Path, server: FileServer) -> None:
    mount = Mount(name="course", path=str(tmp_path))
    site = Site(datasets=DatasetSettings(allow_hosts=(server.host,)), mounts=(mount,))
    world = BrokerWorld(tmp_path / "broker", site=site, engine="local", trust_users=True)
    async with world.broker() as broker:
        await register(broker, server, "iris")
        with pytest.raises(DatasetUnavailable, match="plain processes"):
            await person(world, "ann", "iris").request(broker)
        assert await broker.mounts.views("ann") == []
        (view,) = await broker.datasets.views("ann")
        assert "plain processes" in (view.reason or "")
        assert (await person(world, "ann").request(broker)).lease.state is LeaseState.GRANTED


async def test_a_cache_that_cannot_be_written_refuses_data_and_nothing_else(
    tmp_path: Path, server: FileServer
) -> None:
    (tmp_path / "file").write_text("")
    world = world_of(tmp_path, server)
    world.site = world.site.model_copy(update={"datasets": DatasetSettings(cache=str(tmp_path / "file"))})
    async with world.broker() as broker:
        await broker.datasets.register("iris", by="admin", **(BARE | {"source": "https://example.org/iris"}))
        with pytest.raises(DatasetUnavailable, match="cache of datasets cannot be used"):
            await person(world, "ann", "iris").request(broker)
        assert (await person(world, "ben").request(broker)).lease.state is LeaseState.GRANTED


async def test_after_a_kill_at_every_step_the_next_broker_brings_it_to_an_end(
    tmp_path: Path, server: FileServer
) -> None:
    """Registered, wanted, fetched, adopted, written down, evicted: each may be the last thing it did."""
    for step in range(0, 60, 1 if FULL else 3):
        world = world_of(tmp_path / str(step), server)
        done = await dies_at(world, step, server)
        async with world.broker() as after:
            if not after.datasets.rows():
                await register(after, server, "iris")
            ann = person(world, "ann", "iris")
            await ann.request(after)
            reply = await granted(ann, after)
            assert reply.launch is not None
            assert (Path(reply.launch.mounts[0].source) / "iris.bin").read_bytes() == BODY
            folders = {
                part: list((world.paths.datasets / part).iterdir()) for part in ("trash", "tmp", "ready")
            }
            assert {part: len(found) for part, found in folders.items()} == {"trash": 0, "tmp": 0, "ready": 1}
        if done:
            assert step > 8
            return
    raise AssertionError("it never came to its end")


async def dies_at(world: BrokerWorld, step: int, server: FileServer) -> bool:
    """A broker that registers, fetches and evicts, until it dies; whether it came through alive."""
    crash = CrashPoint()
    broker = world.build(crash)
    await broker.start()
    crash.arm(step)
    try:
        await register(broker, server, "iris")
        await broker.datasets.warm("iris")
        await until(lambda: crash.dead or states(broker)["iris"] == "ready", deadline_s=60)
        await broker.jobs.idle()
        if not crash.dead:
            await broker.datasets.evict("iris")
            await broker.jobs.idle()
    except Crash:
        return False
    finally:
        await broker.close()
    return not crash.dead
