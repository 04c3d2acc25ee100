"""One thread that owns the database: every transaction is short, ordered, and told to the book."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from allotment_spawner.core.errors import BrokerUnavailable
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from allotment_hub.broker.store.ballast import Ballast, is_full
from allotment_hub.broker.store.connect import connect, sqlite_path
from allotment_hub.broker.store.ledger import Entry, entry_by_key
from allotment_hub.broker.store.migrate import migrate
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.reserve import overwrite_in_place, reserve
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Store"]

_log = logging.getLogger(__name__)
_FILL_EVERY_S = 60.0
_LOST = (OperationalError, InterfaceError)

T = TypeVar("T")
Listener = Callable[[Sequence[Lease]], None]
EntryListener = Callable[[Sequence[Entry]], None]


@dataclass(frozen=True, slots=True)
class _News:
    """What one transaction wrote."""

    leases: Sequence[Lease] = ()
    entries: Sequence[Entry] = ()


class Store:
    """Runs functions of a `Transaction`; they must not wait for anything but the database.

    `on_step` is called before the transaction, before its commit and after it. Listeners run on the
    event loop after the commit and before the caller resumes, in commit order, also when the caller
    was cancelled: so what they keep in memory never misses or reorders a write.
    """

    def __init__(
        self, *, url: str, on_step: Callable[[str], None] = lambda _step: None, ballast_bytes: int = 0
    ) -> None:
        """`ballast_bytes`: disk space kept back beside a SQLite file, so that it can write on a full disk."""
        self._url = url
        self._on_step = on_step
        self._ballast_bytes = ballast_bytes
        self._ballast: Ballast | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._engine: Engine | None = None
        self._listeners: list[Listener] = []
        self._unsure: set[str] = set()
        """Leases of a commit that was not answered."""
        self._unsure_keys: set[str] = set()
        """Entries of it."""
        self._entry_listeners: list[EntryListener] = []

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def listen_entries(self, listener: EntryListener) -> None:
        """Told each entry once, in the order in which they were written, before the leases of its commit."""
        self._entry_listeners.append(listener)

    async def open(self) -> Path | None:
        """Connect and migrate; returns the path of the backup when one was made."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    def _open(self) -> Path | None:
        file = sqlite_path(self._url)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self._ballast_bytes:
                overwrite_in_place(file.parent)
                self._ballast = Ballast(file.parent, size_bytes=self._ballast_bytes)
        self._engine = connect(self._url)
        engine = self._engine
        done = self._with_room(lambda: migrate(engine, sqlite_file=file, on_step=self._on_step))
        if file is not None and self._ballast is not None:
            self._keep_room(engine, file)
        return done

    def _keep_room(self, engine: Engine, file: Path) -> None:
        """Inside SQLite's files first: nobody else can take that."""
        journal = file.with_name(f"{file.name}-wal")
        try:
            self._with_room(lambda: reserve(engine, journal))
        except DBAPIError as error:
            _log.warning("the disk is too full to keep room back for the database: %s", error.orig)
        self._fill()

    def _with_room(self, work: Callable[[], T]) -> T:
        """Again with one piece of ballast less, as long as the disk is full: nothing was committed."""
        while True:
            try:
                return work()
            except DBAPIError as error:
                ballast = self._ballast
                if ballast is None or not is_full(error) or not (ballast.no_room() and ballast.drop()):
                    raise

    def _fill(self) -> None:
        try:
            if self._ballast is not None:
                self._ballast.fill()
        except OSError as error:
            _log.warning("no space can be kept back for the database: %s", error)

    async def keep_ballast(self) -> None:
        """Take back what was given up, once there is room; until cancelled."""
        while True:
            await asyncio.sleep(_FILL_EVERY_S)
            await asyncio.to_thread(self._fill)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        with _unavailable():
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._read, loop, work)

    def _read(self, loop: asyncio.AbstractEventLoop, work: Callable[[Transaction], T]) -> T:
        result, news = self._with_room(lambda: self._one_read(work))
        self._committed(loop, news)
        return result

    def _one_read(self, work: Callable[[Transaction], T]) -> tuple[T, _News]:
        assert self._engine is not None, "the store is not open"
        with self._engine.begin() as connection:
            transaction = Transaction(connection=connection)
            return work(transaction), self._found(transaction)

    async def write(self, step: str, work: Callable[[Transaction], T]) -> T:
        """Run `work` and commit; an exception rolls everything back. `step` names it for crash tests."""
        loop = asyncio.get_running_loop()
        self._on_step(f"{step}.before")
        with _unavailable():
            result = await loop.run_in_executor(self._thread, self._write, loop, step, work)
        self._on_step(f"{step}.after")
        return result

    def _write(self, loop: asyncio.AbstractEventLoop, step: str, work: Callable[[Transaction], T]) -> T:
        result, news = self._with_room(lambda: self._one_write(step, work))
        self._committed(loop, news)
        return result

    def _one_write(self, step: str, work: Callable[[Transaction], T]) -> tuple[T, _News]:
        assert self._engine is not None, "the store is not open"
        news = _News()
        try:
            with self._engine.begin() as connection:
                transaction = Transaction(connection=connection)
                result = work(transaction)
                news = self._found(transaction)
                self._on_step(f"{step}.commit")
        except _LOST:
            # the commit may have arrived all the same: the next transaction tells what is true
            self._unsure.update(lease.id for lease in news.leases)
            self._unsure_keys.update(entry.key for entry in news.entries)
            raise
        return result, news

    def _found(self, transaction: Transaction) -> _News:
        found = [transaction.lease(lease_id) for lease_id in sorted(transaction.changed | self._unsure)]
        keys = self._unsure_keys - {entry.key for entry in transaction.posted}
        late = [entry_by_key(transaction.connection, key) for key in sorted(keys)]
        return _News(
            leases=[lease for lease in found if lease is not None],
            entries=[entry for entry in late if entry is not None] + transaction.posted,
        )

    def _committed(self, loop: asyncio.AbstractEventLoop, news: _News) -> None:
        self._unsure.clear()
        self._unsure_keys.clear()
        if news.leases or news.entries:
            loop.call_soon_threadsafe(self._tell, news)

    def _tell(self, news: _News) -> None:
        if news.entries:
            for told in self._entry_listeners:
                told(news.entries)
        if news.leases:
            for listener in self._listeners:
                listener(news.leases)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=True)

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
            self._fill()  # SQLite removed its journal just now: the next start may need that room


@contextmanager
def _unavailable() -> Iterator[None]:
    """A full disk or a database server that restarts: whoever asked tries again."""
    try:
        yield
    except _LOST as error:
        _log.error("the database does not do what was asked", exc_info=error)
        raise BrokerUnavailable(
            "The broker's database does not answer.", "Try again in a moment; tell an operator if it stays."
        ) from error
