"""How full homes are: measured now and then while their people work, and when somebody asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from allotment_spawner.core.errors import Refusal
from allotment_spawner.core.lease import LIVE
from allotment_spawner.engines.home_gauge import HomeGauge, HomeUsage
from allotment_spawner.wire import HomeView

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.store.homes import HomeRow, HomeState, find_home, list_homes, put_home
from allotment_hub.broker.store.store import Store
from allotment_hub.site import HomeSettings

__all__ = ["Homes", "home_warning"]

_log = logging.getLogger(__name__)
_GIB: Final = 2**30
_LOOK_EVERY_S: Final = 30.0
_SETTLED_S: Final = 60.0
_RETRY_S: Final = 600
_AGAIN_S: Final = 10
"""A measurement this young answers whoever asks again."""
_MOST: Final = 5000


class Homes:
    """`gauge` None: nothing can be measured here, all is unknown.

    Whoever measures looks into no home: the gauge's helper does, as the home's owner.
    """

    def __init__(
        self,
        *,
        settings: HomeSettings,
        store: Store,
        book: Book,
        gauge: HomeGauge | None,
        clock: Callable[[], datetime],
        settled_s: float = _SETTLED_S,
    ) -> None:
        """Homes of sessions younger than `settled_s` are left alone: starts come first."""
        self._settings = settings
        self._store = store
        self._book = book
        self._gauge = gauge
        self._clock = clock
        self._settled = timedelta(seconds=settled_s)
        self._measuring: dict[str, asyncio.Task[HomeRow]] = {}
        self._at_work: dict[str, datetime] = {}
        """Person -> when a session of theirs was last seen."""
        self._not_before: dict[str, datetime] = {}
        """Person -> when to try again what failed."""

    async def of(self, user: str) -> HomeView:
        """Also of a person who never had one: all unknown."""
        return self._view(await self._row(user))

    async def all(self) -> list[HomeView]:
        """Those that were ever measured, the fullest first."""
        rows: Sequence[HomeRow] = await self._store.read(lambda tx: list_homes(tx.connection, _MOST))
        return [self._view(row) for row in rows]

    async def measure(self, user: str) -> HomeView:
        """Measure now; whoever asks meanwhile gets the same answer, and so does a moment later."""
        row = await self._row(user)
        fresh = row.measured_at is not None and self._clock() - row.measured_at < timedelta(seconds=_AGAIN_S)
        return self._view(row if fresh else await self._measured(user))

    async def settle(self, user: str, state: HomeState) -> HomeView:
        """What became of the home of a person who left."""
        row = HomeRow(user=user, state=state)
        await self._store.write("home", lambda tx: put_home(tx.connection, row))
        return self._view(row)

    async def limited(self, user: str, enforced: bool) -> None:
        """Note whether the file system itself refuses more than the limit."""
        row = await self._row(user)
        if row.enforced != enforced:
            noted = replace(row, enforced=enforced, limit_bytes=self._limit_bytes)
            await self._store.write("home", lambda tx: put_home(tx.connection, noted))

    async def run(self) -> None:
        """Measure homes in use, one after the other, until cancelled."""
        while True:
            try:
                await self.round()
            except Exception:  # noqa: BLE001 - one bad round must not stop all later ones
                _log.exception("homes could not be measured; the next round tries again")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def round(self) -> None:
        """One look at who works, and a measurement for each whose last one is too old."""
        if self._gauge is None:
            return
        now = self._clock()
        for lease in self._book.all():
            if lease.state in LIVE and lease.active_at is not None and lease.active_at <= now - self._settled:
                self._at_work[lease.user] = now
        for user, seen in list(self._at_work.items()):
            row = await self._row(user)
            if row.measured_at is not None and row.measured_at >= seen:
                # measured since the last session ended: nothing changes till the next one
                del self._at_work[user]
            elif self._is_due(row, now):
                await self._measured(user)

    def _is_due(self, row: HomeRow, now: datetime) -> bool:
        if now < self._not_before.get(row.user, now):
            return False
        every = timedelta(hours=self._settings.measure_every_h)
        return row.measured_at is None or now - row.measured_at >= every

    async def _row(self, user: str) -> HomeRow:
        found = await self._store.read(lambda tx: find_home(tx.connection, user))
        return found or HomeRow(user=user)

    async def _measured(self, user: str) -> HomeRow:
        task = self._measuring.get(user)
        if task is None:
            task = self._measuring[user] = asyncio.ensure_future(self._measure(user))
            task.add_done_callback(lambda _: self._measuring.pop(user, None))
        return await asyncio.shield(task)

    async def _measure(self, user: str) -> HomeRow:
        """What could not be measured leaves the last figures, with their time, and says why."""
        before = await self._row(user)
        if self._gauge is None:
            return replace(before, note="Homes cannot be measured here.")
        try:
            found, why = await self._gauge.measure(user), "Measuring your home took too long."
        except Refusal as refusal:
            found, why = None, refusal.sentence
        if found is None:
            _log.warning("a home could not be measured", extra={"user": user, "why": why})
            self._not_before[user] = self._clock() + timedelta(seconds=_RETRY_S)
            row = replace(before, note=why)
        else:
            self._not_before.pop(user, None)
            row = self._with(before, found)
        await self._store.write("home", lambda tx: put_home(tx.connection, row))
        return row

    def _with(self, before: HomeRow, found: HomeUsage) -> HomeRow:
        return replace(
            before,
            state=self._state(before),
            used_bytes=found.used_bytes,
            files=found.files,
            limit_bytes=self._limit_bytes,
            measured_at=self._clock(),
            note=None if found.whole else "Some of its folders are closed even to you, and not counted.",
        )

    def _state(self, before: HomeRow) -> HomeState:
        """Whoever left and works again has a home again."""
        return "live" if before.user in self._at_work else before.state

    @property
    def _limit_bytes(self) -> int | None:
        quota = self._settings.quota_gib
        return None if quota is None else int(quota * _GIB)

    def _view(self, row: HomeRow) -> HomeView:
        return HomeView(
            user=row.user,
            used_bytes=row.used_bytes,
            files=row.files,
            limit_bytes=self._limit_bytes,
            enforced=row.enforced,
            measured_at=row.measured_at,
            state=row.state,
            warning=home_warning(
                row.used_bytes, self._limit_bytes, self._settings.warn_at_percent, enforced=row.enforced
            )
            or row.note,
        )


def home_warning(
    used_bytes: int | None, limit_bytes: int | None, warn_at_percent: int, *, enforced: bool
) -> str | None:
    """What a person should be told of their home; None when there is nothing to say.

    A limit that is not `enforced`, only measured, keeps nobody from saving.
    """
    if used_bytes is None or limit_bytes is None:
        return None
    share = f"{used_bytes / _GIB:.1f} of {limit_bytes / _GIB:.1f} GiB"
    if used_bytes >= limit_bytes:
        what = "Sessions still start, but cannot save: delete" if enforced else "Delete"
        return (
            f"Your home is full ({share}). {what} what you do not need in a terminal, or ask an operator "
            "for more."
        )
    if used_bytes * 100 >= limit_bytes * warn_at_percent:
        return (
            f"Your home is nearly full ({share}). Delete what you do not need, or ask an operator for more."
        )
    return None
