"""What each size would cost a person now, who would be charged, and for how long that can be paid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from allotment_spawner.money_wire import PriceChange, QuoteBudget, QuoteView

from allotment_hub.accounting.budgeting import choose, lasts
from allotment_hub.accounting.tariff import PLACES, Tariff
from allotment_hub.broker.services.budget_book import BudgetBook, Held, Rates
from allotment_hub.broker.services.budget_use import Whose, counts_for
from allotment_hub.broker.services.burning import Burning
from allotment_hub.broker.services.limits import Limits
from allotment_hub.broker.services.payable import Payments, Start
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.store.records import Lease
from allotment_hub.catalog import Catalog

__all__ = ["Person", "Quotes"]

_DAY: Final = timedelta(days=1)
_PLACES: Final = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Person:
    """What is the same for all sizes of one look: made once, used for each."""

    user: str
    groups: frozenset[str]
    wants: dict[str, Any]
    may_charge: tuple[str, ...]
    own: tuple[Held, ...]
    of_groups: dict[str, tuple[Held, ...]]
    live: tuple[Lease, ...]
    running: Rates


class Quotes:
    """From memory, once `person` has read what is not there yet."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        budgets: BudgetBook,
        tariffs: Tariffs,
        payments: Payments,
        limits: Limits,
        burning: Burning,
        clock: Callable[[], datetime],
    ) -> None:
        self._catalog = catalog
        self._budgets = budgets
        self._tariffs = tariffs
        self._payments = payments
        self._limits = limits
        self._burning = burning
        self._clock = clock

    async def person(self, user: str, groups: frozenset[str]) -> Person:
        await self._budgets.settle()
        may = tuple(self._budgets.chargeable(groups))
        own: Whose = ("user", user)
        whose: list[Whose] = [own, *(("group", name) for name in may)]
        await self._budgets.read(whose)
        held = {one: tuple(self._budgets.held([one])) for one in whose}
        factor = self._tariffs.factor_of(groups)
        beside = self._budgets.use.live(whose)
        return Person(
            user=user,
            groups=groups,
            wants={} if factor is None else {"factor": format(factor, "f")},
            may_charge=may,
            own=held[own],
            of_groups={name: held["group", name] for name in may},
            live=tuple(lease for lease in beside if lease.user == user),
            running=self._budgets.rates(beside),
        )

    def quote(self, person: Person, flavor_id: str) -> QuoteView:
        now = self._clock()
        tariff = self._tariffs.quoted(flavor_id, person.wants)
        start = Start(self._catalog.flavors[flavor_id].title, tariff, person.user, None)
        share = {
            name: self._payments.share_lacking_of(held, start, person.running)
            for name, held in person.of_groups.items()
        }
        group = choose(share)
        held = (*person.own, *(() if group is None else person.of_groups[group]))
        of_groups = {
            name: tuple(self._budget(one, tariff) for one in many) for name, many in person.of_groups.items()
        }
        own = tuple(self._budget(one, tariff) for one in person.own)
        budgets = own if group is None else (*own, *of_groups[group])
        rate = tariff.rate(now)
        return QuoteView(
            price_per_hour=rate,
            currency=tariff.currency,
            changes=self._next_changes(tariff, now),
            charge_to=group,
            may_charge=person.may_charge,
            choices=tuple(one for name in person.may_charge for one in of_groups[name]),
            budgets=budgets,
            lasts_s=_first_end(budgets, now),
            longest_s=self._limits.longest_s(flavor_id, person.groups),
            minimum=(rate * (self._payments.shortest // timedelta(seconds=1)) / 3600).quantize(_PLACES),
            refusal=self._refusal(person, flavor_id, start, held),
        )

    def _refusal(self, person: Person, flavor_id: str, start: Start, held: Sequence[Held]) -> str | None:
        why = self._limits.problem(flavor_id, person.groups, person.live)
        if why is None and held:
            no_money = self._payments.problem_of(held, start, person.running)
            return None if no_money is None else f"{no_money.sentence} {no_money.next_step}"
        return None if why is None else f"{why.sentence} {why.next_step}"

    def _budget(self, held: Held, tariff: Tariff) -> QuoteBudget:
        unit = held.budget.unit
        beside, alone = self._burning.of(held.whose, unit), self._burning.alone(tariff, unit)
        return quote_budget(held, lasts(held.standing.left, beside, alone))

    def tightest(self, lease: Lease) -> QuoteBudget | None:
        """Of the budgets that a running lease counts for, the hard one that ends first; else the soft one."""
        if not self._budgets or not all(self._budgets.known(one) for one in counts_for(lease)):
            return None
        found = [
            quote_budget(one, lasts(one.standing.left, self._burning.of(one.whose, one.budget.unit)))
            for one in self._budgets.held_by(lease)
        ]
        return min(found, key=_urgency, default=None)

    def _next_changes(self, tariff: Tariff, now: datetime) -> tuple[PriceChange, ...]:
        """In the next 24 hours."""
        pieces = self._burning.alone(tariff, "money")
        found: list[PriceChange] = []
        at, before = self._burning.made_at, pieces[0][1]
        for length, rate in pieces:
            if rate != before:
                found.append(PriceChange(at=at, price_per_hour=Decimal(rate).scaleb(-PLACES)))
            at, before = at + timedelta(microseconds=length), rate
            if at >= now + _DAY:
                break
        return tuple(found)


def quote_budget(held: Held, pays_for: timedelta | None) -> QuoteBudget:
    return QuoteBudget(
        id=held.budget.id,
        scope=held.budget.scope,
        name=held.whose[1],
        unit=held.budget.unit,
        limit=held.standing.limit,
        left=held.standing.left,
        hard=held.budget.hard,
        period=held.budget.period,
        until=held.standing.until,
        lasts_s=None if pays_for is None else pays_for.total_seconds(),
    )


def _first_end(budgets: Sequence[QuoteBudget], now: datetime) -> float | None:
    """Until the first hard one is used up; one that gets new money before that has no end in sight."""
    ends = [
        one.lasts_s
        for one in budgets
        if one.hard
        and one.lasts_s is not None
        and (one.until is None or now + timedelta(seconds=one.lasts_s) < one.until)
    ]
    return min(ends, default=None)


def _urgency(budget: QuoteBudget) -> tuple[bool, float, str]:
    return not budget.hard, float("inf") if budget.lasts_s is None else budget.lasts_s, budget.id
