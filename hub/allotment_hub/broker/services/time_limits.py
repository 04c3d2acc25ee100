"""Sessions that may run only so long at a time are told so when they begin, and end then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from allotment_spawner.core.errors import NoSuchLease, WrongState

from allotment_hub.broker.services.notices import PLATFORM, Notices, Words
from allotment_hub.broker.store import notices as table
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store

__all__ = ["TimeLimits"]

_log = logging.getLogger(__name__)
_WHO: Final = f"{PLATFORM}limit"


class TimeLimits:
    """Each session is told once; who takes its end back means it, so it is not announced again."""

    def __init__(
        self, *, store: Store, notices: Notices, grace_minutes: int, clock: Callable[[], datetime]
    ) -> None:
        """`grace_minutes`: for one that is over its time before it could be told."""
        self._store = store
        self._notices = notices
        self._grace = timedelta(minutes=grace_minutes)
        self._clock = clock
        self._told: set[str] = set()

    async def round(self, running: Sequence[Lease]) -> None:
        limited = {lease.id: lease for lease in running if longest_of(lease) is not None}
        self._told &= limited.keys()
        new = sorted(limited.keys() - self._told)
        if not new:
            return
        told = await self._store.read(
            lambda tx: {one for one in new if table.stops_by(tx.connection, one, _WHO)}
        )
        for lease_id in new:
            if lease_id not in told:
                await self._tell(limited[lease_id])
            self._told.add(lease_id)

    async def _tell(self, lease: Lease) -> None:
        longest = longest_of(lease)
        assert longest is not None
        assert lease.active_at is not None
        now = self._clock()
        left = max(lease.active_at + longest - now, min(self._grace, longest))
        words = Words(
            "info",
            f"A session like this may run for {_span(longest)} at a time.",
            "Open documents are saved then; you may start it again.",
        )
        try:
            await self._notices.announce_stop(
                lease.id, words, after_s=left / timedelta(seconds=1), made_by=_WHO
            )
        except (NoSuchLease, WrongState) as why:
            _log.info("no end announced", extra={"lease": lease.id, "why": why.sentence})


def longest_of(lease: Lease) -> timedelta | None:
    """How long it may run at a time, as decided at its request."""
    longest_s = (lease.wants or {}).get("longest_s")
    return None if longest_s is None else timedelta(seconds=longest_s)


def _span(long: timedelta) -> str:
    minutes = max(int(long / timedelta(minutes=1)), 1)
    hours, rest = divmod(minutes, 60)
    parts = [f"{hours} h"] if hours else []
    return " ".join([*parts, *([f"{rest} min"] if rest or not hours else [])])
