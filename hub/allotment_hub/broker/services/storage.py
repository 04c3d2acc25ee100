"""What homes cost: an entry for each that is measured and each day that is over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from allotment_hub.accounting.billing import day_of, in_seconds
from allotment_hub.accounting.tariff import midnight, rounded
from allotment_hub.broker.services.posting import BROKER
from allotment_hub.broker.store.homes import HomeRow, list_homes
from allotment_hub.broker.store.ledger import Entry, last_from_at, new_id, storage_owners
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["HOME", "Storage"]

_log = logging.getLogger(__name__)
HOME: Final = "home"
_GIB: Final = 2**30
_A_ROUND: Final = 200
_MOST_HOMES: Final = 1_000_000
_MOST_DAYS: Final = 3
_AGAIN: Final = timedelta(seconds=60)


class Storage:
    """`round` posts what is due, some homes at a time. Bytes are those that were last measured; a home that
    was measured only after a day is unknown on that day, and free.

    The first day that costs is the one on which this broker first runs with a price. Days on which it did
    not run are made up for, three of them at most.
    """

    def __init__(
        self, *, store: Store, price: Decimal, zone: str, currency: str, clock: Callable[[], datetime]
    ) -> None:
        """`price`: per GiB and hour; 0: nothing is posted."""
        self._store = store
        self._price = price
        self._zone = zone
        self._currency = currency
        self._clock = clock
        self._day: date | None = None
        """The first day that is not posted yet."""
        self._tried_at: datetime | None = None
        """When it failed last."""

    async def round(self) -> None:
        now = self._clock()
        if self._price <= 0 or (self._tried_at is not None and timedelta() <= now - self._tried_at < _AGAIN):
            return
        today = day_of(now, self._zone)
        if self._day is None or self._day > today:
            # days before today only: with a clock that was ahead some to come may have their entries
            last = await self._store.read(lambda tx: last_from_at(tx.connection, "storage", now))
            # that day again: the last broker may have died among its entries
            self._day = today if last is None else day_of(last, self._zone)
        self._day = max(self._day, today - timedelta(days=_MOST_DAYS))
        if self._day >= today:
            return
        day = self._day
        try:
            whole = await self._store.write("storage", lambda tx: self._post(tx, day, now))
        except Exception:  # noqa: BLE001 - tried again; sessions must not wait for homes
            _log.exception("a day of homes could not be posted", extra={"day": day.isoformat()})
            self._tried_at = now
            return
        if whole:
            self._day = day + timedelta(days=1)

    def _post(self, tx: Transaction, day: date, now: datetime) -> bool:
        """Whether all homes have their entry of this day."""
        first, end = midnight(day, self._zone), midnight(day + timedelta(days=1), self._zone)
        if first >= end:
            return True  # a day that the zone left out
        done = storage_owners(tx.connection, first)
        left = [home for home in list_homes(tx.connection, _MOST_HOMES) if home.user not in done]
        entries = [entry for home in left if (entry := self._entry(home, day, first, end, now)) is not None]
        _post_all(tx, entries[:_A_ROUND])
        return len(entries) <= _A_ROUND

    def _entry(self, home: HomeRow, day: date, first: datetime, end: datetime, now: datetime) -> Entry | None:
        known = home.measured_at is not None and home.measured_at < end
        if home.state != "live" or home.used_bytes is None or not known:
            return None
        hours = Fraction((end - first) // timedelta(microseconds=1), 3600 * 10**6)
        amount = rounded(Fraction(self._price) * Fraction(home.used_bytes, _GIB) * hours)
        if not amount:
            return None
        return Entry(
            id=new_id(),
            key=f"storage:{home.user}:{HOME}:{day.isoformat()}",
            kind="storage",
            owner=home.user,
            volume=HOME,
            from_at=first,
            to_at=end,
            seconds=in_seconds([(first, end)]),
            gpu_seconds=Decimal(0),
            amount=amount,
            currency=self._currency,
            reason=f"{home.used_bytes} bytes",
            made_by=BROKER,
            made_at=now,
        )


def _post_all(tx: Transaction, entries: Sequence[Entry]) -> None:
    for entry in entries:
        tx.post(entry)
