"""The parts of a broker that mind money, wired to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from allotment_hub.broker.budget_parts import BudgetParts
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Changes
from allotment_hub.broker.services.corrections import Corrections
from allotment_hub.broker.services.gpu_outages import GpuOutages
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.services.notices import Notices
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.outages import OutageBook
from allotment_hub.broker.services.posting import Posting
from allotment_hub.broker.services.storage import Storage
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.services.usage import Usage
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.catalog import Catalog
from allotment_hub.site import Site

__all__ = ["MoneyParts"]


@dataclass
class MoneyParts:
    site: Site
    catalog: Catalog
    store: Store
    book: Book
    observations: Observations
    notices: Notices
    changes: Changes
    clock: Callable[[], datetime]

    @cached_property
    def outage_book(self) -> OutageBook:
        return OutageBook()

    @cached_property
    def tariffs(self) -> Tariffs:
        return Tariffs(site=self.site, catalog=self.catalog, observations=self.observations)

    @cached_property
    def posting(self) -> Posting:
        return Posting(tariffs=self.tariffs, refund_minutes=self.catalog.prices.refund_minutes)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(
            store=self.store,
            book=self.book,
            outages=self.outage_book,
            tariffs=self.tariffs,
            posting=self.posting,
            clock=self.clock,
        )

    @cached_property
    def storage(self) -> Storage:
        return Storage(
            store=self.store,
            price=self.catalog.prices.storage_per_gib_hour,
            zone=self.catalog.prices.zone,
            currency=self.site.currency,
            clock=self.clock,
        )

    @cached_property
    def corrections(self) -> Corrections:
        return Corrections(store=self.store, currency_of=self.tariffs.currency_of, clock=self.clock)

    @cached_property
    def gpu_outages(self) -> GpuOutages:
        return GpuOutages(
            store=self.store,
            book=self.book,
            observations=self.observations,
            outages=self.outage_book,
            notices=self.notices,
            clock=self.clock,
        )

    @cached_property
    def budgets(self) -> BudgetParts:
        return BudgetParts(
            site=self.site,
            catalog=self.catalog,
            store=self.store,
            book=self.book,
            ledger=self.ledger,
            outages=self.outage_book,
            tariffs=self.tariffs,
            notices=self.notices,
            changes=self.changes,
            clock=self.clock,
        )

    @cached_property
    def usage(self) -> Usage:
        return Usage(
            store=self.store,
            book=self.book,
            zone=self.catalog.prices.zone,
            currency=self.site.currency,
            titles={name: flavor.title for name, flavor in self.catalog.flavors.items()},
            unposted=self._unposted,
            clock=self.clock,
        )

    def _unposted(self, lease: Lease, now: datetime) -> tuple[Decimal, str | None]:
        return self.ledger.unposted(lease, now).amount, self.ledger.currency(lease)
