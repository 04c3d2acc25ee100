"""How much of budgets is used: the entries by person, group and day, and what runs now."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Protocol

from allotment_spawner.core.lease import LIVE

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.store.budgets import Scope, Used, last_entry, used_since
from allotment_hub.broker.store.ledger import Entry
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Amounts", "BudgetUse", "Running", "Whose", "counts_for"]

Whose = tuple[Scope, str]
"""A person, or a group that leases are charged to."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """In the site's currency, and seconds of whole GPUs."""

    money: Decimal = Decimal(0)
    gpu_seconds: Decimal = Decimal(0)

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.money + other.money, self.gpu_seconds + other.gpu_seconds)


class Running(Protocol):
    """The ledger, as far as budgets need it."""

    def unposted(self, lease: Lease, now: datetime, since: datetime) -> Amounts:
        """What this lease used from `since` on and is in no entry yet, from memory."""


def counts_for(lease: Lease) -> tuple[Whose, ...]:
    """Its owner's own budgets, and those of the group that it is charged to."""
    group = (lease.wants or {}).get("charged_to")
    own: Whose = ("user", lease.user)
    return (own,) if group is None else (own, ("group", str(group)))


@dataclass(slots=True)
class _Sums:
    """By day of the books' zone, complete from `since` on."""

    since: date
    days: dict[date, Amounts] = field(default_factory=dict)

    def add(self, day: date, more: Amounts) -> None:
        if day >= self.since:
            self.days[day] = self.days.get(day, Amounts()) + more


class BudgetUse:
    """In memory, only of people and groups that somebody asked for. Entries that are written later are
    added by `posted`, after their commit and in its order, so that no sum misses one."""

    def __init__(
        self, *, store: Store, book: Book, running: Running, currency: str, day_of: Callable[[datetime], date]
    ) -> None:
        """`day_of`: the day of the books' zone."""
        self._store = store
        self._book = book
        self._running = running
        self._currency = currency
        self._day_of = day_of
        self._sums: dict[Whose, _Sums] = {}
        self._reading = 0
        self._meanwhile: deque[Entry] = deque()
        self._counted_at = -1
        self._leases: dict[Whose, list[Lease]] = {}
        self.version = 0

    def knows(self, whose: Whose, since: datetime) -> bool:
        found = self._sums.get(whose)
        return found is not None and found.since <= self._day_of(since)

    async def read(self, wanted: Mapping[Whose, datetime]) -> None:
        """Have the sums of these in memory, from their day on."""
        missing = {whose: since for whose, since in wanted.items() if not self.knows(whose, since)}
        if not missing:
            return
        self._reading += 1
        try:
            last, found = await self._store.read(partial(_read, missing))
            for whose, used in found.items():
                self._keep(whose, missing[whose], used, last)
        finally:
            self._reading -= 1
            if not self._reading:
                self._meanwhile.clear()

    def posted(self, entries: Iterable[Entry]) -> None:
        """On the event loop, after the commit."""
        for entry in entries:
            if self._reading:
                self._meanwhile.append(entry)
            self._add(entry, self._sums)
        self.version += 1

    def of(self, whose: Whose, since: datetime, until: datetime | None, now: datetime) -> Amounts:
        """Entries that begin in the period, and what runs now has used in it."""
        total = Amounts()
        sums = self._sums.get(whose)
        if sums is not None:
            first, end = self._day_of(since), None if until is None else self._day_of(until)
            for day, used in sums.days.items():
                if first <= day and (end is None or day < end):
                    total += used
        if until is not None and now >= until:
            return total
        for lease in self.leases_of(whose):
            total += self._running.unposted(lease, now, since)
        return total

    @property
    def book_version(self) -> int:
        return self._book.version

    def live(self, many: Iterable[Whose]) -> list[Lease]:
        """Those that wait or run and count for one of these, each once."""
        found = {lease.id: lease for whose in many for lease in self.leases_of(whose)}
        return [lease for lease in found.values() if lease.state in LIVE]

    def leases_of(self, whose: Whose) -> list[Lease]:
        """Those not ended that count for it."""
        if self._counted_at != self._book.version:
            self._counted_at = self._book.version
            self._leases = {}
            for lease in self._book.all():
                for one in counts_for(lease):
                    self._leases.setdefault(one, []).append(lease)
        return self._leases.get(whose, [])

    def _keep(self, whose: Whose, since: datetime, used: Sequence[Used], last: int) -> None:
        sums = _Sums(self._day_of(since))
        for one in used:
            money = one.amount if one.currency == self._currency else Decimal(0)
            sums.add(self._day_of(one.from_at), Amounts(money, one.gpu_seconds))
        self._sums[whose] = sums
        for entry in self._meanwhile:
            # told while the answer was on its way; what was written before the look is in it
            if entry.seq > last:
                self._add(entry, {whose: sums})
        self.version += 1

    def _add(self, entry: Entry, into: Mapping[Whose, _Sums]) -> None:
        money = entry.amount if entry.currency == self._currency else Decimal(0)
        used = Amounts(money, entry.gpu_seconds)
        day = self._day_of(entry.from_at)
        own: Whose = ("user", entry.owner)
        for whose in (own,) if entry.charged_to is None else (own, ("group", entry.charged_to)):
            if whose in into:
                into[whose].add(day, used)


def _read(wanted: Mapping[Whose, datetime], tx: Transaction) -> tuple[int, dict[Whose, list[Used]]]:
    found = {whose: used_since(tx.connection, *whose, since) for whose, since in wanted.items()}
    return last_entry(tx.connection), found
