"""The shared parts of a broker, each made once and wired to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from allotment_spawner.engines.base import Engine, Sampler
from allotment_spawner.engines.home_gauge import HomeGauge
from allotment_spawner.gpu.client import Agent

from allotment_hub.broker.data_parts import DataParts
from allotment_hub.broker.disk_parts import DiskParts, Room
from allotment_hub.broker.home_parts import HomeParts
from allotment_hub.broker.metric_parts import MetricParts
from allotment_hub.broker.money_parts import MoneyParts
from allotment_hub.broker.monitoring_parts import MonitoringParts
from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.announced import AnnouncedStops
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.books import Books
from allotment_hub.broker.services.changes import Bell, Changes, Signals
from allotment_hub.broker.services.cutting import Cutting
from allotment_hub.broker.services.environments import Environments
from allotment_hub.broker.services.extras import Extras
from allotment_hub.broker.services.granting import Granting
from allotment_hub.broker.services.history import History
from allotment_hub.broker.services.image_book import ImageBook
from allotment_hub.broker.services.image_part import ImagePart
from allotment_hub.broker.services.images import Images
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.last_calls import LastCalls
from allotment_hub.broker.services.last_seen import LastSeen
from allotment_hub.broker.services.notices import Boxes, Notices
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.outages import Outages
from allotment_hub.broker.services.ports import HubView
from allotment_hub.broker.services.saved import Saved
from allotment_hub.broker.services.scheduler import Scheduler
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.services.stopping import Stopping
from allotment_hub.broker.services.upkeep import Upkeep
from allotment_hub.broker.services.waiters import Waiters
from allotment_hub.broker.store.store import Store
from allotment_hub.catalog import Catalog
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["Parts"]


@dataclass
class Parts:
    """What is given, and each shared part, made once and when it is first needed."""

    site: Site
    catalog: Catalog
    runtime: Runtime
    paths: Paths
    url: str
    agent: Agent
    engine: Engine
    hub: HubView
    clock: Callable[[], datetime]
    on_step: Callable[[str], None]
    gauge: HomeGauge | None = None
    room: Room | None = None
    sampler: Sampler | None = None
    book: Book = field(default_factory=Book)
    jobs: Jobs = field(default_factory=Jobs)
    signals: Signals = field(default_factory=Signals)
    changes: Changes = field(default_factory=Changes)
    bell: Bell = field(default_factory=Bell)
    image_book: ImageBook = field(default_factory=ImageBook)

    @cached_property
    def store(self) -> Store:
        kept_back = 0 if self.room is None else self.room.ballast_bytes
        return Store(url=self.url, on_step=self.on_step, ballast_bytes=kept_back)

    @cached_property
    def waiters(self) -> Waiters:
        return Waiters(clock=self.clock)

    @cached_property
    def seen(self) -> Observations:
        return Observations(agent=self.agent, engine=self.engine, clock=self.clock)

    @cached_property
    def outages(self) -> Outages:
        return Outages(
            store=self.store, observations=self.seen, book=self.money.outage_book, clock=self.clock
        )

    @cached_property
    def last_seen(self) -> LastSeen:
        return LastSeen(file=self.paths.broker_database.with_name("last-seen.json"), clock=self.clock)

    @cached_property
    def books(self) -> Books:
        return Books(
            outages=self.outages,
            gpu_outages=self.money.gpu_outages,
            last_seen=self.last_seen,
            ledger=self.money.ledger,
            storage=self.money.storage,
        )

    @cached_property
    def situation(self) -> Situation:
        return Situation(site=self.site, store=self.store, book=self.book, observations=self.seen)

    @cached_property
    def history(self) -> History:
        return History(
            site=self.site,
            catalog=self.catalog,
            store=self.store,
            book=self.book,
            situation=self.situation,
            clock=self.clock,
        )

    @cached_property
    def environments(self) -> Environments:
        return Environments(
            catalog=self.catalog, runtime=self.runtime, images=self.image_book, book=self.book
        )

    @cached_property
    def images(self) -> Images:
        return Images(
            runtime=self.runtime,
            store=self.store,
            book=self.book,
            images=self.image_book,
            environments=self.environments,
            changes=self.changes,
            clock=self.clock,
        )

    @cached_property
    def admission(self) -> Admission:
        return Admission(
            site=self.site,
            catalog=self.catalog,
            runtime=self.runtime,
            environments=self.environments,
            hub=self.hub,
            situation=self.situation,
            need_groups=lambda: self.extras.need_groups,
        )

    @cached_property
    def extras(self) -> Extras:
        """What sessions get besides a device, in the order in which it is checked."""
        image = ImagePart(environments=self.environments)
        data = (self.data.mounts, self.data.dataset_part)
        first = (*self.room_parts.first, image, *data, *self.money.budgets.extra)
        return Extras((*first, *self.home_parts.extra, *self.room_parts.last))

    @cached_property
    def saved(self) -> Saved:
        return Saved(
            store=self.store, admission=self.admission, environments=self.environments, clock=self.clock
        )

    @cached_property
    def granting(self) -> Granting:
        return Granting(
            site=self.site,
            catalog=self.catalog,
            runtime=self.runtime,
            environments=self.environments,
            store=self.store,
            situation=self.situation,
            observations=self.seen,
            extras=self.extras,
            tariffs=self.money.tariffs,
            clock=self.clock,
        )

    @cached_property
    def cutting(self) -> Cutting:
        return Cutting(
            agent=self.agent,
            store=self.store,
            book=self.book,
            situation=self.situation,
            observations=self.seen,
            granting=self.granting,
            waiters=self.waiters,
            clock=self.clock,
            on_step=self.on_step,
        )

    @cached_property
    def scheduler(self) -> Scheduler:
        return Scheduler(
            site=self.site,
            catalog=self.catalog,
            book=self.book,
            situation=self.situation,
            observations=self.seen,
            granting=self.granting,
            cutting=self.cutting,
            waiters=self.waiters,
            being_made=self.room_parts.being_made,
            jobs=self.jobs,
            clock=self.clock,
        )

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(
            agent=self.agent,
            store=self.store,
            situation=self.situation,
            observations=self.seen,
            cutting=self.cutting,
            jobs=self.jobs,
            clock=self.clock,
            on_step=self.on_step,
        )

    @cached_property
    def stopping(self) -> Stopping:
        return Stopping(
            engine=self.engine,
            store=self.store,
            observations=self.seen,
            jobs=self.jobs,
            posting=self.money.posting,
            grace_s=self.site.policies.stop_grace_s,
            clock=self.clock,
            on_step=self.on_step,
            kick=self.bell.ring,
        )

    @cached_property
    def boxes(self) -> Boxes:
        return Boxes(signals=self.signals)

    @cached_property
    def notices(self) -> Notices:
        return Notices(
            store=self.store, book=self.book, boxes=self.boxes, signals=self.signals, clock=self.clock
        )

    @cached_property
    def last_calls(self) -> LastCalls:
        return LastCalls(boxes=self.boxes)

    @cached_property
    def announced(self) -> AnnouncedStops:
        return AnnouncedStops(
            notices=self.notices,
            book=self.book,
            hub=self.hub,
            jobs=self.jobs,
            clock=self.clock,
            on_step=self.on_step,
        )

    @cached_property
    def home_parts(self) -> HomeParts:
        return HomeParts(
            site=self.site,
            runtime=self.runtime,
            room=self.room,
            gauge=self.gauge,
            store=self.store,
            book=self.book,
            clock=self.clock,
        )

    @cached_property
    def monitoring_parts(self) -> MonitoringParts:
        return MonitoringParts(
            site=self.site,
            catalog=self.catalog,
            runtime=self.runtime,
            store=self.store,
            book=self.book,
            situation=self.situation,
            observations=self.seen,
            collector=self.metrics.collector,
            stops=self.notices.stops,
            ledger=self.money.ledger,
            budget=lambda lease, _now: self.money.budgets.quotes.tightest(lease),
            clock=self.clock,
        )

    @cached_property
    def metrics(self) -> MetricParts:
        return MetricParts(
            site=self.site,
            paths=self.paths,
            agent=self.agent,
            sampler=self.sampler,
            book=self.book,
            observations=self.seen,
            clock=self.clock,
            on_step=self.on_step,
        )

    @cached_property
    def money(self) -> MoneyParts:
        return MoneyParts(
            site=self.site,
            catalog=self.catalog,
            store=self.store,
            book=self.book,
            observations=self.seen,
            notices=self.notices,
            changes=self.changes,
            clock=self.clock,
        )

    @cached_property
    def room_parts(self) -> DiskParts:
        return DiskParts(
            site=self.site,
            runtime=self.runtime,
            paths=self.paths,
            room=self.room,
            owners=self.home_parts.owners,
            store=self.store,
            book=self.book,
            observations=self.seen,
            jobs=self.jobs,
            notices=self.notices,
            signals=self.signals,
            changes=self.changes,
            kick=self._kick,
            clock=self.clock,
        )

    @cached_property
    def data(self) -> DataParts:
        return DataParts(
            site=self.site,
            paths=self.paths,
            installation=self.runtime.installation,
            in_containers=self.runtime.engine == "docker",
            store=self.store,
            book=self.book,
            jobs=self.jobs,
            hub=self.hub,
            changed=self._data_changed,
            clock=self.clock,
            on_step=self.on_step,
        )

    def _data_changed(self, waiting: Sequence[str], over: bool) -> None:
        """Whoever waits for a dataset sees how far it is; when it came, or cannot come, all look again."""
        self.signals.touch(waiting)
        if over:
            self.changes.bump()
            self.bell.ring()
            self.scheduler.kick()

    def _kick(self) -> asyncio.Future[None]:
        """For the scheduler's own parts, which are made before it."""
        return self.scheduler.kick()
