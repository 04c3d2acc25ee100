"""Metrics for who looks from outside: the page that Prometheus scrapes, and the stream of samples."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from allotment_spawner.core.allocator import capacity
from allotment_spawner.core.lease import LeaseState
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from allotment_hub.broker.metrics.broker_families import (
    Collecting,
    Health,
    collector_families,
    health_families,
    lease_families,
    money_families,
    outage_families,
    start_families,
)
from allotment_hub.broker.metrics.collector import Collector
from allotment_hub.broker.metrics.device_families import device_families, machine_families, session_families
from allotment_hub.broker.metrics.frames import SLICE, LeaseReading
from allotment_hub.broker.metrics.live import Live
from allotment_hub.broker.metrics.readings import Readings
from allotment_hub.broker.metrics.rounds import Round
from allotment_hub.broker.metrics.sums import Sums, outage_sums
from allotment_hub.broker.metrics.tally import Tally
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.machine import Machine
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.pools import request_of
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.sums import every_outage
from allotment_hub.catalog import Catalog
from allotment_hub.site import Site

__all__ = ["Installation", "Monitoring"]


@dataclass(frozen=True, slots=True)
class Installation:
    version: str
    engine: str
    simulated: bool


@dataclass(frozen=True, slots=True)
class _Looked:
    """What the event loop owns, taken at one moment; nothing of it changes while it is written out."""

    machine: Machine
    latest: Round
    sessions: list[LeaseReading]
    unposted: Mapping[str, Decimal]
    """Currency -> what is in no entry yet."""
    leases: Counter[tuple[str, str]]
    oldest_wait_s: float | None
    health: Health
    healthy: Mapping[str, bool]
    collecting: Collecting


class Monitoring:
    """Implements `MonitoringApi`."""

    def __init__(
        self,
        *,
        site: Site,
        catalog: Catalog,
        installation: Installation,
        store: Store,
        book: Book,
        situation: Situation,
        observations: Observations,
        collector: Collector,
        live: Live,
        readings: Readings,
        unposted: Callable[[Lease, datetime], Decimal],
        tally: Tally,
        clock: Callable[[], datetime],
    ) -> None:
        self._site = site
        self._catalog = catalog
        self._installation = installation
        self._store = store
        self._book = book
        self._situation = situation
        self._seen = observations
        self.collector = collector
        self._readings = readings
        self._unposted = unposted
        self._clock = clock
        self.live = live
        self.tally = tally
        collector.each.append(tally.sampled)
        self._sums = Sums()
        self._one = asyncio.Lock()

    async def load(self) -> None:
        """What the book holds at the start."""
        self.tally.load(self._book.all())

    def watch(self, user: str | None) -> AsyncIterator[str]:
        return self.live.watch(user)

    def refused(self, code: str) -> None:
        self.tally.refuse(code)

    async def page(self) -> bytes:
        async with self._one:  # writing thousands of lines takes a while: one at a time is enough
            await self._sums.catch_up(self._store)
            outages = await self._store.read(lambda tx: every_outage(tx.connection))
            now = self._clock()
            looked = await self._look(now)
            money = money_families(self._sums, looked.unposted)
            money += outage_families(outage_sums(outages, now))
            counted = lease_families(looked.leases, looked.oldest_wait_s)
            counted += start_families(looked.leases, self.tally)
            devices = device_families(looked.machine, looked.latest, looked.sessions, self.tally.xids)
            return await asyncio.to_thread(self._written, looked, [*counted, *devices, *money])

    def _written(self, looked: _Looked, first: list[Metric]) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(
            _Found(
                [
                    *health_families(looked.health),
                    *machine_families(looked.machine, looked.healthy),
                    *first,
                    *session_families(looked.sessions, name_people=self._site.metrics.name_people),
                    *collector_families(looked.collecting),
                ]
            )
        )
        return bytes(generate_latest(registry))

    async def _look(self, now: datetime) -> _Looked:
        sessions, unposted = await self._sessions(now)
        machine = self._situation.machine()
        queued = self._book.in_state(LeaseState.QUEUED)
        waits = [max(0.0, (now - lease.created_at).total_seconds()) for lease in queued]
        return _Looked(
            machine=machine,
            latest=self.collector.latest,
            sessions=sessions,
            unposted=unposted,
            leases=self._leases(),
            oldest_wait_s=max(waits, default=None),
            health=self._health(machine),
            healthy=self._healthy(machine),
            collecting=self._collecting(),
        )

    async def _sessions(self, now: datetime) -> tuple[list[LeaseReading], dict[str, Decimal]]:
        """A few at a time, so that others may go on in between."""
        latest = self.collector.latest
        found: list[LeaseReading] = []
        unposted: dict[str, Decimal] = {}
        for number, lease in enumerate(self._readings.leases(), start=1):
            one = self._readings.without_budget(lease, latest, now)
            found.append(one)
            unposted[one.currency] = unposted.get(one.currency, Decimal(0)) + self._unposted(lease, now)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return found, unposted

    def _leases(self) -> Counter[tuple[str, str]]:
        """Also of flavors that nobody has, and of those that are not offered any more."""
        found = Counter({(flavor, LeaseState.ACTIVE.value): 0 for flavor in self._catalog.flavors})
        found.update((lease.flavor, lease.state.value) for lease in self._book.all())
        return found

    def _health(self, machine: Machine) -> Health:
        room: dict[str, tuple[int, int]] = {}
        # without agent or engine nothing starts, and what could is as it was
        answer = self._seen.agent_problem is None and self._seen.engine_problem is None
        for flavor_id, flavor in self._catalog.flavors.items():
            request = request_of(flavor_id, flavor, self._site.pools)
            if request is not None and answer:
                room[flavor_id] = capacity(request, machine.snapshot)
        inventory, installation = self._seen.inventory, self._installation
        return Health(
            version=installation.version,
            engine=installation.engine,
            simulated=installation.simulated if inventory is None else inventory.simulated,
            agent_up=self._seen.agent_problem is None,
            engine_up=self._seen.engine_problem is None,
            strays=len(self._seen.strays),
            room=room,
        )

    def _healthy(self, machine: Machine) -> dict[str, bool]:
        """A GPU that somebody holds and that is not there any more is not healthy either. While the agent
        does not answer, a healthy one may be so no more."""
        found = {facts.gpu.uuid: facts.problem is None for facts in machine.gpus}
        held = self._book.holders() if self._situation.known else {}
        found = dict.fromkeys((uuid for uuid in held if uuid not in found), False) | found
        answers = self._seen.agent_problem is None
        return {uuid: healthy for uuid, healthy in found.items() if answers or not healthy}

    def _collecting(self) -> Collecting:
        missed: Counter[str] = Counter()
        for what, count in self.collector.missed.items():
            missed["gpu" if what.startswith("GPU-") else what] += count
        return Collecting(
            rounds=self.collector.rounds,
            missed=missed,
            last_at=self.collector.latest.at,
            took_s=self.collector.took_s,
            every_s=self.collector.every_s,
            listeners=self.live.listeners,
            frames=self.live.computed,
        )


class _Found:
    """What a registry of its own writes out."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families

    def describe(self) -> list[Metric]:
        """Asked for names when it is registered; there is nothing that they could clash with."""
        return []
