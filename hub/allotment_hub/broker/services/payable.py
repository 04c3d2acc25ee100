"""Whether what is left of hard budgets pays for the shortest time of a start, and what lacks if not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from allotment_spawner.core.errors import BudgetExhausted

from allotment_hub.accounting.budgeting import Unit
from allotment_hub.accounting.tariff import Tariff
from allotment_hub.broker.services.budget_book import BudgetBook, Held, Rates, rate_of
from allotment_hub.broker.services.budget_use import Whose

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
    """`running`: what goes on beside the start uses per hour."""

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

    def share_lacking(self, start: Start, group: str, running: Rates) -> Decimal:
        """Of what the shortest time needs, in the worst of the group's hard budgets; 0: it can pay."""
        return self.share_lacking_of(self._budgets.held([("group", group)]), start, running)

    def share_lacking_of(self, held: Sequence[Held], start: Start, running: Rates) -> Decimal:
        """The same for budgets that were looked up before."""
        return max(
            (
                max(self._lacks(one, start, running), Decimal(0)) / self._need(one, start, running)
                for one in held
                if one.budget.hard and rate_of(start.tariff, one.budget.unit, self._clock())
            ),
            default=Decimal(0),
        )

    def problem(self, start: Start, running: Rates) -> BudgetExhausted | None:
        """Of several budgets that cannot pay, the one that lacks most of what it needs."""
        return self.problem_of(self._budgets.held(start.counts_for), start, running)

    def problem_of(self, held: Sequence[Held], start: Start, running: Rates) -> BudgetExhausted | None:
        """The same for budgets that were looked up before; in a transaction `running` is the database's."""
        found = [
            (self._lacks(one, start, running) / self._need(one, start, running), number)
            for number, one in enumerate(held)
            if one.budget.hard and self._lacks(one, start, running) > 0
        ]
        if not found:
            return None
        worst = held[max(found)[1]]
        return self._refusal(worst, start, running)

    def _need(self, held: Held, start: Start, running: Rates) -> Decimal:
        rate = self._rate(held, start, running)
        return rate * self._minutes / 60

    def _lacks(self, held: Held, start: Start, running: Rates) -> Decimal:
        """0 or less: nothing. What costs nothing needs nothing, even of a budget that is overdrawn."""
        if not rate_of(start.tariff, held.budget.unit, self._clock()):
            return Decimal(0)
        return held.standing.lacks(self.shortest, self._rate(held, start, running))

    def _rate(self, held: Held, start: Start, running: Rates) -> Decimal:
        unit = held.budget.unit
        return rate_of(start.tariff, unit, self._clock()) + running(held.whose, unit)

    def _refusal(self, held: Held, start: Start, running: Rates) -> BudgetExhausted:
        unit, left = held.budget.unit, held.standing.left
        lacks = self._lacks(held, start, running)
        alone = self._rate(held, start, running) == rate_of(start.tariff, unit, self._clock())
        beside = "" if alone else " beside what runs already"
        whose = "Your budget" if held.whose[0] == "user" else f"The budget of {held.whose[1]}"
        words = units(unit, self._currency)
        return BudgetExhausted(
            f"{whose} lacks {amount(lacks)} {words}: {_left(left)}, and {_minutes(self._minutes)} of "
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


def _minutes(count: int) -> str:
    return "1 minute" if count == 1 else f"{count} minutes"


def _left(left: Decimal) -> str:
    return f"{amount(left)} are left" if left >= 0 else f"it is overdrawn by {amount(-left)}"


def _until(held: Held) -> str:
    until = held.standing.until
    if until is None or held.budget.period not in ("week", "month"):
        return ""
    return f"; the next {held.budget.period} begins {until:%Y-%m-%d %H:%M} UTC"
