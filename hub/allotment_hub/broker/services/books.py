"""What each round of the reconciler means for the books: outages, when the machine was seen, entries."""

from __future__ import annotations

from datetime import datetime

from allotment_hub.broker.services.gpu_outages import GpuOutages
from allotment_hub.broker.services.last_seen import LastSeen
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.services.outages import Outages
from allotment_hub.broker.services.storage import Storage

__all__ = ["Books"]


class Books:
    """Told in this order, once a round."""

    def __init__(
        self,
        *,
        outages: Outages,
        gpu_outages: GpuOutages,
        last_seen: LastSeen,
        ledger: Ledger,
        storage: Storage,
    ) -> None:
        self._outages = outages
        self._gpu_outages = gpu_outages
        self._last_seen = last_seen
        self._ledger = ledger
        self._storage = storage

    async def looked_at_engine(self) -> None:
        await self._outages.began()

    async def looked_at_agent(self) -> None:
        await self._gpu_outages.round()

    def last_seen(self, boot_id: str) -> datetime | None:
        """When the machine last answered in that boot."""
        return self._last_seen.of(boot_id)

    async def sessions_of_old_boots_ended(self, boot_id: str) -> None:
        """The machine answers in this boot."""
        await self._last_seen.note(boot_id)

    async def sessions_ended(self) -> None:
        """What went down with the engine is ended: only then its outage may be over."""
        await self._outages.over()

    async def post(self) -> None:
        await self._ledger.round()
        await self._storage.round()
