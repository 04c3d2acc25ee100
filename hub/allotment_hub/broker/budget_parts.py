"""The parts of a broker that mind budgets and limits, wired to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial

from allotment_hub.accounting.billing import day_of
from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.budget_book import BudgetBook
from allotment_hub.broker.services.budget_running import RunningUse
from allotment_hub.broker.services.budget_use import BudgetUse, counts_for
from allotment_hub.broker.services.budget_watch import BudgetWatch
from allotment_hub.broker.services.budgets import Budgets
from allotment_hub.broker.services.burning import Burning
from allotment_hub.broker.services.changes import Bell, Changes
from allotment_hub.broker.services.extras import Extra
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.services.limits import LimitPart, Limits
from allotment_hub.broker.services.money_part import MoneyPart
from allotment_hub.broker.services.notices import Notices
from allotment_hub.broker.services.outages import OutageBook
from allotment_hub.broker.services.payable import Payments
from allotment_hub.broker.services.quotes import Quotes
from allotment_hub.broker.services.start_rules import StartRules
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.services.time_limits import TimeLimits
from allotment_hub.broker.store.store import Store
from allotment_hub.catalog import Catalog
from allotment_hub.site import Site

__all__ = ["BudgetParts"]


@dataclass
class BudgetParts:
    site: Site
    catalog: Catalog
    store: Store
    book: Book
    ledger: Ledger
    outages: OutageBook
    tariffs: Tariffs
    notices: Notices
    changes: Changes
    clock: Callable[[], datetime]

    @cached_property
    def use(self) -> BudgetUse:
        return BudgetUse(
            store=self.store,
            book=self.book,
            running=RunningUse(ledger=self.ledger, outages=self.outages, currency=self.site.currency),
            currency=self.site.currency,
            day_of=partial(day_of, zone=self.catalog.prices.zone),
        )

    @cached_property
    def budget_book(self) -> BudgetBook:
        return BudgetBook(
            store=self.store,
            use=self.use,
            tariffs=self.tariffs,
            zone=self.catalog.prices.zone,
            clock=self.clock,
        )

    @cached_property
    def payments(self) -> Payments:
        return Payments(
            budgets=self.budget_book,
            shortest_minutes=self.catalog.prices.shortest_minutes,
            currency=self.site.currency,
            clock=self.clock,
        )

    @cached_property
    def limits(self) -> Limits:
        return Limits(limits=self.site.limits, catalog=self.catalog)

    @cached_property
    def money_part(self) -> MoneyPart:
        return MoneyPart(
            catalog=self.catalog,
            budgets=self.budget_book,
            burning=self.burning,
            tariffs=self.tariffs,
            payments=self.payments,
        )

    @cached_property
    def burning(self) -> Burning:
        return Burning(budgets=self.budget_book, clock=self.clock)

    @cached_property
    def quotes(self) -> Quotes:
        return Quotes(
            catalog=self.catalog,
            budgets=self.budget_book,
            tariffs=self.tariffs,
            payments=self.payments,
            limits=self.limits,
            burning=self.burning,
            clock=self.clock,
        )

    @cached_property
    def budgets(self) -> Budgets:
        return Budgets(
            store=self.store,
            book=self.budget_book,
            zone=self.catalog.prices.zone,
            currency=self.site.currency,
            changed=self._changed,
            clock=self.clock,
        )

    @cached_property
    def bell(self) -> Bell:
        return Bell()

    @cached_property
    def watch(self) -> BudgetWatch:
        policies = self.site.budgets
        return BudgetWatch(
            policies=policies,
            store=self.store,
            book=self.book,
            budgets=self.budget_book,
            notices=self.notices,
            time_limits=TimeLimits(
                store=self.store,
                notices=self.notices,
                grace_minutes=policies.grace_minutes,
                clock=self.clock,
            ),
            bell=self.bell,
            currency=self.site.currency,
            clock=self.clock,
        )

    def _changed(self) -> None:
        """Forms show it, and running sessions may go on."""
        self.changes.bump()
        self.bell.ring()

    @property
    def extra(self) -> tuple[Extra, ...]:
        """What a start must pass besides the rules for sizes and environments."""
        return (LimitPart(limits=self.limits), self.money_part)

    def rules(self, admission: Admission) -> StartRules:
        return StartRules(
            admission=admission,
            limits=self.limits,
            budgets=self.budget_book,
            money=self.money_part,
            payments=self.payments,
        )

    async def load(self) -> None:
        """After leases and ledger: the open budgets, and what those used whose leases are not over."""
        await self.budget_book.load()
        await self.budget_book.read({whose for lease in self.book.all() for whose in counts_for(lease)})
