"""What every session has cost, from memory, and the entries that are due."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final

from allotment_spawner.core.lease import LeaseState

from allotment_hub.accounting.billing import Posted, Run, day_of
from allotment_hub.accounting.tariff import Tariff, midnight
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.meter import Meter
from allotment_hub.broker.services.outages import OutageBook
from allotment_hub.broker.services.posting import Posting, is_usage, posted_of
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.store.ledger import Entry, entries_of_leases
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Ledger", "Unposted"]

_log = logging.getLogger(__name__)
_A_ROUND: Final = 100
_REMEMBERED: Final = 5000
_AGAIN: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Unposted:
    """What a session has used and no entry says yet."""

    amount: Decimal = Decimal(0)
    seconds: Decimal = Decimal(0)
    gpu_seconds: Decimal = Decimal(0)


class Ledger:
    """`listen` and `listen_leases` are told by the store after each commit: memory is never ahead of it."""

    def __init__(
        self,
        *,
        store: Store,
        book: Book,
        outages: OutageBook,
        tariffs: Tariffs,
        posting: Posting,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._book = book
        self._outages = outages
        self._tariffs = tariffs
        self._posting = posting
        self._clock = clock
        self._posted: dict[str, Posted] = {}
        """Of leases that have not ended."""
        self._meters: dict[str, Meter] = {}
        self._next: dict[str, datetime] = {}
        """Lease -> when a day of it is over that has no entry yet."""
        self._ended: OrderedDict[str, Decimal] = OrderedDict()
        """Lease -> what it cost in all; the last ones that somebody asked for."""

    async def load(self) -> None:
        """After the book: what is posted of what runs, and the outages since it runs."""
        running = [lease for lease in self._book.all() if lease.active_at is not None]
        ids = [lease.id for lease in running]
        since = min((lease.active_at for lease in running if lease.active_at), default=self._clock())
        entries, outages = await self._store.read(
            lambda tx: (entries_of_leases(tx.connection, ids), tx.outages(since=since))
        )
        self._outages.load(outages)
        self._posted.clear()
        self._next.clear()
        self._meters.clear()
        by_lease = _by_lease(entries)
        for lease_id, found in by_lease.items():
            self._posted[lease_id] = posted_of(found)

    def listen(self, entries: Sequence[Entry]) -> None:
        for lease_id, found in _by_lease(entries).items():
            before, more = self._posted.get(lease_id, Posted()), posted_of(found)
            self._posted[lease_id] = Posted(
                before.amount + more.amount, before.seconds + more.seconds, before.days | more.days
            )

    def listen_leases(self, changed: Sequence[Lease]) -> None:
        for lease in changed:
            if lease.state is LeaseState.ENDED:
                posted = self._posted.pop(lease.id, Posted())
                self._meters.pop(lease.id, None)
                self._next.pop(lease.id, None)
                self._remember(lease, posted.amount)

    def tariff(self, lease: Lease) -> Tariff | None:
        """As the lease keeps it; None before the grant."""
        return self._tariffs.of_lease(lease)

    def currency(self, lease: Lease) -> str | None:
        tariff = self._tariffs.of_lease(lease)
        return None if tariff is None else tariff.currency

    def cost(self, lease: Lease, now: datetime) -> Decimal | None:
        """So far, or in all; without what was given back. None: unknown, or it never began to cost."""
        if lease.active_at is None:
            return None
        if lease.state is LeaseState.ENDED:
            return self._ended.get(lease.id)
        meter = self._meter(lease)
        return None if meter is None else meter.read(lease.stopped_at or now)[0]

    def unposted(self, lease: Lease, now: datetime) -> Unposted:
        """Nothing below 0: what was posted too much is made up for by the next entry, or given back."""
        meter = self._meter(lease)
        if meter is None or lease.state is LeaseState.ENDED:
            return Unposted()
        amount, seconds = meter.read(lease.stopped_at or now)
        posted = self._posted.get(lease.id, Posted())
        left = max(seconds - posted.seconds, Decimal(0))
        return Unposted(max(amount - posted.amount, Decimal(0)), left, left * meter.run.tariff.gpus)

    async def know(self, leases: Iterable[Lease]) -> None:
        """Have what these cost in memory, also where they ended long ago."""
        ids = [
            lease.id
            for lease in leases
            if lease.state is LeaseState.ENDED and lease.active_at is not None and lease.id not in self._ended
        ]
        if not ids:
            return
        found = _by_lease(await self._store.read(lambda tx: entries_of_leases(tx.connection, ids)))
        for lease in leases:
            if lease.id in ids:
                self._remember(lease, posted_of(found.get(lease.id, ())).amount)

    async def round(self) -> None:
        """Post the days that are over; of very many sessions some now, the others in the next rounds."""
        now = self._clock()
        due = [
            lease for lease in self._book.all() if lease.active_at is not None and self._is_due(lease, now)
        ]
        for lease in due[:_A_ROUND]:
            try:
                await self._store.write("post", partial(self._due, lease.id, now))
            except Exception:  # noqa: BLE001 - one lease must not keep all others from their entries
                _log.exception("a day of a lease could not be posted", extra={"lease": lease.id})
                self._next[lease.id] = now + _AGAIN
            else:
                self._next[lease.id] = self._day_after(lease, now)

    def _due(self, lease_id: str, now: datetime, tx: Transaction) -> None:
        self._posting.due(tx, lease_id, now)

    def _is_due(self, lease: Lease, now: datetime) -> bool:
        assert lease.active_at is not None
        if lease.id not in self._next:
            days = self._posted.get(lease.id, Posted()).days
            self._next[lease.id] = self._day_after(lease, lease.active_at, max(days, default=None))
        return now >= self._next[lease.id]

    def _day_after(self, lease: Lease, at: datetime, day: str | None = None) -> datetime:
        """When the day is over that holds `at`, or this one."""
        tariff = self._tariffs.of_lease(lease)
        zone = "UTC" if tariff is None else tariff.zone
        whole = day_of(at, zone) if day is None else datetime.fromisoformat(day).date()
        return midnight(whole + timedelta(days=1 if day is None else 2), zone)

    def _meter(self, lease: Lease) -> Meter | None:
        """Remembers the days before today; made again after an outage."""
        known = self._meters.get(lease.id)
        if known is not None and known.version == self._outages.version:
            return known
        tariff = self._tariffs.of_lease(lease)
        if tariff is None or lease.active_at is None:
            return None
        run = Run(tariff, lease.active_at, self._outages.of(lease))
        if known is not None and known.run == run:
            known.version = self._outages.version
            return known
        self._meters[lease.id] = Meter(run=run, version=self._outages.version)
        return self._meters[lease.id]

    def _remember(self, lease: Lease, amount: Decimal) -> None:
        if (isinstance(lease.rates, list) or lease.active_at is None) and not amount:
            return  # it ended before there were books: unknown
        self._ended[lease.id] = amount
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)


def _by_lease(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.lease is not None and is_usage(entry):
            found.setdefault(entry.lease, []).append(entry)
    return found
