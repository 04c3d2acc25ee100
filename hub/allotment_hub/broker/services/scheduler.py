"""One pass over the queue at a time, started by whatever may have changed its outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime

from allotment_spawner.core.request import Request

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.cutting import Cutting
from allotment_hub.broker.services.granting import Granting
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.planning import Step, plan
from allotment_hub.broker.services.pools import request_of
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.services.waiters import Waiters
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.transaction import SlotTaken
from allotment_hub.catalog import Catalog
from allotment_hub.site import Site

__all__ = ["Scheduler"]

_log = logging.getLogger(__name__)


class Scheduler:
    """`kick` asks for a pass and returns a future that is done when a pass begun after it has ended."""

    def __init__(
        self,
        *,
        site: Site,
        catalog: Catalog,
        book: Book,
        situation: Situation,
        observations: Observations,
        granting: Granting,
        cutting: Cutting,
        waiters: Waiters,
        being_made: Callable[[Lease], bool],
        jobs: Jobs,
        clock: Callable[[], datetime],
    ) -> None:
        """`being_made`: what a lease lacks is there in a moment."""
        self._site = site
        self._catalog = catalog
        self._book = book
        self._situation = situation
        self._seen = observations
        self._granting = granting
        self._cutting = cutting
        self._waiters = waiters
        self._being_made = being_made
        self._jobs = jobs
        self._clock = clock
        self._passes = 0
        self._asked: list[asyncio.Future[None]] = []
        self._draining = False

    def kick(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append(future)
        if not self._draining:
            self._passes += 1
            self._draining = self._jobs.start(f"schedule-{self._passes}", self._drain)
            if not self._draining:
                self._answer(self._asked)
        return future

    async def _drain(self) -> None:
        served: list[asyncio.Future[None]] = []
        try:
            while self._asked:
                served, self._asked = self._asked, []
                await self.once()
                self._answer(served)
        finally:
            # set before the task ends, so that a kick in between starts a new one
            self._draining = False
            self._answer([*served, *self._asked])
            self._asked = []

    @staticmethod
    def _answer(futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)

    async def once(self) -> None:
        """Grant and reserve what the queue allows; cutting goes on in the background."""
        if self._seen.engine_problem is not None:
            return
        devices = self._seen.agent_problem is None
        queue = [lease for lease in self._book.queue(self._clock()) if self._granting.offered(lease)]
        for lease in queue if devices else ():
            if lease.reserved:
                self._serve(lease)
        waiting = [lease for lease in queue if devices or self.request_for(lease) is None]
        ready = {lease.id for lease in waiting if self._granting.ready(lease)}
        # a folder that takes a moment costs nobody the turn; data that take hours hold nobody up
        soon = {lease.id for lease in waiting if lease.id not in ready and self._being_made(lease)}
        for step in plan(
            [lease for lease in waiting if lease.id in ready | soon],
            self._situation.machine().snapshot,
            self._situation.demand,
            request_for=self.request_for,
            connected=lambda one: one in ready and self._waiters.is_connected(one),
            may_return=lambda one: self._keeps_turn(one, soon),
        ):
            await self._take(step)

    def _keeps_turn(self, lease_id: str, soon: Collection[str]) -> bool:
        waits_for_a_moment = lease_id in soon and self._waiters.is_connected(lease_id)
        return waits_for_a_moment or self._waiters.may_return(lease_id)

    async def _take(self, step: Step) -> None:
        if not self._granting.ready(step.lease):
            # its data were replaced while the steps before it were written down
            return
        if step.placement is None:
            await self._granting.without_device(step.lease.id)
            return
        try:
            reserved = await self._granting.reserve(step.lease.id, step.placement)
        except SlotTaken:
            # another lease was faster, or what we saw was old: the next pass decides anew
            _log.warning("reservation refused by the database", extra={"lease": step.lease.id})
            return
        if reserved:
            self._serve(step.lease)

    def _serve(self, lease: Lease) -> None:
        self._jobs.start(f"cut-{lease.id}", lambda: self._cutting.serve(lease.id))

    def request_for(self, lease: Lease) -> Request | None:
        flavor = self._catalog.flavors.get(lease.flavor)
        if flavor is None:
            return None
        return request_of(lease.flavor, flavor, self._site.pools, only=lease.pools)
