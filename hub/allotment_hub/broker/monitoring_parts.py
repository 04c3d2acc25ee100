"""The stream of samples and the page for Prometheus, wired to what they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from importlib.metadata import version

from allotment_spawner.money_wire import QuoteBudget

from allotment_hub.broker.metrics.collector import Collector
from allotment_hub.broker.metrics.live import Live
from allotment_hub.broker.metrics.monitoring import Installation, Monitoring
from allotment_hub.broker.metrics.readings import MoneyOf, Readings
from allotment_hub.broker.metrics.tally import Tally
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.catalog import Catalog
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["MonitoringParts"]


@dataclass
class MonitoringParts:
    """`stops`: lease -> when it ends, of those whose end was announced. `budget` from memory."""

    site: Site
    catalog: Catalog
    runtime: Runtime
    store: Store
    book: Book
    situation: Situation
    observations: Observations
    collector: Collector
    stops: Mapping[str, datetime]
    ledger: Ledger
    budget: Callable[[Lease, datetime], QuoteBudget | None]
    clock: Callable[[], datetime]

    @cached_property
    def tally(self) -> Tally:
        return Tally()

    @cached_property
    def monitoring(self) -> Monitoring:
        return Monitoring(
            site=self.site,
            catalog=self.catalog,
            installation=Installation(
                version=version("allotment-hub"), engine=self.runtime.engine, simulated=self._simulated
            ),
            store=self.store,
            book=self.book,
            situation=self.situation,
            observations=self.observations,
            collector=self.collector,
            live=self._live,
            readings=self._readings,
            unposted=lambda lease, now: self.ledger.unposted(lease, now).amount,
            tally=self.tally,
            clock=self.clock,
        )

    @cached_property
    def _live(self) -> Live:
        return Live(
            latest=lambda: self.collector.latest,
            subscribe=self.collector.changed.subscribe,
            leases=self._readings.leases,
            reading=self._readings.whole,
            book_version=lambda: self.book.version,
            every_s=self.collector.every_s,
            clock=self.clock,
        )

    @cached_property
    def _readings(self) -> Readings:
        return Readings(
            book=self.book,
            catalog=self.catalog,
            inventory=lambda: self.observations.inventory,
            simulated=self._simulated,
            money=self._money,
        )

    @property
    def _simulated(self) -> bool:
        return self.runtime.gpus.startswith("sim:")

    @property
    def _money(self) -> MoneyOf:
        return MoneyOf(
            rate=self._rate,
            currency=lambda lease: self.ledger.currency(lease) or self.site.currency,
            cost=self.ledger.cost,
            budget=self.budget,
            ends_at=lambda lease: self.stops.get(lease.id),
        )

    def _rate(self, lease: Lease, now: datetime) -> Decimal:
        """What an hour costs now; before the grant, what it would have cost when it was asked for."""
        tariff = self.ledger.tariff(lease)
        return lease.price_per_hour if tariff is None else tariff.rate(now)
