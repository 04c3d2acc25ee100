"""One factory builds the whole broker; nothing below knows how it is wired."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allotment_spawner.engines.base import Engine, Sampler
from allotment_spawner.engines.home_gauge import HomeGauge
from allotment_spawner.gpu.client import Agent

from allotment_hub.broker import fronts
from allotment_hub.broker.disk_parts import Room
from allotment_hub.broker.metric_parts import MetricParts
from allotment_hub.broker.metrics.monitoring import Monitoring
from allotment_hub.broker.metrics.series import Series
from allotment_hub.broker.parts import Parts
from allotment_hub.broker.reconciler import Reconciler
from allotment_hub.broker.services.budget_watch import BudgetWatch
from allotment_hub.broker.services.budgets import Budgets
from allotment_hub.broker.services.changes import Changes
from allotment_hub.broker.services.corrections import Corrections
from allotment_hub.broker.services.datasets import Datasets
from allotment_hub.broker.services.disk import Disk
from allotment_hub.broker.services.explain import Explainer
from allotment_hub.broker.services.fleet import Fleet
from allotment_hub.broker.services.homes import Homes
from allotment_hub.broker.services.images import Images
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.last_calls import LastCalls
from allotment_hub.broker.services.leases import Leases
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.services.mounts import Mounts
from allotment_hub.broker.services.notices import Notices
from allotment_hub.broker.services.ports import HubView
from allotment_hub.broker.services.saved import Saved
from allotment_hub.broker.services.scheduler import Scheduler
from allotment_hub.broker.services.scratch import Scratch
from allotment_hub.broker.services.usage import Usage
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.store import Store
from allotment_hub.catalog import Catalog
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["Broker", "build_broker"]


@dataclass
class Broker:
    """Everything that the API needs, wired. `start` once, then `run` until cancelled, then `close`."""

    leases: Leases
    fleet: Fleet
    explainer: Explainer
    images: Images
    mounts: Mounts
    datasets: Datasets
    notices: Notices
    last_calls: LastCalls
    homes: Homes
    disk: Disk
    scratch: Scratch | None
    saved: Saved
    series: Series
    metrics: MetricParts
    ledger: Ledger
    corrections: Corrections
    usage: Usage
    budgets: Budgets
    budget_watch: BudgetWatch
    changes: Changes
    monitoring: Monitoring
    reconciler: Reconciler
    scheduler: Scheduler
    jobs: Jobs
    store: Store
    load: Callable[[], Awaitable[None]]
    loops: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    """What runs beside the reconciler; each ends only by being cancelled."""

    async def start(self) -> None:
        """Migrate, read the book, and compare it with the machine before anybody is served."""
        await self.store.open()
        await self.load()
        await self.reconciler.once()

    async def run(self) -> None:
        """The loops; returns only by being cancelled."""
        beside = [asyncio.ensure_future(loop()) for loop in self.loops]
        try:
            await self.reconciler.run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def close(self) -> None:
        """Stop working; nothing is undone, the next start finds what was half done."""
        await self.jobs.close()
        await self.metrics.close()
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
    gauge: HomeGauge | None = None,
    room: Room | None = None,
    sampler: Sampler | None = None,
) -> Broker:
    """A broker for one node. `engines` by name; runtime.json says which one runs the sessions.
    `gauge` measures homes, `sampler` how hard sessions work; None: that is unknown."""
    parts = Parts(
        site=site,
        catalog=catalog,
        runtime=runtime,
        paths=paths,
        url=site.broker.database_url or sqlite_url(paths.broker_database),
        agent=agent,
        engine=engines[runtime.engine],
        hub=hub,
        clock=clock,
        on_step=on_step,
        gauge=gauge,
        room=room,
        sampler=sampler,
    )
    _listen(parts)
    return _broker(parts, settle_s)


def _listen(parts: Parts) -> None:
    """What lives in memory hears of each commit: money first, as the others ask for it."""
    parts.store.listen_entries(parts.money.ledger.listen)
    parts.store.listen_entries(parts.money.budgets.use.posted)
    parts.store.listen(parts.money.ledger.listen_leases)
    parts.store.listen(fronts.listener(parts))
    parts.store.listen(parts.data.listen)
    parts.store.listen(parts.room_parts.listen)
    parts.store.listen(parts.monitoring_parts.tally.committed)


def _broker(parts: Parts, settle_s: float) -> Broker:
    return Broker(
        leases=fronts.leases(parts, settle_s),
        fleet=fronts.fleet(parts),
        explainer=fronts.explainer(parts),
        images=parts.images,
        mounts=parts.data.mounts,
        datasets=parts.data.datasets,
        notices=parts.notices,
        last_calls=parts.last_calls,
        homes=parts.home_parts.homes,
        disk=parts.room_parts.disk,
        scratch=parts.room_parts.scratch,
        saved=parts.saved,
        series=parts.metrics.series,
        metrics=parts.metrics,
        ledger=parts.money.ledger,
        corrections=parts.money.corrections,
        usage=parts.money.usage,
        budgets=parts.money.budgets.budgets,
        budget_watch=parts.money.budgets.watch,
        changes=parts.changes,
        monitoring=parts.monitoring_parts.monitoring,
        reconciler=fronts.reconciler(parts),
        scheduler=parts.scheduler,
        jobs=parts.jobs,
        store=parts.store,
        load=_loader(parts),
        loops=_loops(parts),
    )


def _loops(parts: Parts) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
    loops = (parts.metrics.collector.run, parts.money.budgets.watch.run)
    return (parts.home_parts.homes.run, *parts.room_parts.loops, *loops)


def _loader(parts: Parts) -> Callable[[], Awaitable[None]]:
    """What lives in memory, from the database: the leases first."""

    async def load() -> None:
        parts.book.apply(await parts.store.read(lambda tx: tx.unended()))
        await parts.last_seen.load()
        await parts.outages.load()
        await parts.money.ledger.load()
        await parts.money.budgets.load()
        await parts.situation.load()
        await parts.history.load()
        await parts.notices.load()
        await parts.images.load()
        await parts.data.datasets.load()
        await parts.monitoring_parts.monitoring.load()

    return load
