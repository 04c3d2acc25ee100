"""One thread that owns the database: every transaction is short, ordered, and told to the book."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from allotment_spawner.core.errors import BrokerUnavailable
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError

from allotment_hub.broker.store.connect import connect, sqlite_path
from allotment_hub.broker.store.migrate import migrate
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Store"]

_log = logging.getLogger(__name__)
_LOST = (OperationalError, InterfaceError)

T = TypeVar("T")
Listener = Callable[[Sequence[Lease]], None]


class Store:
    """Runs functions of a `Transaction`; they must not wait for anything but the database.

    `on_step` is called before the transaction, before its commit and after it. Listeners run on the
    event loop after the commit and before the caller resumes, in commit order, also when the caller
    was cancelled: so what they keep in memory never misses or reorders a write.
    """

    def __init__(self, *, url: str, on_step: Callable[[str], None] = lambda _step: None) -> None:
        self._url = url
        self._on_step = on_step
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._engine: Engine | None = None
        self._listeners: list[Listener] = []
        self._unsure: set[str] = set()
        """Leases of a commit that was not answered."""

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def open(self) -> Path | None:
        """Connect and migrate; returns the path of the backup when one was made."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    def _open(self) -> Path | None:
        file = sqlite_path(self._url)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._engine = connect(self._url)
        return migrate(self._engine, sqlite_file=file, on_step=self._on_step)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        with _unavailable():
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._read, loop, work)

    def _read(self, loop: asyncio.AbstractEventLoop, work: Callable[[Transaction], T]) -> T:
        assert self._engine is not None, "the store is not open"
        with self._engine.begin() as connection:
            transaction = Transaction(connection=connection)
            result = work(transaction)
            changed = self._found(transaction)
        self._committed(loop, changed)
        return result

    async def write(self, step: str, work: Callable[[Transaction], T]) -> T:
        """Run `work` and commit; an exception rolls everything back. `step` names it for crash tests."""
        loop = asyncio.get_running_loop()
        self._on_step(f"{step}.before")
        with _unavailable():
            result = await loop.run_in_executor(self._thread, self._write, loop, step, work)
        self._on_step(f"{step}.after")
        return result

    def _write(self, loop: asyncio.AbstractEventLoop, step: str, work: Callable[[Transaction], T]) -> T:
        assert self._engine is not None, "the store is not open"
        changed: list[Lease] = []
        try:
            with self._engine.begin() as connection:
                transaction = Transaction(connection=connection)
                result = work(transaction)
                changed = self._found(transaction)
                self._on_step(f"{step}.commit")
        except _LOST:
            # the commit may have arrived all the same: the next transaction tells what is true
            self._unsure.update(lease.id for lease in changed)
            raise
        self._committed(loop, changed)
        return result

    def _found(self, transaction: Transaction) -> list[Lease]:
        found = [transaction.lease(lease_id) for lease_id in sorted(transaction.changed | self._unsure)]
        return [lease for lease in found if lease is not None]

    def _committed(self, loop: asyncio.AbstractEventLoop, changed: Sequence[Lease]) -> None:
        self._unsure.clear()
        if changed:
            loop.call_soon_threadsafe(self._tell, changed)

    def _tell(self, changed: Sequence[Lease]) -> None:
        for listener in self._listeners:
            listener(changed)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=True)

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


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
