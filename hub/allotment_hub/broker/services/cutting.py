"""Hardware changes for reserved leases: one at a time per GPU, outside of every transaction."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable

from allotment_spawner.core.errors import AgentUnavailable, DeviceBusy
from allotment_spawner.core.geometry import mask
from allotment_spawner.gpu.client import Agent

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.granting import Granting
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.services.waiters import Waiters
from allotment_hub.broker.store.records import Device, Lease
from allotment_hub.broker.store.store import Store

__all__ = ["Cutting"]

_log = logging.getLogger(__name__)


class Cutting:
    """Every step may be repeated: a crash between two of them is resumed from the reservation."""

    def __init__(
        self,
        *,
        agent: Agent,
        store: Store,
        book: Book,
        situation: Situation,
        observations: Observations,
        granting: Granting,
        waiters: Waiters,
        on_step: Callable[[str], None],
    ) -> None:
        self._agent = agent
        self._store = store
        self._book = book
        self._situation = situation
        self._seen = observations
        self._granting = granting
        self._waiters = waiters
        self._on_step = on_step
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def lock(self, gpu_uuid: str) -> asyncio.Lock:
        return self._locks[gpu_uuid]

    async def serve(self, lease_id: str) -> None:
        """Cut what this queued lease has reserved, then grant it; on refusal give the reservation up."""
        lease = self._book.get(lease_id)
        if lease is None or not lease.reserved:
            return
        uuids = []
        for device in lease.devices:
            uuid = await self._cut(lease, device)
            if uuid is None:
                return
            uuids.append(uuid)
        if not self._waiters.is_connected(lease_id):
            # nobody there to use it: the slice stays idle and the place is kept
            await self._granting.take_back(lease_id)
        elif await self._granting.with_devices(lease_id, uuids):
            self._situation.granted([device.profile for device in lease.devices if device.profile])

    async def _cut(self, lease: Lease, device: Device) -> str | None:
        try:
            return await self._ensure(device)
        except DeviceBusy as busy:
            _log.warning("cutting refused", extra={"gpu": device.gpu_uuid, "why": busy.sentence})
            self._seen.trouble(device.gpu_uuid, busy.sentence)
            await self._seen.look_at_agent()
            await self._granting.take_back(lease.id)
        except AgentUnavailable as silent:
            # the slice may or may not exist now: keep the reservation unless the agent says it won't
            _log.warning("cutting unanswered", extra={"gpu": device.gpu_uuid, "why": silent.sentence})
            await self._seen.look_at_agent()
            if self._out_of_order(device.gpu_uuid):
                await self._granting.take_back(lease.id)
        return None

    def _out_of_order(self, gpu_uuid: str) -> bool:
        if self._seen.agent_problem is not None or self._seen.inventory is None:
            return False
        gpu = next((gpu for gpu in self._seen.inventory.gpus if gpu.uuid == gpu_uuid), None)
        return gpu is None or gpu.problem is not None

    async def _ensure(self, device: Device) -> str:
        if device.profile is None or device.start is None or device.size is None:
            return device.gpu_uuid
        async with self._locks[device.gpu_uuid]:
            await self._make_room(device)
            self._on_step("cut.before")
            piece = await self._agent.ensure_slice(device.gpu_uuid, device.profile, device.start)
            self._on_step("cut.after")
        if piece.uuid is None:
            raise DeviceBusy("The slice was made without a compute instance.", "It is tried again.")
        return piece.uuid

    async def _make_room(self, device: Device) -> None:
        """Remove idle slices of ours that are in the way; whoever holds slots is never in the way."""
        assert device.start is not None
        assert device.size is not None
        facts = self._situation.machine().facts(device.gpu_uuid)
        wanted = mask(device.start, device.size)
        for fact in () if facts is None else facts.slices:
            piece = fact.slice
            if fact.lease is not None or fact.state not in ("cutting", "idle"):
                continue
            if not mask(piece.start, piece.size) & wanted:
                continue
            self._on_step("destroy.before")
            await self._agent.destroy_slice(device.gpu_uuid, piece.profile, piece.start)
            self._on_step("destroy.after")
            await self.forget(device.gpu_uuid, piece.profile, piece.start)

    async def forget(self, gpu_uuid: str, profile: str, start: int) -> None:
        """This slice is gone; if one appears there again that we did not make, it is foreign."""
        held = any(
            device.gpu_uuid == gpu_uuid and device.profile == profile and device.start == start
            for lease in self._book.all()
            for device in lease.devices
        )
        if not held:
            await self._store.write("forget_cut", lambda tx: tx.drop_cut(gpu_uuid, profile, start))
            self._situation.forget_cuts((gpu_uuid, profile, start))
