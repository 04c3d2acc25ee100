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


@dataclass(frozen=True, slots=True)
class _Claim:
    """What the shortest time of a start, and what runs beside it, lack of a budget: 0 or less is nothing."""

    held: Held
    lacks: Decimal
    share: Decimal
    """Of what they need."""
    alone: bool


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
            (max(one.share, Decimal(0)) for one in self._claims(held, start, running)), default=Decimal(0)
        )

    def problem(self, start: Start, running: Rates) -> BudgetExhausted | None:
        """Of several budgets that cannot pay, the one that lacks most of what it needs."""
        return self.problem_of(self._budgets.held(start.counts_for), start, running)

    def problem_of(self, held: Sequence[Held], start: Start, running: Rates) -> BudgetExhausted | None:
        """The same for budgets that were looked up before; in a transaction `running` is the database's."""
        found = [one for one in self._claims(held, start, running) if one.lacks > 0]
        return self._refusal(max(found, key=lambda one: one.share), start) if found else None

    def _claims(self, held: Sequence[Held], start: Start, running: Rates) -> list[_Claim]:
        """On the hard ones. What costs nothing needs nothing, even of a budget that is overdrawn. All at one
        instant: a price that ends between two looks at the clock would make a share of nothing."""
        now = self._clock()
        found: list[_Claim] = []
        for one in held:
            own = rate_of(start.tariff, one.budget.unit, now)
            if one.budget.hard and own:
                rate = own + running(one.whose, one.budget.unit)
                lacks = one.standing.lacks(self.shortest, rate)
                found.append(_Claim(one, lacks, lacks / (rate * self._minutes / 60), alone=rate == own))
        return found

    def _refusal(self, claim: _Claim, start: Start) -> BudgetExhausted:
        held, lacks = claim.held, claim.lacks
        unit, left = held.budget.unit, held.standing.left
        beside = "" if claim.alone else " beside what runs already"
        whose = "Your budget" if held.whose[0] == "user" else f"The budget of {held.whose[1]}"
        words = units(unit, self._currency)
        return BudgetExhausted(
            f"{whose} lacks {amount(lacks)} {words}: {_left(left)}, and {_minutes(self._minutes)} of "
            f"{start.title}{beside} need {amount(left + lacks)}.",
            f"{_helps(claim)}{_until(held)}.",
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


def _helps(claim: _Claim) -> str:
    """What would: a smaller size needs something, too."""
    smaller = ["choose a smaller size"] if claim.held.standing.left > 0 else []
    fewer = [] if claim.alone else ["stop a session"]
    words = " or ".join([", ".join([*smaller, *fewer]), "ask for more"]).removeprefix(" or ")
    return words[0].upper() + words[1:]


def _until(held: Held) -> str:
    until = held.standing.until
    if until is None or held.budget.period not in ("week", "month"):
        return ""
    return f"; the next {held.budget.period} begins {until:%Y-%m-%d %H:%M} UTC"
