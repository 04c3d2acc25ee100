"""Starts that wait for data: one fetch for all, seen as it goes, refused when it cannot come."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.data.cache import Cache
from allotment_spawner.core.errors import (
    InUse,
    UnknownDataset,
)
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_testing.broker_world import BrokerWorld, until
from allotment_testing.crashes import Crash, CrashPoint
from allotment_testing.data_world import all_there, granted, person, register, states, world_of
from allotment_testing.file_server import FileServer, file_server
from allotment_testing.protocol_spawner import ProtocolSpawner

FULL = os.environ.get("ALLOTMENT_KILL_MATRIX") == "full"
BODY = os.urandom(2_500_000)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server(**{"iris.bin": BODY, "wine.bin": BODY[:900_000], "big.bin": BODY * 2}) as served:
        yield served


@pytest.fixture
def world(tmp_path: Path, server: FileServer) -> BrokerWorld:
    return world_of(tmp_path, server)


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
        assert why.help == (), "no other size would start sooner: all of them wait for this data"
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


async def test_who_waits_for_data_keeps_waiting_over_a_restart_and_nothing_comes_twice(
    world: BrokerWorld, server: FileServer
) -> None:
    server.hold = threading.Event()
    ann = person(world, "ann", "iris")
    async with world.broker() as first:
        await register(first, server, "iris")
        await ann.request(first)
        part = world.paths.datasets / "tmp"
        await until(lambda: any(one.stat().st_size > 1_000_000 for one in part.glob("*/part")), deadline_s=60)
    async with world.broker() as second:
        await until(lambda: len(server.asked) == 2, deadline_s=60)
        server.hold.set()
        reply = await granted(ann, second)
        assert reply.launch is not None
        assert (Path(reply.launch.mounts[0].source) / "iris.bin").read_bytes() == BODY
        assert int((server.asked[1][1] or "bytes=0-")[6:-1]) > 1_000_000


async def test_neither_start_nor_stop_waits_for_the_trash(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing a million files takes minutes, in which nobody would be served."""
    gone = threading.Event()
    monkeypatch.setattr(Cache, "empty_trash", lambda _cache: [][: gone.wait(30)])

    def emptying() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "dataset-trash"]

    async with asyncio.timeout(20), world.broker():
        await until(lambda: bool(emptying()))
        assert [thread.daemon for thread in emptying()] == [True]
    assert emptying(), "it was not waited for"
    gone.set()
