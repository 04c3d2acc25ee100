"""Whether what is left of hard budgets pays for the shortest time of a start, and what lacks if not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from allotment_spawner.core.errors import BudgetExhausted

from allotment_hub.accounting.budgeting import Unit
from allotment_hub.accounting.tariff import Tariff
from allotment_hub.broker.services.budget_book import BudgetBook, Held, rate_of
from allotment_hub.broker.services.budget_use import Whose
from allotment_hub.broker.store.records import Lease

__all__ = ["Payments", "Start", "amount", "units"]


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started, and whose budgets it would count against."""

    title: str
    tariff: Tariff
    user: str
    charged_to: str | None

    @property
    def counts_for(self) -> tuple[Whose, ...]:
        own: Whose = ("user", self.user)
        return (own,) if self.charged_to is None else (own, ("group", self.charged_to))


class Payments:
    """`others` are the leases that go on beside the start; what does not count for a budget is left out."""

    def __init__(
        self,
        *,
        budgets: BudgetBook,
        shortest_minutes: int,
        currency: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._budgets = budgets
        self._minutes = shortest_minutes
        self._currency = currency
        self._clock = clock

    @property
    def shortest(self) -> timedelta:
        return timedelta(minutes=self._minutes)

    def share_lacking(self, start: Start, group: str, others: Sequence[Lease]) -> Decimal:
        """Of what the shortest time needs, in the worst of the group's hard budgets; 0: it can pay."""
        return max(
            (
                max(self._lacks(one, start, others), Decimal(0)) / self._need(one, start, others)
                for one in self._budgets.held([("group", group)])
                if one.budget.hard and rate_of(start.tariff, one.budget.unit, self._clock())
            ),
            default=Decimal(0),
        )

    def problem(self, start: Start, others: Sequence[Lease]) -> BudgetExhausted | None:
        """Of several budgets that cannot pay, the one that lacks most of what it needs."""
        return self.problem_of(self._budgets.held(start.counts_for), start, others)

    def problem_of(
        self, held: Sequence[Held], start: Start, others: Sequence[Lease]
    ) -> BudgetExhausted | None:
        """The same for budgets that were looked up before; in a transaction `others` are the database's."""
        found = [
            (self._lacks(one, start, others) / self._need(one, start, others), number)
            for number, one in enumerate(held)
            if one.budget.hard and self._lacks(one, start, others) > 0
        ]
        if not found:
            return None
        worst = held[max(found)[1]]
        return self._refusal(worst, start, others)

    def _need(self, held: Held, start: Start, others: Sequence[Lease]) -> Decimal:
        rate = self._rate(held, start, others)
        return rate * self._minutes / 60

    def _lacks(self, held: Held, start: Start, others: Sequence[Lease]) -> Decimal:
        """0 or less: nothing. What costs nothing needs nothing, even of a budget that is overdrawn."""
        if not rate_of(start.tariff, held.budget.unit, self._clock()):
            return Decimal(0)
        return held.standing.lacks(self.shortest, self._rate(held, start, others))

    def _rate(self, held: Held, start: Start, others: Sequence[Lease]) -> Decimal:
        unit = held.budget.unit
        running = self._budgets.running_rate(held.whose, unit, others)
        return rate_of(start.tariff, unit, self._clock()) + running

    def _refusal(self, held: Held, start: Start, others: Sequence[Lease]) -> BudgetExhausted:
        unit, left = held.budget.unit, held.standing.left
        lacks = self._lacks(held, start, others)
        alone = self._rate(held, start, others) == rate_of(start.tariff, unit, self._clock())
        beside = "" if alone else " beside what runs already"
        whose = "Your budget" if held.whose[0] == "user" else f"The budget of {held.whose[1]}"
        words = units(unit, self._currency)
        return BudgetExhausted(
            f"{whose} lacks {amount(lacks)} {words}: {_left(left)}, and {self._minutes} minutes of "
            f"{start.title}{beside} need {amount(left + lacks)}.",
            f"Choose a smaller size or stop a session, or ask for more{_until(held)}.",
            lacks=amount(lacks),
            budget=held.whose[1],
            unit=unit,
        )


def units(unit: Unit, currency: str) -> str:
    return currency if unit == "money" else "GPU-hours"


def amount(value: Decimal) -> str:
    """At least two digits after the point, and as many more as it has."""
    text = format(value.normalize(), "f")
    whole, _, places = text.partition(".")
    return f"{whole}.{places.ljust(2, '0')}"


def _left(left: Decimal) -> str:
    return f"{amount(left)} are left" if left >= 0 else f"it is overdrawn by {amount(-left)}"


def _until(held: Held) -> str:
    until = held.standing.until
    if until is None or held.budget.period not in ("week", "month"):
        return ""
    return f"; the next {held.budget.period} begins {until:%Y-%m-%d %H:%M} UTC"
