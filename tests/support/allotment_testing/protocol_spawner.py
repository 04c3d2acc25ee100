"""The spawner's side of the protocol, step by step, without a hub around it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from uuid import uuid4

from allotment_hub.broker.factory import Broker
from allotment_spawner.core.errors import StartFailed
from allotment_spawner.core.lease import EndReason
from allotment_spawner.wire import Activate, Confirm, LeaseEvent, LeaseReply, LeaseRequest

from allotment_testing.broker_world import BrokerWorld

__all__ = ["ProtocolSpawner"]


class ProtocolSpawner:
    """One start() of one server; what it knows survives a death of the broker, as in the hub."""

    def __init__(self, world: BrokerWorld, user: str, *, server: str = "", flavor: str = "gpu-10gb") -> None:
        self.world = world
        self.body = LeaseRequest(user=user, server=server, environment="minimal", flavor=flavor)
        self.attempt = str(uuid4())
        self.reply: LeaseReply | None = None
        self.ref: str | None = None
        self.pid: int | None = None

    @property
    def lease(self) -> str:
        assert self.reply is not None
        return self.reply.lease.id

    @property
    def device(self) -> str:
        assert self.reply is not None
        return self.reply.lease.devices[0].uuid

    async def request(self, broker: Broker) -> LeaseReply:
        self.world.hub.servers[self.body.user, self.body.server] = "spawning"
        self.reply = await broker.leases.request(attempt=self.attempt, body=self.body)
        return self.reply

    async def wait(self, broker: Broker) -> LeaseEvent:
        """Stay connected until the broker says something else than queued."""
        async with asyncio.timeout(10):
            async for event in broker.leases.watch(lease_id=self.lease, attempt=self.attempt):
                self.reply = event.reply
                if event.type != "queued":
                    return event
        raise AssertionError("the stream ended while the lease waits")

    def _need_devices(self) -> None:
        """The engine refuses to start a container whose slice is gone; only a reboot may have taken it."""
        assert self.ref is not None
        machine = self.world.agent.control.state()
        slices = {one.uuid for gpu in machine.gpus for instance in gpu.instances for one in instance.computes}
        there = slices | {gpu.uuid for gpu in machine.gpus}
        gone = set(self.world.engine.workloads[self.ref].devices) - there
        if gone:
            assert self._boot_of_grant() != machine.boot_id, f"{gone} went under a granted lease"
            raise StartFailed("The container's device does not exist any more.", "Start again.")

    def _boot_of_grant(self) -> str:
        """As the database has it: what this spawner was told may be older than the grant."""
        with closing(sqlite3.connect(f"file:{self.world.paths.broker_database}?mode=ro", uri=True)) as file:
            row = file.execute("SELECT boot_id FROM leases WHERE id = ?", (self.lease,)).fetchone()
        return str(row[0])

    def create(self) -> str:
        assert self.reply is not None
        assert self.reply.launch is not None
        self.ref = self.world.engine.create(
            self.lease, user=self.body.user, server=self.body.server, devices=self.reply.launch.devices
        )
        return self.ref

    async def confirm(self, broker: Broker) -> LeaseReply:
        assert self.ref is not None
        return await broker.leases.confirm(
            lease_id=self.lease, attempt=self.attempt, body=Confirm(engine_ref=self.ref)
        )

    def start(self) -> None:
        """Start the container; its process takes the devices that the container was made with."""
        assert self.ref is not None
        self._need_devices()
        self.pid = self.world.engine.start(self.ref)
        self.world.started[self.pid] = self.lease
        for device in self.world.engine.workloads[self.ref].devices:
            self.world.agent.control.load(device, pid=self.pid)

    async def activate(self, broker: Broker) -> LeaseReply:
        assert self.ref is not None
        seen = self.world.engine.workloads[self.ref].devices
        reply = await broker.leases.activate(
            lease_id=self.lease, attempt=self.attempt, body=Activate(devices_seen=seen)
        )
        self.world.hub.servers[self.body.user, self.body.server] = "ready"
        return reply

    async def run(self, broker: Broker) -> LeaseReply:
        """From nothing to an active lease."""
        reply = await self.request(broker)
        if reply.launch is None:
            await self.wait(broker)
        self.create()
        await self.confirm(broker)
        self.start()
        return await self.activate(broker)

    async def stop(self, broker: Broker, reason: EndReason = EndReason.STOPPED) -> LeaseReply:
        """As the hub stops: remove the container, then give the lease back."""
        if self.ref is not None:
            self.world.engine.remove(self.ref)
        self.world.hub.servers.pop((self.body.user, self.body.server), None)
        return await broker.leases.release(lease_id=self.lease, reason=reason, attempt=None)
