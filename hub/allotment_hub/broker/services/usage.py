"""Reports: what was spent by whom, on what and when, each sum exactly that of the ledger's entries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo

from allotment_spawner.core.lease import LeaseState
from allotment_spawner.money_wire import EntryView, UsageRow, UsageView

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.corrections import entry_view
from allotment_hub.broker.store.ledger import Entry
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.usage import (
    CHUNK,
    Wanted,
    entries_of,
    groups_minded,
    wanted_seqs,
)

__all__ = ["ANOTHER", "GROUPS", "Ask", "Cursor", "GroupBy", "Usage"]

GroupBy = Literal["user", "group", "flavor", "environment", "day", "kind"]
GROUPS: Final[tuple[GroupBy, ...]] = get_args(GroupBy)
ANOTHER: Final = "another person"
_EXACT: Final = Context(prec=400, traps=[Inexact, InvalidOperation])
"""Adds without rounding, in whatever order."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is reported. `reader`: the one who may read their own name only; None reads all names."""

    wanted: Wanted
    group_by: tuple[GroupBy, ...] = ()
    reader: str | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page of entries begins: after entry `after`, of those that were there up to `newest`."""

    after: int
    newest: int

    def __str__(self) -> str:
        return f"{self.after}.{self.newest}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        after, _, newest = text.partition(".")
        return cls(int(after), int(newest))


@dataclass(slots=True)
class _Sum:
    amount: Decimal = Decimal(0)
    seconds: Decimal = Decimal(0)
    gpu_seconds: Decimal = Decimal(0)
    entries: int = 0

    def add(self, entry: Entry) -> None:
        self.amount = _EXACT.add(self.amount, entry.amount)
        self.seconds = _EXACT.add(self.seconds, entry.seconds)
        self.gpu_seconds = _EXACT.add(self.gpu_seconds, entry.gpu_seconds)
        self.entries += 1


@dataclass
class _Tally:
    """Sums as entries pass by, chunk after chunk."""

    group_by: tuple[GroupBy, ...]
    zone: ZoneInfo
    reader: str | None
    total: _Sum = field(default_factory=_Sum)
    sums: dict[tuple[str, ...], _Sum] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        self.total.add(entry)
        key = tuple(self._word(entry, name) for name in self.group_by)
        self.sums.setdefault(key, _Sum()).add(entry)

    def rows(self) -> tuple[UsageRow, ...]:
        return tuple(
            UsageRow(
                key=dict(zip(self.group_by, key, strict=True)),
                amount=one.amount,
                seconds=one.seconds,
                gpu_seconds=one.gpu_seconds,
                entries=one.entries,
            )
            for key, one in sorted(self.sums.items())
        )

    def _word(self, entry: Entry, name: GroupBy) -> str:
        """ "" where an entry has none: storage belongs to no flavor."""
        if name == "day":
            return entry.from_at.astimezone(self.zone).date().isoformat()
        words = {
            "user": ANOTHER if _hidden(entry, self.reader) else entry.owner,
            "group": entry.charged_to,
            "flavor": entry.flavor,
            "environment": entry.environment,
            "kind": entry.kind,
        }
        return words[name] or ""


class Usage:
    """Entries are read in chunks, each a short transaction; they are never changed, so what was listed first
    stays what is reported."""

    def __init__(
        self,
        *,
        store: Store,
        book: Book,
        zone: str,
        currency: str,
        titles: Mapping[str, str],
        unposted: Callable[[Lease, datetime], tuple[Decimal, str | None]],
        clock: Callable[[], datetime],
    ) -> None:
        """`titles`: of flavors. `unposted`: what a lease has cost and no entry says, its currency."""
        self._store = store
        self._book = book
        self.zone = zone
        self._currency = currency
        self.titles = titles
        self._unposted = unposted
        self._clock = clock

    @property
    def now(self) -> datetime:
        return self._clock()

    async def minded_by(self, person: str) -> list[str]:
        """Groups with an open budget whose named owner this is."""
        return await self._store.read(lambda tx: groups_minded(tx.connection, person))

    async def latest(self, ask: Ask, count: int) -> list[EntryView]:
        """The entries that were written last, the newest first."""
        seqs = (await self._seqs(ask, None))[-count:]
        return [_view(entry, ask.reader) async for chunk in self._chunks(seqs) for entry in chunk][::-1]

    async def report(self, ask: Ask, *, cursor: Cursor | None = None, limit: int = CHUNK) -> UsageView:
        """Rows and total are of all entries, `entries` those of one page of at most `limit`."""
        seqs = await self._seqs(ask, cursor)
        newest, after = _newest(seqs, cursor), cursor.after if cursor else 0
        first = sum(seq <= after for seq in seqs)
        page = set(seqs[first : first + limit])
        tally, shown, others = _Tally(ask.group_by, ZoneInfo(self.zone), ask.reader), [], set()
        async for chunk in self._chunks(seqs):
            for entry in chunk:
                if entry.currency != self._currency:
                    others.add(entry.currency)
                    continue
                tally.add(entry)
                if entry.seq in page:
                    shown.append(_view(entry, ask.reader))
        more = first + limit < len(seqs)
        running = self._running(ask)
        others.update(running.keys() - {self._currency})
        return UsageView(
            total=tally.total.amount,
            currency=self._currency,
            from_=ask.wanted.since,
            to=ask.wanted.until,
            group_by=ask.group_by,
            rows=tally.rows(),
            entries=tuple(shown),
            running=running.get(self._currency, Decimal(0)),
            other_currencies=tuple(sorted(others)),
            next=str(Cursor(seqs[first + limit - 1], newest)) if more else None,
        )

    async def pages(self, ask: Ask) -> AsyncIterator[list[EntryView]]:
        """Every entry of the report, for a file."""
        async for chunk in self._chunks(await self._seqs(ask, None)):
            yield [_view(entry, ask.reader) for entry in chunk]

    async def _seqs(self, ask: Ask, cursor: Cursor | None) -> list[int]:
        found = await self._store.read(lambda tx: wanted_seqs(tx.connection, ask.wanted))
        return found if cursor is None else [seq for seq in found if seq <= cursor.newest]

    async def _chunks(self, seqs: Sequence[int]) -> AsyncIterator[list[Entry]]:
        for start in range(0, len(seqs), CHUNK):
            some = seqs[start : start + CHUNK]
            yield await self._store.read(lambda tx, some=some: entries_of(tx.connection, some))  # type: ignore[misc]

    def _running(self, ask: Ask) -> dict[str, Decimal]:
        """Of sessions that have not ended, by currency, in a report that reaches to now."""
        now, wanted = self._clock(), ask.wanted
        total: dict[str, Decimal] = {}
        if not wanted.since <= now < wanted.until:
            return total
        for lease in self._book.in_state(LeaseState.ACTIVE, LeaseState.ENDING):
            charged_to = (lease.wants or {}).get("charged_to")
            theirs = wanted.owner in (None, lease.user)
            if theirs and wanted.charged_to in (None, charged_to):
                more, currency = self._unposted(lease, now)
                if more and currency is not None:
                    total[currency] = _EXACT.add(total.get(currency, Decimal(0)), more)
        return total


def _newest(seqs: Sequence[int], cursor: Cursor | None) -> int:
    if cursor is not None:
        return cursor.newest
    return seqs[-1] if seqs else 0


def _hidden(entry: Entry, reader: str | None) -> bool:
    return reader is not None and entry.owner != reader


def _view(entry: Entry, reader: str | None) -> EntryView:
    view = entry_view(entry)
    if not _hidden(entry, reader):
        return view
    # an operator's words on somebody's session may name them
    return view.model_copy(update={"owner": ANOTHER, "lease": None, "refers_to": None, "reason": ""})
