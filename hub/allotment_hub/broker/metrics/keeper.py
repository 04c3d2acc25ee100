"""Writes rounds into the file on a thread of its own, and sees to what is over and what is old."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from allotment_hub.broker.metrics.layout import (
    HOURS,
    MINUTES,
    RAW_BLOCK_S,
    Shelf,
    forget_log,
    is_broken,
    open_file,
    set_aside,
)
from allotment_hub.broker.metrics.recording import Recorder
from allotment_hub.broker.metrics.rounds import Round
from allotment_hub.broker.metrics.writing import Writer
from allotment_hub.broker.store.records import Lease
from allotment_hub.site import MetricSettings

__all__ = ["FileKeeper"]

_log = logging.getLogger(__name__)
_MOST_WAITING: Final = 12
_SHARE: Final = 0.25
"""Of the time between two rounds, what rolling up may take."""
_TRUSTED_MINUTES: Final = 30
"""Nothing is pruned by a clock that has not run on for this long: it may have leapt, and leap back."""
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400


class FileKeeper:
    """Opens the file with the first round. A round that cannot be written is missing in it, and said."""

    def __init__(
        self,
        *,
        path: Path,
        settings: MetricSettings,
        on_step: Callable[[str], None] = lambda _step: None,
        steady: Callable[[], float] = time.monotonic,
        limit_pages: int | None = None,
    ) -> None:
        """`limit_pages`: of 16 KiB, how large the file may become; None: as the disk allows."""
        self._path = path
        self._settings = settings
        self._on_step = on_step
        self._steady = steady
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-file")
        self._recorder = Recorder()
        self._connection: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._file: tuple[int, int] | None = None
        self._limit_pages = limit_pages
        self._handed: set[asyncio.Future[None]] = set()
        self._problem: str | None = None
        self._minute: int | None = None
        self._minutes_on = 0
        self._forgotten_on: int | None = None

    def keep(self, taken: Round, leases: Sequence[Lease]) -> str | None:
        """Hand a round over; returns at once, with what went wrong before."""
        if len(self._handed) >= _MOST_WAITING:
            return "The disk is too slow for the file of samples; some are left out."
        before = self._problem
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._work, taken, tuple(leases))
        self._handed.add(work)
        work.add_done_callback(self._done)
        return before

    async def idle(self) -> None:
        """Return once everything handed over so far is written."""
        await asyncio.gather(*self._handed, return_exceptions=True)

    async def close(self) -> None:
        """Write what was handed over, and close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _done(self, work: asyncio.Future[None]) -> None:
        self._handed.discard(work)
        if not work.cancelled() and work.exception() is not None:
            _log.error("samples could not be written", exc_info=work.exception())
            self._problem = "The samples could not be written; see the broker's log."

    def _work(self, taken: Round, leases: Sequence[Lease]) -> None:
        now_s, began = taken.at.timestamp(), self._steady()
        try:
            writer = self._opened()
            writer.add(now_s, self._settings.every_s, self._recorder.rows(taken, leases))
            self._follow(now_s)
            until = began + _SHARE * self._settings.every_s
            while self._chore(writer, now_s) and self._steady() < until:
                continue
            self._problem = None
        except (sqlite3.Error, OSError) as error:
            self._failed(error)

    def _failed(self, error: sqlite3.Error | OSError) -> None:
        if isinstance(error, sqlite3.Error) and is_broken(error):
            self._close()
            set_aside(self._path)
            self._problem = "The file of samples could not be read; it was set aside and a new one begun."
            return
        said = self._problem
        self._problem = f"The samples cannot be written: {error}."
        if self._problem != said:
            _log.warning(self._problem)

    def _opened(self) -> Writer:
        if self._writer is not None and _which(self._path) != self._file:
            _log.warning("the file of samples was taken away; a new one is begun: %s", self._path)
            self._close()
            forget_log(self._path)
        if self._writer is None:
            try:
                self._connection = open_file(self._path)
            except sqlite3.Error as error:
                if not is_broken(error):
                    raise
                set_aside(self._path)
                self._connection = open_file(self._path)
            if self._limit_pages is not None:
                self._connection.execute(f"PRAGMA max_page_count = {self._limit_pages:d}")
            self._writer = Writer(self._connection, on_step=self._on_step)
            self._file = _which(self._path)
        return self._writer

    def _close(self) -> None:
        connection, self._connection, self._writer = self._connection, None, None
        if connection is not None:
            connection.close()

    def _follow(self, now_s: float) -> None:
        """Count the minutes in which rounds followed each other, however far apart they are to be."""
        minute = int(now_s) // _MINUTE_S
        on = 0 if self._minute is None else minute - self._minute
        follows = 0 <= on <= 1 + self._settings.every_s // _MINUTE_S
        self._minutes_on = self._minutes_on + on if follows else 0
        self._minute = minute

    def _chore(self, writer: Writer, now_s: float) -> bool:
        """The next small piece of what is to be done; False when there is nothing."""
        rolled = writer.roll_minute(now_s) or writer.roll_block(MINUTES, now_s)
        if rolled or writer.roll_block(HOURS, now_s):
            return True
        return self._minutes_on >= _TRUSTED_MINUTES and self._prune(writer, now_s)

    def _prune(self, writer: Writer, now_s: float) -> bool:
        kept = self._settings
        raw_from, minutes_from, hours_from = (
            now_s - kept.keep_raw_h * _HOUR_S,
            now_s - kept.keep_minutes_days * _DAY_S,
            now_s - kept.keep_hours_days * _DAY_S,
        )
        today = int(now_s) // _DAY_S
        if self._forgotten_on != today:
            self._forgotten_on = today
            writer.forget(hours_from)
        return (
            writer.prune(Shelf.RAW, int(raw_from) // RAW_BLOCK_S)
            or writer.prune(Shelf.MINUTES, int(minutes_from) // MINUTES.block_s)
            or writer.prune(Shelf.HOURS, int(hours_from) // HOURS.block_s)
        )


def _which(path: Path) -> tuple[int, int] | None:
    """Device and inode: what is written into a file that was deleted is lost."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
