"""After each commit of the store: who is told of it, in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from allotment_spawner.core.lease import LeaseState

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Bell, Changes, Signals
from allotment_hub.broker.services.scheduler import Scheduler
from allotment_hub.broker.store.records import Lease

__all__ = ["Listener"]

_PLACES_S = 0.2


class Listener:
    """After each commit: the book first, then everybody who waits for news."""

    def __init__(
        self,
        book: Book,
        signals: Signals,
        changes: Changes,
        bell: Bell,
        scheduler: Scheduler,
    ) -> None:
        self._book = book
        self._signals = signals
        self._changes = changes
        self._bell = bell
        self._scheduler = scheduler
        self._places_pending = False

    def __call__(self, changed: Sequence[Lease]) -> None:
        self._book.apply(changed)
        self._signals.touch([lease.id for lease in changed])
        self._changes.bump()
        if any(lease.state is LeaseState.ENDING for lease in changed):
            self._bell.ring()
        if any(lease.state in (LeaseState.ENDED, LeaseState.QUEUED) for lease in changed):
            self._scheduler.kick()
        if not self._places_pending:
            # one change moves everybody's place: many changes together tell everybody once
            self._places_pending = True
            asyncio.get_running_loop().call_later(_PLACES_S, self._tell_places)

    def _tell_places(self) -> None:
        self._places_pending = False
        self._signals.touch(self._book.queued_ids())
