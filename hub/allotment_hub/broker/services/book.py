"""Every lease that is not ended, in memory: what the database holds, at no cost per look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from allotment_spawner.core.lease import LIVE, LeaseState

from allotment_hub.accounting.queueing import QueueItem, order
from allotment_hub.broker.store.records import Lease

__all__ = ["Book"]


class Book:
    """Written only by the store's listener, after each commit and in its order; never ahead of the disk."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._by_server: dict[tuple[str, str], str] = {}
        self._places: dict[str, int] | None = None
        self.version = 0

    def apply(self, changed: Iterable[Lease]) -> None:
        for lease in changed:
            old = self._leases.pop(lease.id, None)
            if old is not None and self._by_server.get((old.user, old.server)) == lease.id:
                del self._by_server[old.user, old.server]
            if lease.state is not LeaseState.ENDED:
                self._leases[lease.id] = lease
            if lease.state in LIVE:
                self._by_server[lease.user, lease.server] = lease.id
        self._places = None
        self.version += 1

    def get(self, lease_id: str) -> Lease | None:
        return self._leases.get(lease_id)

    def all(self) -> list[Lease]:
        return list(self._leases.values())

    def in_state(self, *states: LeaseState) -> list[Lease]:
        return [lease for lease in self._leases.values() if lease.state in states]

    def live_of(self, user: str, server: str) -> Lease | None:
        found = self._by_server.get((user, server))
        return None if found is None else self._leases[found]

    def queue(self, now: datetime) -> list[Lease]:
        """Queued leases, who is next first."""
        queued = self.in_state(LeaseState.QUEUED)
        items = [QueueItem(id=lease.id, queue_class=lease.queue_class, seq=lease.seq) for lease in queued]
        return [self._leases[item.id] for item in order(items, now)]

    def place(self, lease_id: str, now: datetime) -> int | None:
        """Its place in the queue, counted from 1; None when it does not wait."""
        if self._places is None:
            self._places = {lease.id: number for number, lease in enumerate(self.queue(now), start=1)}
        return self._places.get(lease_id)

    def holders(self) -> dict[str, list[Lease]]:
        """GPU UUID -> leases that hold something on it."""
        found: dict[str, list[Lease]] = {}
        for lease in self._leases.values():
            for gpu_uuid in {device.gpu_uuid for device in lease.devices}:
                found.setdefault(gpu_uuid, []).append(lease)
        return found

    def counts(self) -> Counter[LeaseState]:
        return Counter(lease.state for lease in self._leases.values())

    def queued_ids(self) -> Sequence[str]:
        return [lease.id for lease in self.in_state(LeaseState.QUEUED)]
