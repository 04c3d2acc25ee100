"""One factory builds the whole broker; nothing below knows how it is wired."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allotment_spawner.core.errors import Refusal
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.engines.base import Engine
from allotment_spawner.gpu.client import Agent

from allotment_hub.broker.problems import problem_of
from allotment_hub.broker.reconciler import Reconciler
from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Bell, Changes, Signals
from allotment_hub.broker.services.cutting import Cutting
from allotment_hub.broker.services.explain import Explainer
from allotment_hub.broker.services.fleet import Fleet
from allotment_hub.broker.services.granting import Granting
from allotment_hub.broker.services.history import History
from allotment_hub.broker.services.hub_watch import HubWatch
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.lease_views import LeaseViews
from allotment_hub.broker.services.leases import Leases
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.ports import HubView
from allotment_hub.broker.services.scheduler import Scheduler
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.services.stopping import Stopping
from allotment_hub.broker.services.upkeep import Upkeep
from allotment_hub.broker.services.waiters import Waiters
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.catalog import Catalog
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["Broker", "build_broker"]

_PLACES_S = 0.2


@dataclass
class Broker:
    """Everything that the API needs, wired. `start` once, then `run` until cancelled, then `close`."""

    leases: Leases
    fleet: Fleet
    explainer: Explainer
    changes: Changes
    reconciler: Reconciler
    scheduler: Scheduler
    jobs: Jobs
    store: Store
    load: Callable[[], Awaitable[None]]

    async def start(self) -> None:
        """Migrate, read the book, and compare it with the machine before anybody is served."""
        await self.store.open()
        await self.load()
        await self.reconciler.once()

    async def run(self) -> None:
        """The loops; returns only by being cancelled."""
        await self.reconciler.run()

    async def close(self) -> None:
        """Stop working; nothing is undone, the next start finds what was half done."""
        await self.jobs.close()
        await self.store.close()


def build_broker(
    *,
    site: Site,
    catalog: Catalog,
    runtime: Runtime,
    paths: Paths,
    agent: Agent,
    engines: Mapping[str, Engine],
    hub: HubView,
    clock: Callable[[], datetime],
    on_step: Callable[[str], None] = lambda _step: None,
    settle_s: float = 2.0,
) -> Broker:
    """A broker for one node. `engines` by name; runtime.json says which one runs the sessions."""
    engine = engines[runtime.engine]
    url = site.broker.database_url or sqlite_url(paths.broker_database)
    store, book, jobs = Store(url=url, on_step=on_step), Book(), Jobs()
    signals, changes, bell = Signals(), Changes(), Bell()
    waiters = Waiters(clock=clock)
    seen = Observations(agent=agent, engine=engine, clock=clock)
    situation = Situation(site=site, store=store, book=book, observations=seen)
    history = History(site=site, catalog=catalog, store=store, book=book, situation=situation, clock=clock)
    admission = Admission(site=site, catalog=catalog, runtime=runtime, hub=hub, situation=situation)
    granting = Granting(
        site=site,
        catalog=catalog,
        runtime=runtime,
        store=store,
        situation=situation,
        observations=seen,
        clock=clock,
    )
    cutting = Cutting(
        agent=agent,
        store=store,
        book=book,
        situation=situation,
        observations=seen,
        granting=granting,
        waiters=waiters,
        on_step=on_step,
    )
    scheduler = Scheduler(
        site=site,
        catalog=catalog,
        book=book,
        situation=situation,
        observations=seen,
        granting=granting,
        cutting=cutting,
        waiters=waiters,
        jobs=jobs,
        clock=clock,
    )
    upkeep = Upkeep(
        agent=agent,
        store=store,
        situation=situation,
        observations=seen,
        cutting=cutting,
        jobs=jobs,
        clock=clock,
        on_step=on_step,
    )
    stopping = Stopping(
        engine=engine,
        store=store,
        observations=seen,
        jobs=jobs,
        grace_s=site.policies.stop_grace_s,
        clock=clock,
        on_step=on_step,
        kick=bell.ring,
    )
    store.listen(_Listener(book, signals, changes, bell, scheduler, waiters))
    return Broker(
        leases=Leases(
            policies=site.policies,
            catalog=catalog,
            store=store,
            book=book,
            admission=admission,
            scheduler=scheduler,
            waiters=waiters,
            signals=signals,
            views=LeaseViews(book=book, history=history, clock=clock),
            problem=_problem,
            clock=clock,
            settle_s=settle_s,
        ),
        fleet=Fleet(
            site=site,
            catalog=catalog,
            runtime=runtime,
            admission=admission,
            situation=situation,
            observations=seen,
            history=history,
            upkeep=upkeep,
        ),
        explainer=Explainer(
            catalog=catalog,
            store=store,
            book=book,
            situation=situation,
            observations=seen,
            scheduler=scheduler,
            waiters=waiters,
            history=history,
            clock=clock,
        ),
        changes=changes,
        reconciler=Reconciler(
            policies=site.policies,
            store=store,
            book=book,
            observations=seen,
            hub_watch=HubWatch(hub=hub, clock=clock),
            waiters=waiters,
            granting=granting,
            scheduler=scheduler,
            stopping=stopping,
            upkeep=upkeep,
            history=history,
            changes=changes,
            bell=bell,
            problem=_problem,
            clock=clock,
        ),
        scheduler=scheduler,
        jobs=jobs,
        store=store,
        load=_loader(store, book, situation, history),
    )


def _problem(refusal: Refusal) -> dict[str, Any]:
    return problem_of(refusal).model_dump(mode="json")


def _loader(
    store: Store, book: Book, situation: Situation, history: History
) -> Callable[[], Awaitable[None]]:
    async def load() -> None:
        book.apply(await store.read(lambda tx: tx.unended()))
        await situation.load()
        await history.load()

    return load


class _Listener:
    """After each commit: the book first, then everybody who waits for news."""

    def __init__(
        self,
        book: Book,
        signals: Signals,
        changes: Changes,
        bell: Bell,
        scheduler: Scheduler,
        waiters: Waiters,
    ) -> None:
        self._book = book
        self._signals = signals
        self._changes = changes
        self._bell = bell
        self._scheduler = scheduler
        self._waiters = waiters
        self._places_pending = False

    def __call__(self, changed: Sequence[Lease]) -> None:
        self._book.apply(changed)
        self._signals.touch([lease.id for lease in changed])
        self._changes.bump()
        for lease in changed:
            if lease.state is LeaseState.ENDED:
                self._waiters.forget(lease.id)
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
