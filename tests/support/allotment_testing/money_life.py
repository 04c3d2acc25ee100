"""Random lives of sessions with a ledger that dies again and again, on a real database."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.ending import begin_end, finish, mark_stopped
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.outages import OutageBook
from allotment_hub.broker.services.posting import Posting
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.records import Device, Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_hub.catalog import Catalog, EnvironmentRule, Flavor
from allotment_hub.prices import Prices
from allotment_hub.site import Site
from allotment_spawner.core.inventory import Gpu, NodeInventory
from allotment_spawner.core.lease import EndReason, LeaseState

from allotment_testing.crashes import Crash, CrashPoint

__all__ = ["GPU_SHARES", "Deed", "MoneyLife", "fresh_database"]

GPU_SHARES: Final = (Decimal("0.125"), Decimal(1), Decimal(0))
"""Of the three sessions: a slice, a whole GPU, none."""
WHATS: Final = ("engine", "gpu:GPU-0", "gpu:GPU-1")
_GB: Final = 10**9


@dataclass(frozen=True)
class Deed:
    """`verb`, whose, and a number: seconds, or how many steps to the next death."""

    verb: str
    which: int = 0
    number: int = 0


def fresh_database(folder: Path) -> Path:
    """A migrated, empty file."""
    import asyncio  # noqa: PLC0415 - the caller has no loop

    async def make() -> None:
        store = Store(url=sqlite_url(folder / "empty.sqlite"))
        await store.open()
        await store.close()

    asyncio.run(make())
    return folder / "empty.sqlite"


def _device(which: int) -> tuple[Device, ...]:
    if which == 0:
        return (Device("GPU-0", "n", "1g.10gb", 2, 1, "MIG-0"),)
    return (Device("GPU-1", "n", None, None, None, "GPU-1"),) if which == 1 else ()


def _inventory() -> NodeInventory:
    gpus = tuple(
        Gpu(uuid=f"GPU-{index}", index=index, model="m", memory_bytes=80 * _GB, mig=index == 0, axis=axis)
        for index, axis in enumerate((8, 0))
    )
    return NodeInventory(node="n", boot_id="b", simulated=True, driver_version=None, gpus=gpus)


@dataclass
class MoneyLife:
    """`known`: lease -> the outages that were recorded when it ended."""

    file: Path
    prices: Prices
    rate: Decimal
    factor: Decimal | None
    now: datetime
    known: dict[str, list[tuple[datetime, datetime | None]]] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        flavor = Flavor(title="F", cpu=1, memory_gib=1, price_per_hour=self.rate)
        self._catalog = Catalog(
            flavors={"f": flavor}, environments={"minimal": EnvironmentRule()}, prices=self.prices
        )
        nothing: Any = cast(Any, None)
        self._seen = Observations(agent=nothing, engine=nothing, clock=self.clock)
        self._seen.inventory = _inventory()
        self.tariffs = Tariffs(site=Site(), catalog=self._catalog, observations=self._seen)

    def clock(self) -> datetime:
        return self.now

    async def open(self, empty: Path) -> None:
        shutil.copyfile(empty, self.file)
        await self.begin()

    async def begin(self) -> None:
        """A new process on what the last one left."""
        self.point = CrashPoint()
        self.store = Store(url=sqlite_url(self.file), on_step=self.point)
        self.book, self.outages = Book(), OutageBook()
        posting = Posting(tariffs=self.tariffs, refund_minutes=self.prices.refund_minutes)
        self.posting = posting
        self.ledger = Ledger(
            store=self.store,
            book=self.book,
            outages=self.outages,
            tariffs=self.tariffs,
            posting=posting,
            clock=self.clock,
        )
        self.store.listen_entries(self.ledger.listen)
        self.store.listen(self.ledger.listen_leases)
        self.store.listen(self.book.apply)
        await self.store.open()
        self.book.apply(await self.store.read(lambda tx: tx.unended()))
        await self.ledger.load()

    async def close(self) -> None:
        await self.store.close()

    async def do(self, deed: Deed) -> None:
        try:
            await getattr(self, f"_{deed.verb}")(deed)
        except Crash as death:
            self.deaths.append(str(death))
            await self.close()
            await self.begin()
        self._note_ended()

    async def settle(self) -> None:
        """Everything that runs is stopped, and the last entries are made."""
        self.point.disarm()
        for lease in self.book.in_state(LeaseState.ACTIVE):
            await self._stop(Deed("stop", int(lease.id[1:])))
        await self._round(Deed("round"))
        self._note_ended()

    # deeds
    async def _pass(self, deed: Deed) -> None:
        self.now += timedelta(seconds=deed.number, microseconds=deed.which * 333_333)

    async def _jump(self, deed: Deed) -> None:
        """The clock is set; what runs does not notice."""
        self.now += timedelta(seconds=deed.number)

    async def _down(self, deed: Deed) -> None:
        """Nobody posts for this long."""
        await self.close()
        self.now += timedelta(seconds=deed.number)
        await self.begin()

    async def _crash(self, deed: Deed) -> None:
        self.point.arm(deed.number)

    async def _round(self, deed: Deed) -> None:
        for lease in self.book.in_state(LeaseState.ENDING):
            await self.store.write("finish", lambda tx, one=lease.id: self._finish(tx, one))  # type: ignore[misc]
        await self.ledger.round()

    def _finish(self, tx: Transaction, lease_id: str) -> None:
        mark_stopped(tx, lease_id, self.now)
        finish(tx, lease_id, self.now, self.posting.last)

    async def _start(self, deed: Deed) -> None:
        await self.store.write("start", lambda tx: self._begin_lease(tx, deed.which))

    async def _stop(self, deed: Deed) -> None:
        reasons = (EndReason.STOPPED, EndReason.ENGINE_STOPPED, EndReason.NODE_RESTARTED)
        reason = reasons[deed.number % len(reasons)]
        await self.store.write("end", lambda tx: begin_end(tx, f"l{deed.which}", reason, self.now))

    async def _out(self, deed: Deed) -> None:
        """Out of order, and recorded that many seconds late."""
        await self._outage(deed, lambda tx, what, at: tx.begin_outage(what, at))

    async def _back(self, deed: Deed) -> None:
        await self._outage(deed, lambda tx, what, at: tx.end_outage(what, at))

    async def _outage(self, deed: Deed, change: Any) -> None:
        what, at = WHATS[deed.which], self.now - timedelta(seconds=deed.number)

        def work(tx: Transaction) -> Any:
            change(tx, what, at)
            return tx.outages(of=[what])

        self.outages.note(await self.store.write("outage", work))

    def _begin_lease(self, tx: Transaction, which: int) -> None:
        lease_id = f"l{which}"
        if tx.lease(lease_id) is not None:
            return
        factor = None if self.factor is None else format(self.factor, "f")
        tx.add_lease(
            id=lease_id,
            kind="session",
            queue_class="interactive",
            user=f"u{which}",
            server="",
            environment="minimal",
            flavor="f",
            state=LeaseState.QUEUED,
            attempt=f"a{which}",
            price_per_hour=Decimal(0),
            created_at=self.now,
            wants=None if factor is None else {"factor": factor},
        )
        lease = tx.reserve(lease_id, _device(which))
        tariff = self.tariffs.at_grant(lease, lease.devices)
        tx.set_lease(lease_id, state=LeaseState.GRANTED, granted_at=self.now, rates=tariff.as_json())
        tx.set_lease(lease_id, state=LeaseState.ACTIVE, active_at=self.now)

    # what is true
    def rows(self, query: str) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            return database.execute(query).fetchall()

    def recorded(self, which: int) -> list[tuple[datetime, datetime | None]]:
        """Outages that are this session's, as the table has them now."""
        mine = {"engine", *(f"gpu:{device.gpu_uuid}" for device in _device(which))}
        return [
            (_time(row["began_at"]), None if row["ended_at"] is None else _time(row["ended_at"]))
            for row in self.rows("SELECT what, began_at, ended_at FROM outages")
            if row["what"] in mine
        ]

    def _note_ended(self) -> None:
        """What is recorded later changes nothing any more."""
        for row in self.rows("SELECT id FROM leases WHERE state = 'ended'"):
            self.known.setdefault(row["id"], self.recorded(int(row["id"][1:])))

    def running(self) -> list[Lease]:
        return [lease for lease in self.book.all() if lease.active_at is not None]


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
