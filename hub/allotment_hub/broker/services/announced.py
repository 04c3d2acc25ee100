"""Sessions whose announced end has come are stopped through the hub, as often as it takes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from allotment_spawner.core.lease import LeaseState

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.notices import Notices
from allotment_hub.broker.services.ports import HubUnavailable, HubView
from allotment_hub.broker.store.records import Lease

__all__ = ["AnnouncedStops"]

_log = logging.getLogger(__name__)


class AnnouncedStops:
    """`round` is cheap and may be repeated: the hub is asked again until the lease is no longer live."""

    def __init__(
        self,
        *,
        notices: Notices,
        book: Book,
        hub: HubView,
        jobs: Jobs,
        clock: Callable[[], datetime],
        on_step: Callable[[str], None],
    ) -> None:
        self._notices = notices
        self._book = book
        self._hub = hub
        self._jobs = jobs
        self._clock = clock
        self._on_step = on_step

    async def round(self) -> None:
        await self._notices.settle()
        now = self._clock()
        for lease_id, stop_at in list(self._notices.stops.items()):
            lease = self._book.get(lease_id)
            if lease is None or lease.state not in (LeaseState.GRANTED, LeaseState.ACTIVE):
                # over, or on its way there: the server's name may soon be another lease's
                del self._notices.stops[lease_id]
                self._notices.stopping.discard(lease_id)
            elif stop_at <= now:
                self._stop(lease)

    def _stop(self, lease: Lease) -> None:
        async def work() -> None:
            # looked at again: the job may have waited for its turn, and been called off meanwhile
            found = self._book.get(lease.id)
            if found is None or found.state not in (LeaseState.GRANTED, LeaseState.ACTIVE):
                return
            if lease.id not in self._notices.stops:
                return
            self._on_step("announced.before")
            self._notices.stopping.add(lease.id)
            try:
                await self._hub.stop_server(lease.user, lease.server)
            except HubUnavailable as why:
                self._notices.stopping.discard(lease.id)
                _log.warning(
                    "an announced stop waits for the hub", extra={"lease": lease.id, "why": str(why)}
                )
                return
            self._on_step("announced.after")

        self._jobs.start(f"announced-{lease.id}", work)
