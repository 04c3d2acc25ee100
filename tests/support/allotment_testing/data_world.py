"""A broker's world with datasets and mounts, and what tests of starts that wait for data share."""

from __future__ import annotations

import asyncio
from pathlib import Path

from allotment_hub.broker.factory import Broker
from allotment_hub.site import DatasetSettings, DiskSettings, Mount, Policies, Site
from allotment_spawner.wire import LeaseReply

from allotment_testing.broker_world import BrokerWorld, until
from allotment_testing.file_server import FileServer
from allotment_testing.protocol_spawner import ProtocolSpawner

__all__ = ["BARE", "all_there", "granted", "person", "register", "states", "world_of"]

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


async def register(broker: Broker, server: FileServer, *names: str, **told: object) -> None:
    for name in names:
        await broker.datasets.register(
            name, by="admin", **({"source": server.url(f"/{name}.bin")} | BARE | told)
        )


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
