"""When engine or GPUs could not be used: kept in the database, so that a restart does not forget it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from allotment_hub.accounting.billing import Outage
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["OutageBook", "Outages", "engine_down_since", "gpu_outage", "outages_of", "what_of"]

_ENGINE: Final = "engine"
_GPU: Final = "gpu:"


def engine_down_since(tx: Transaction) -> datetime | None:
    """Set from the first look that failed until the round after the first that succeeded has ended."""
    return tx.open_outage(_ENGINE)


def gpu_outage(gpu_uuid: str) -> str:
    return _GPU + gpu_uuid


def what_of(lease: Lease) -> tuple[str, ...]:
    """Whose outages are this lease's: the engine's, and those of the GPUs that it holds a part of."""
    return (_ENGINE, *sorted({gpu_outage(device.gpu_uuid) for device in lease.devices}))


def outages_of(tx: Transaction, lease: Lease) -> tuple[Outage, ...]:
    """From the database, of the time since the lease became active."""
    found = tx.outages(since=lease.active_at, of=what_of(lease))
    return tuple((began, ended) for _, began, ended in found)


class OutageBook:
    """The same in memory, as far back as any lease runs that has not ended; written after each commit."""

    def __init__(self) -> None:
        self._known: dict[str, dict[datetime, datetime | None]] = {}
        self.version = 0

    def load(self, rows: Sequence[tuple[str, datetime, datetime | None]]) -> None:
        self._known.clear()
        self.note(rows)

    def note(self, rows: Sequence[tuple[str, datetime, datetime | None]]) -> None:
        for what, began, ended in rows:
            self._known.setdefault(what, {})[began] = ended
        self.version += 1

    def of(self, lease: Lease) -> tuple[Outage, ...]:
        return tuple(outage for what in what_of(lease) for outage in self._known.get(what, {}).items())

    def open(self) -> dict[str, datetime]:
        """What is out of order now, and since when."""
        return {
            what: began
            for what, outages in self._known.items()
            for began, ended in outages.items()
            if ended is None
        }


class Outages:
    """Of the engine. `load` once at the start; `began` after each look at it, `over` when the round has
    used it."""

    def __init__(
        self,
        *,
        store: Store,
        observations: Observations,
        book: OutageBook,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._seen = observations
        self._book = book
        self._clock = clock
        self._recorded = False

    async def load(self) -> None:
        since = await self._store.read(engine_down_since)
        self._recorded = since is not None
        if since is not None:
            self._seen.resume_outage(since)

    async def began(self) -> None:
        since = self._seen.down_since
        if since is not None and not self._recorded:
            await self._write(lambda tx: tx.begin_outage(_ENGINE, since))
            self._recorded = True

    async def over(self) -> None:
        """Only after the leases that went down with it were ended: a crash in between tells it again."""
        if self._recorded and self._seen.down_since is None:
            now = self._clock()
            await self._write(lambda tx: tx.end_outage(_ENGINE, now))
            self._recorded = False

    async def _write(self, change: Callable[[Transaction], None]) -> None:
        def work(tx: Transaction) -> Sequence[tuple[str, datetime, datetime | None]]:
            since = tx.open_outage(_ENGINE)
            change(tx)
            return tx.outages(since=since, of=[_ENGINE])

        self._book.note(await self._store.write("outage", work))
