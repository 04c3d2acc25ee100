"""What must hold between a start and the sessions there are, checked inside the request's transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.budget_book import BudgetBook, Held
from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.services.limits import Limits
from allotment_hub.broker.services.money_part import MoneyPart
from allotment_hub.broker.services.payable import Payments
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Check", "StartRules"]

Check = Callable[[Transaction], None]


class StartRules:
    """Of two starts at once the second sees the first: both are counted where they are written."""

    def __init__(
        self,
        *,
        admission: Admission,
        limits: Limits,
        budgets: BudgetBook,
        money: MoneyPart,
        payments: Payments,
    ) -> None:
        self._admission = admission
        self._limits = limits
        self._budgets = budgets
        self._money = money
        self._payments = payments

    def check(self, ask: Ask, wants: Mapping[str, Any]) -> Check:
        """What to ask in the transaction, before the lease is added: raises `TooManySessions`,
        `LimitReached` or `BudgetExhausted`. What is left is looked up now, on the event loop."""
        start = self._money.start(ask.body.flavor, ask.body.user, wants)
        held = [one for one in self._budgets.held(start.counts_for) if one.budget.hard]

        def check(tx: Transaction) -> None:
            live = tx.live_leases(user=ask.body.user)
            self._admission.check_count(len(live))
            self._limits.check(ask.body.flavor, ask.groups, live)
            if not held:
                return
            why = self._payments.problem_of(held, start, self._budgets.rates(_others(tx, held, live)))
            if why is not None:
                raise why

        return check


def _others(tx: Transaction, held: list[Held], own: list[Lease]) -> list[Lease]:
    """The person's live leases, and everybody's that are charged to the same groups."""
    found = {lease.id: lease for lease in own}
    for one in held:
        if one.whose[0] == "group":
            found |= {lease.id: lease for lease in tx.live_leases(charged_to=one.whose[1])}
    return list(found.values())
