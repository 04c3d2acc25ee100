"""The part "money" of a start: its factor, whom it is charged to, and whether that can pay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from allotment_spawner.core.errors import ChargeNotAllowed, Refusal
from allotment_spawner.wire import Launch

from allotment_hub.accounting.budgeting import choose
from allotment_hub.broker.services.budget_book import BudgetBook
from allotment_hub.broker.services.budget_use import Whose, counts_for
from allotment_hub.broker.services.burning import Burning
from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.services.payable import Payments, Start
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.store.records import Lease
from allotment_hub.catalog import Catalog

__all__ = ["MoneyPart"]


class MoneyPart:
    """An `Extra`. It decides the members `charged_to` and `factor` of the lease's `wants`, if any."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        budgets: BudgetBook,
        burning: Burning,
        tariffs: Tariffs,
        payments: Payments,
    ) -> None:
        self._catalog = catalog
        self._burning = burning
        self._budgets = budgets
        self._tariffs = tariffs
        self._payments = payments

    @property
    def needs_groups(self) -> bool:
        """Budgets come and go while the broker runs."""
        return bool(self._catalog.prices.groups) or self._budgets.of_groups

    async def check(self, ask: Ask) -> Mapping[str, Any]:
        """Raises `ChargeNotAllowed` and `BudgetExhausted`."""
        user, may = ask.body.user, self._budgets.chargeable(ask.groups)
        if ask.body.charge_to is not None and ask.body.charge_to not in may:
            raise _not_chargeable(ask.body.charge_to, may)
        own: Whose = ("user", user)
        whose: list[Whose] = [own, *(("group", name) for name in may)]
        await self._budgets.read(whose)
        factor = self._tariffs.factor_of(ask.groups)
        wants = {} if factor is None or factor == 1 else {"factor": format(factor, "f")}
        # what it replaces is as good as over
        running = self._budgets.rates(
            [
                lease
                for lease in self._budgets.use.live(whose)
                if (lease.user, lease.server) != (user, ask.body.server)
            ]
        )
        start = self.start(ask.body.flavor, user, wants)
        group = ask.body.charge_to or choose(
            {name: self._payments.share_lacking(start, name, running) for name in may}
        )
        start = replace(start, charged_to=group)
        why = self._payments.problem(start, running)
        if why is not None:
            raise why
        return wants if group is None else wants | {"charged_to": group}

    def start(self, flavor_id: str, user: str, wants: Mapping[str, Any]) -> Start:
        """As it would be granted now; `wants` as decided here."""
        title = self._catalog.flavors[flavor_id].title
        return Start(title, self._tariffs.quoted(flavor_id, wants), user, wants.get("charged_to"))

    def ready(self, lease: Lease) -> bool:
        """A device that is free meanwhile is for somebody who can pay it."""
        return self.problem(lease) is None

    def problem(self, lease: Lease) -> Refusal | None:
        """What was left when it was asked for may be gone when its turn comes."""
        whose, tariff = counts_for(lease), self._budgets.tariff(lease)
        if tariff is None or not self._budgets or not all(self._budgets.known(one) for one in whose):
            return None
        group = (lease.wants or {}).get("charged_to")
        start = Start(self._catalog.flavors[lease.flavor].title, tariff, lease.user, group)
        return self._payments.problem(start, self._burning.rate)

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        return launch


def _not_chargeable(group: str, may: list[str]) -> ChargeNotAllowed:
    """The same words for a group that is not the person's and for one that has no budget."""
    return ChargeNotAllowed(
        f"You cannot charge {group}: it is none of your groups, or it has no budget now.",
        f"Choose one of: {', '.join(may)}." if may else "Start without choosing a group.",
    )
