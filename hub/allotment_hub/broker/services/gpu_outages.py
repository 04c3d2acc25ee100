"""GPUs that are out of order, or gone: their time is not billed, and whoever holds them is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from allotment_spawner.core.errors import Refusal
from allotment_spawner.core.inventory import NodeInventory
from allotment_spawner.core.lease import LeaseState

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.notices import Notices, Words
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.outages import OutageBook, gpu_outage
from allotment_hub.broker.store import notices as table
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["GpuOutages"]

_log = logging.getLogger(__name__)
_Rows = Sequence[tuple[str, datetime, datetime | None]]


class GpuOutages:
    """`round` after each look at the agent. While that does not answer nothing begins and nothing ends."""

    def __init__(
        self,
        *,
        store: Store,
        book: Book,
        observations: Observations,
        outages: OutageBook,
        notices: Notices,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._book = book
        self._seen = observations
        self._outages = outages
        self._notices = notices
        self._clock = clock
        self._told: set[tuple[str, str, datetime]] = set()

    async def round(self) -> None:
        inventory = self._seen.inventory
        if self._seen.agent_problem is not None or inventory is None:
            return
        why = self._out_of_order(inventory)
        there = {gpu_outage(gpu.uuid) for gpu in inventory.gpus}
        known = self._outages.open()
        begun = sorted(why.keys() - known.keys())
        over = sorted((known.keys() & there) - why.keys())
        if begun or over:
            now = self._clock()
            self._outages.note(await self._store.write("gpu_outage", lambda tx: _write(tx, begun, over, now)))
        await self._tell(why)

    def _out_of_order(self, inventory: NodeInventory) -> dict[str, str]:
        found = {gpu_outage(gpu.uuid): gpu.problem for gpu in inventory.gpus if gpu.problem is not None}
        there = {gpu.uuid for gpu in inventory.gpus}
        for gpu_uuid in self._book.holders():
            if gpu_uuid not in there:
                found[gpu_outage(gpu_uuid)] = "The driver does not show it any more."
        return found

    async def _tell(self, why: dict[str, str]) -> None:
        """Each session once an outage, also by a broker that was started meanwhile."""
        holders, pairs = self._book.holders() if why else {}, set()
        for what, began in self._outages.open().items():
            for lease in holders.get(what.partition(":")[2], ()) if what in why else ():
                if lease.state is LeaseState.ACTIVE:
                    pairs.add((lease.id, what, began))
                    if (lease.id, what, began) not in self._told:
                        await self._tell_one(lease, what, began, why[what])
        self._told = pairs

    async def _tell_one(self, lease: Lease, what: str, began: datetime, why: str) -> None:
        said = await self._store.read(lambda tx: table.of_lease(tx.connection, lease.id))
        if any(notice.made_by == what and notice.made_at >= began for notice in said):
            return
        words = Words(
            "warning",
            f"Your GPU is out of order: {why.removesuffix('.')}. "
            "Its time is not billed until it works again.",
            "Save your work. Start again on another GPU, or ask an operator.",
        )
        try:
            await self._notices.tell(lease.id, words, made_by=what)
        except Refusal as refusal:
            _log.info("not told", extra={"lease": lease.id, "why": refusal.sentence})


def _write(tx: Transaction, begun: Sequence[str], over: Sequence[str], now: datetime) -> _Rows:
    since = min((at for what in over if (at := tx.open_outage(what)) is not None), default=now)
    for what in begun:
        tx.begin_outage(what, now)
    for what in over:
        tx.end_outage(what, now)
    return tx.outages(since=since, of=[*begun, *over])
