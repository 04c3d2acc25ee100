"""Shared folders by group, and what is said where data cannot be had at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.site import DatasetSettings, Mount, Site
from allotment_spawner.core.errors import AddressNotAllowed, DatasetUnavailable, Refusal
from allotment_spawner.core.lease import LeaseState
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.data_world import BARE, all_there, granted, person, register, world_of
from allotment_testing.file_server import FileServer, file_server


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server(**{"iris.bin": b"iris"}) as served:
        yield served


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


async def test_sources_that_may_not_be_asked_are_refused_at_once(tmp_path: Path, server: FileServer) -> None:
    async with world_of(tmp_path, server).broker() as broker:
        for source in ("file:///etc/passwd", "http://127.0.0.1:1/x", "/etc"):
            with pytest.raises(AddressNotAllowed):
                await register(broker, server, "evil", source=source)
        assert broker.datasets.rows() == []


async def test_two_installations_share_a_disk_and_leave_each_other_alone(
    tmp_path: Path, server: FileServer
) -> None:
    fast = tmp_path / "fast"
    (fast / "ready/of-somebody-else").mkdir(parents=True)
    for number, name in enumerate(("one", "two")):
        world = world_of(tmp_path / name, server)
        settings = world.site.datasets.model_copy(update={"cache": str(fast)})
        world.site = world.site.model_copy(update={"datasets": settings})
        world.runtime = world.runtime.model_copy(update={"installation": f"0000000{number}"})
        async with world.broker() as broker:
            await register(broker, server, "iris")
            await broker.datasets.warm("iris")
            await all_there(broker, "iris")
    found = sorted(str(path.relative_to(fast)) for path in fast.glob("*/ready/*/data/iris.bin"))
    assert [path.split("/")[0] for path in found] == [
        "allotment-00000000-datasets",
        "allotment-00000001-datasets",
    ]
    assert (fast / "ready/of-somebody-else").is_dir()


@pytest.mark.parametrize("turned", ["into the system", "away"])
async def test_who_waits_over_a_restart_gets_no_folder_that_nobody_looked_at(
    tmp_path: Path, server: FileServer, turned: str
) -> None:
    """The folder's name leads elsewhere by the time that the grant comes."""
    folder = tmp_path / "srv/course"
    folder.mkdir(parents=True)
    world = world_of(tmp_path, server, mounts=(Mount(name="course", path=str(folder)),))
    world.settle_s = 0.05
    good, bad = person(world, "ann", "iris"), person(world, "ben", "iris")
    server.hold = threading.Event()
    async with world.broker() as first:
        await register(first, server, "iris")
        await good.request(first)
        assert (await bad.request(first)).lease.state is LeaseState.QUEUED
    async with world.broker() as second:
        server.hold.set()
        reply = await granted(good, second)
        assert reply.launch is not None
        assert reply.launch.mounts[0].source == str(folder)
    folder.rmdir()
    if turned == "into the system":
        folder.symlink_to("/etc")
    async with world.broker() as third:
        waits = asyncio.ensure_future(bad.wait(third))
        while not waits.done():
            await world.rounds(third)
        assert (await waits).type == "ended"
        told = await third.leases.get(bad.lease)
        assert told.launch is None
        assert told.refusal is not None
        assert "course" in told.refusal.detail
