"""Hardware changes for reserved leases: one at a time per GPU, outside of every transaction."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime

from allotment_spawner.core.errors import AgentUnavailable, DeviceBusy, Refusal
from allotment_spawner.core.geometry import mask
from allotment_spawner.core.inventory import Slice
from allotment_spawner.gpu.client import Agent

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.granting import Granting
from allotment_hub.broker.services.machine import SliceFact
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.services.waiters import Waiters
from allotment_hub.broker.store.records import Cut, Device, Lease
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
        clock: Callable[[], datetime],
        on_step: Callable[[str], None],
    ) -> None:
        self._agent = agent
        self._store = store
        self._book = book
        self._situation = situation
        self._seen = observations
        self._granting = granting
        self._waiters = waiters
        self._clock = clock
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
        for device in lease.devices if self._granting.ready(lease) else ():
            uuid = await self._cut(lease, device)
            if uuid is None:
                return
            uuids.append(uuid)
        if not self._waiters.is_connected(lease_id) or not self._granting.ready(lease):
            # nobody there to use it, or its data left, or a restart forgot what was made for it: the slice
            # stays idle and the place is kept
            await self._granting.take_back(lease_id)
        elif await self._granting.with_devices(lease_id, uuids):
            self._situation.granted([device.profile for device in lease.devices if device.profile])

    async def _cut(self, lease: Lease, device: Device) -> str | None:
        try:
            return await self._ensure(lease, device)
        except AgentUnavailable as silent:
            # the slice may or may not exist now: keep the reservation unless the agent says it won't
            _log.warning("cutting unanswered", extra={"gpu": device.gpu_uuid, "why": silent.sentence})
            await self._seen.look_at_agent()
            if self._out_of_order(device.gpu_uuid):
                await self._granting.take_back(lease.id)
        except Refusal as refusal:
            # in use, or gone since it was planned: a GPU, its MIG mode, a profile
            _log.warning("cutting refused", extra={"gpu": device.gpu_uuid, "why": refusal.sentence})
            self._seen.trouble(device.gpu_uuid, refusal.sentence)
            await self._seen.look_at_agent()
            await self._granting.take_back(lease.id)
        return None

    def _out_of_order(self, gpu_uuid: str) -> bool:
        if self._seen.agent_problem is not None or self._seen.inventory is None:
            return False
        gpu = next((gpu for gpu in self._seen.inventory.gpus if gpu.uuid == gpu_uuid), None)
        return gpu is None or gpu.problem is not None

    async def _ensure(self, lease: Lease, device: Device) -> str:
        if device.profile is None or device.start is None or device.size is None:
            return device.gpu_uuid
        async with self._locks[device.gpu_uuid]:
            await self._make_room(device)
            await self._own(device.gpu_uuid, device.profile, device.start)
            self._on_step("cut.before")
            piece = await self._agent.ensure_slice(device.gpu_uuid, device.profile, device.start)
            self._on_step("cut.after")
        if piece.uuid is None:
            raise DeviceBusy("The slice was made without a compute instance.", "It is tried again.")
        if not self._as_asked(piece, lease, device):
            raise DeviceBusy("The agent answered with another slice than asked for.", "It is tried again.")
        return piece.uuid

    def _as_asked(self, piece: Slice, lease: Lease, device: Device) -> bool:
        """The slots keep places apart; this keeps the devices apart that are named to workloads."""
        held = {one.uuid for other in self._book.all() if other.id != lease.id for one in other.devices}
        return (piece.profile, piece.start) == (device.profile, device.start) and piece.uuid not in held

    async def _make_room(self, device: Device) -> None:
        """Remove idle slices of ours that are in the way; whoever holds slots is never in the way."""
        facts = self._situation.machine().facts(device.gpu_uuid)
        for fact in () if facts is None else facts.slices:
            piece = fact.slice
            if not _in_the_way(fact, device):
                continue
            if not piece.ours:
                # the pool adopts what it finds; the agent destroys only what is ours in its book too
                await self._own(device.gpu_uuid, piece.profile, piece.start)
                await self._agent.ensure_slice(device.gpu_uuid, piece.profile, piece.start)
            self._on_step("destroy.before")
            await self._agent.destroy_slice(device.gpu_uuid, piece.profile, piece.start)
            self._on_step("destroy.after")
            await self.forget(device.gpu_uuid, piece.profile, piece.start)

    async def _own(self, gpu_uuid: str, profile: str, start: int) -> None:
        """On disk before the hardware is touched. A reservation may be older than the machine's last
        restart: recorded under the old boot, its slice would be taken for a stranger's."""
        known = self._situation.cuts.get((gpu_uuid, profile, start))
        boot_id = self._situation.boot_id or ""
        if known is not None and known.boot_id == boot_id:
            return
        cut = Cut(gpu_uuid=gpu_uuid, start=start, profile=profile, boot_id=boot_id, made_at=self._clock())
        await self._store.write("own", lambda tx: tx.add_cuts([cut]))
        self._situation.note_cuts(cut)

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


def _in_the_way(fact: SliceFact, device: Device) -> bool:
    assert device.start is not None
    assert device.size is not None
    if fact.lease is not None or fact.state not in ("cutting", "idle"):
        return False
    return bool(mask(fact.slice.start, fact.slice.size) & mask(device.start, device.size))
