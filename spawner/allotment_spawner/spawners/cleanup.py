"""Undoing an attempt in the background: the hub waits one second for a cancelled start, no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from allotment_spawner.core.errors import Refusal
from allotment_spawner.core.lease import EndReason
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.spawners.session import Session
from allotment_spawner.spawners.workload import Workload

__all__ = ["Cleaner", "clean_up"]

_SHUTDOWN_GRACE_S = 0.25
_TRIES = 8
_RELEASE_FOR_S = 120.0
_NEXT_WAITS_S = 20.0
_log = logging.getLogger(__name__)


class Cleaner:
    """Runs clean-ups, at most one for each server, and lets the next start of that server wait for it."""

    def __init__(self) -> None:
        # tasks are held here: the loop itself holds them weakly
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def hand_over(self, session: Session, *, broker: BrokerClient, reason: EndReason, grace_s: float) -> None:
        """Begin to undo `session`; returns at once."""
        self.run(
            (session.user, session.server),
            clean_up(session, broker=broker, reason=reason, grace_s=grace_s),
        )

    def run(self, key: tuple[str, str], work: Coroutine[Any, Any, None]) -> None:
        before = self._tasks.get(key)

        async def in_order() -> None:
            if before is not None:
                await asyncio.wait([before])
            await work

        task = self._tasks[key] = asyncio.create_task(in_order())
        task.add_done_callback(lambda done: self._forget(key, done))

    async def settled(self, user: str, server: str) -> None:
        """Return once nothing is being undone for this server, or after 20 s."""
        task = self._tasks.get((user, server))
        if task is not None:
            await asyncio.wait([task], timeout=_NEXT_WAITS_S)

    def _forget(self, key: tuple[str, str], done: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.error("clean-up of %s failed", key, exc_info=error)


async def clean_up(session: Session, *, broker: BrokerClient, reason: EndReason, grace_s: float) -> None:
    """Remove the workload, then end the lease.

    The short pause first: a hub that shuts down cancels every start, and those people keep their
    places (the broker waits for them); by then this task is gone with the hub. What can't be
    removed or told now, the broker finishes: it looks at the engine itself.
    """
    await asyncio.sleep(_SHUTDOWN_GRACE_S)
    if session.workload is not None:
        await _remove(session.workload, grace_s)
    try:
        lease = session.lease or await _lease_of(session, broker)
        if lease is not None:
            await broker.release(lease, reason=reason, attempt=session.attempt, retry_for_s=_RELEASE_FOR_S)
    except Refusal as refusal:
        # a newer attempt took the lease over, or the broker stays away and will find out itself
        _log.info("lease of %s/%s not released: %s", session.user, session.server, refusal.code)


async def _remove(workload: Workload, grace_s: float) -> None:
    for tries in range(_TRIES):
        try:
            await workload.remove(grace_s=grace_s)
            return
        except Refusal as refusal:
            _log.warning("cannot remove %s yet: %s", workload.engine_ref, refusal.sentence)
            await asyncio.sleep(min(0.5 * 2**tries, 15.0))


async def _lease_of(session: Session, broker: BrokerClient) -> str | None:
    """The lease of an attempt that was cancelled while it asked: the answer never came. If the newest is
    another attempt's, the broker refuses to end it."""
    if not session.asked:
        return None
    found = await broker.leases(user=session.user, server=session.server, live=True, limit=1)
    return found[0].id if found else None
