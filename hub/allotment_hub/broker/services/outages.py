"""Outages of the engine, kept in the database so that a restart of the broker does not forget them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Outages", "engine_down_since"]

_ENGINE = "engine"


def engine_down_since(tx: Transaction) -> datetime | None:
    """Set from the first look that failed until the round after the first that succeeded has ended."""
    return tx.open_outage(_ENGINE)


class Outages:
    """`load` once at the start; `began` after each look at the engine, `over` when the round has used it."""

    def __init__(self, *, store: Store, observations: Observations, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._seen = observations
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
            await self._store.write("outage", lambda tx: tx.begin_outage(_ENGINE, since))
            self._recorded = True

    async def over(self) -> None:
        """Only after the leases that went down with it were ended: a crash in between tells it again."""
        if self._recorded and self._seen.down_since is None:
            now = self._clock()
            await self._store.write("outage", lambda tx: tx.end_outage(_ENGINE, now))
            self._recorded = False
