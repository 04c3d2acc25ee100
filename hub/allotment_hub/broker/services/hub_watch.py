"""The hub's word on servers, asked seldom: only where it matters now, and of the rest now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Literal

from allotment_hub.broker.services.ports import HubUnavailable, HubView, ServerState
from allotment_hub.broker.store.records import Lease

__all__ = ["Answer", "HubWatch"]

Answer = ServerState | Literal["unknown"]

_TOGETHER = 8
_ROUTINE_S = 15
_ROUTINE_PER_S = 10
"""Of many sessions at most this many are asked for in a second, so that the hub stays free."""


class HubWatch:
    """Remembers since when a server has been absent."""

    def __init__(self, *, hub: HubView, clock: Callable[[], datetime]) -> None:
        self._hub = hub
        self._clock = clock
        self._asked: dict[str, datetime] = {}
        self._absent: dict[str, datetime] = {}

    def due(self, leases: Collection[Lease]) -> list[Lease]:
        """Running sessions whose turn it is; those seen absent are always due."""
        now = self._clock()
        every = timedelta(seconds=max(_ROUTINE_S, len(leases) / _ROUTINE_PER_S))
        due = [
            lease
            for lease in leases
            if lease.id in self._absent
            or not _within(now, self._asked.get(lease.id, lease.created_at), every)
        ]
        return sorted(due, key=lambda lease: self._asked.get(lease.id, lease.created_at))[:100]

    async def ask(self, leases: Sequence[Lease]) -> dict[str, Answer]:
        """Lease id -> answer. After one failure the rest of this round is unknown: a hub that is down
        must not hold the round up once per lease."""
        gate = asyncio.Semaphore(_TOGETHER)
        down = asyncio.Event()

        async def one(lease: Lease) -> tuple[str, Answer]:
            async with gate:
                if down.is_set():
                    return lease.id, "unknown"
                try:
                    return lease.id, await self._hub.server_state(lease.user, lease.server)
                except HubUnavailable:
                    down.set()
                    return lease.id, "unknown"

        answers = dict(await asyncio.gather(*(one(lease) for lease in leases)))
        now = self._clock()
        for lease_id, answer in answers.items():
            if answer == "absent":
                self._absent[lease_id] = min(now, self._absent.get(lease_id, now))
            else:
                self._absent.pop(lease_id, None)
            if answer != "unknown":
                self._asked[lease_id] = now
        return answers

    def absent_for(self, lease_id: str) -> timedelta:
        since = self._absent.get(lease_id)
        return timedelta(0) if since is None else self._clock() - since

    def keep_only(self, lease_ids: Collection[str]) -> None:
        """Forget leases that are over."""
        for book in (self._asked, self._absent):
            for lease_id in [known for known in book if known not in lease_ids]:
                del book[lease_id]


def _within(now: datetime, then: datetime, span: timedelta) -> bool:
    """A moment that is still to come is none to wait for: the clock was set back."""
    return timedelta(0) <= now - then < span
