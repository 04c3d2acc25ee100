"""Running sessions and their money: warned when a budget runs low, ended when a hard one is used up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from allotment_spawner.core.errors import NoSuchLease, WrongState
from allotment_spawner.core.lease import LeaseState

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.budget_book import BudgetBook, Held, rate_of
from allotment_hub.broker.services.budget_use import counts_for
from allotment_hub.broker.services.changes import Bell
from allotment_hub.broker.services.notices import PLATFORM, Notices, Words
from allotment_hub.broker.services.payable import amount, units
from allotment_hub.broker.services.time_limits import TimeLimits
from allotment_hub.broker.store import notices as table
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.site import BudgetPolicies

__all__ = ["BudgetWatch"]

_log = logging.getLogger(__name__)
_WHO: Final = f"{PLATFORM}budget"
_EVERY_S: Final = 5.0
_USED_UP: Final = 100


class BudgetWatch:
    """`round` may be repeated and interrupted anywhere: what was said stands in the table of notices, and
    what is said once carries who it is for in `made_by`."""

    def __init__(
        self,
        *,
        policies: BudgetPolicies,
        store: Store,
        book: Book,
        budgets: BudgetBook,
        notices: Notices,
        time_limits: TimeLimits,
        bell: Bell,
        currency: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._policies = policies
        self._store = store
        self._book = book
        self._budgets = budgets
        self._notices = notices
        self._time_limits = time_limits
        self._bell = bell
        self._currency = currency
        self._clock = clock
        self._told: dict[tuple[str, datetime], dict[str, int]] = {}
        """Budget and period -> person -> how many percent they were told of."""
        self._may_have_announced = True

    async def run(self) -> None:
        """Rounds until cancelled; rung when a budget was changed."""
        while True:
            await self._bell.wait(_EVERY_S)
            try:
                await self.round()
            except Exception:  # noqa: BLE001 - one bad round must not stop all later ones
                _log.exception("a look at the budgets failed; the next one tries again")

    async def round(self) -> None:
        await self._budgets.settle()
        running = self._book.in_state(LeaseState.ACTIVE)
        await self._time_limits.round(running)
        await self._budgets.read({whose for lease in running for whose in counts_for(lease)})
        held = {lease.id: self._touched(lease) for lease in running} if self._budgets else {}
        await self._stops(running, held)
        await self._warn(running, held)

    def _touched(self, lease: Lease) -> list[Held]:
        """Budgets of which it uses something at this moment."""
        tariff = self._budgets.tariff(lease)
        if tariff is None:
            return []
        now = self._clock()
        return [one for one in self._budgets.held_by(lease) if rate_of(tariff, one.budget.unit, now)]

    async def _stops(self, running: Sequence[Lease], held: dict[str, list[Held]]) -> None:
        ends: dict[str, Held] = {}
        for lease in running:
            used_up = [one for one in held.get(lease.id, ()) if one.budget.hard and one.standing.left <= 0]
            if used_up:
                ends[lease.id] = used_up[0]
        if not ends and not self._may_have_announced:
            return
        found = await self._store.read(lambda tx: table.announced_stops(tx.connection))
        announced = {notice.lease for notice in found if notice.made_by == _WHO}
        for lease_id in ends.keys() - announced:
            await self._announce(lease_id, ends[lease_id])
        for lease_id in announced - ends.keys():
            await self._withdraw(lease_id)
        self._may_have_announced = bool(announced or ends)

    async def _announce(self, lease_id: str, held: Held) -> None:
        grace_s = self._policies.grace_minutes * 60
        words = Words(
            "warning",
            f"{_whose(held)} is used up.",
            "Save what you need; if an operator raises the budget before, it goes on.",
        )
        try:
            await self._notices.announce_stop(lease_id, words, after_s=grace_s, made_by=_WHO)
        except (NoSuchLease, WrongState) as why:
            _log.info("no end announced", extra={"lease": lease_id, "why": why.sentence})

    async def _withdraw(self, lease_id: str) -> None:
        try:
            await self._notices.withdraw_stop(lease_id, made_by=_WHO)
        except (NoSuchLease, WrongState) as why:
            # the hub was asked to stop it already
            _log.info("an announced end stays", extra={"lease": lease_id, "why": why.sentence})

    async def _warn(self, running: Sequence[Lease], held: dict[str, list[Held]]) -> None:
        """Each person once for each threshold of each period, in all sessions that count for it."""
        due: dict[tuple[str, str, datetime, int], tuple[Held, list[str]]] = {}
        for lease in running:
            for one in held.get(lease.id, ()):
                percent = self._reached(one)
                if percent:
                    key = (lease.user, one.budget.id, one.standing.since, percent)
                    due.setdefault(key, (one, []))[1].append(lease.id)
        for (user, budget, since, percent), (one, leases) in due.items():
            told = await self._told_of(budget, since)
            if told.get(user, 0) < percent and await self._tell(leases, one, percent):
                told[user] = percent

    async def _tell(self, leases: Sequence[str], held: Held, percent: int) -> bool:
        made_by = f"{_key(held.budget.id, held.standing.since)}{percent}"
        try:
            return await self._notices.tell_some(leases, self._words(held, percent), made_by=made_by) > 0
        except (NoSuchLease, WrongState):
            return False  # the only one that there was is over

    def _reached(self, held: Held) -> int:
        """The highest threshold; 0: none. A hard one that is used up is told by the stop, a soft one here."""
        if held.budget.hard and held.standing.left <= 0:
            return 0
        thresholds = {*self._policies.warn_at_percent, *(() if held.budget.hard else (_USED_UP,))}
        return max((one for one in thresholds if held.standing.reached(one)), default=0)

    async def _told_of(self, budget: str, since: datetime) -> dict[str, int]:
        if (budget, since) not in self._told:
            key = _key(budget, since)
            found = await self._store.read(lambda tx: table.told_by(tx.connection, key))
            self._told[budget, since] = _highest((user, int(made_by[len(key) :])) for user, made_by in found)
        return self._told[budget, since]

    def _words(self, held: Held, percent: int) -> Words:
        left, words = held.standing.left, units(held.budget.unit, self._currency)
        rest = f"{amount(left)} {words} are left" if left > 0 else "nothing is left"
        if not held.budget.hard:
            sentence = f"{percent} % of {_whose(held, small=True)} is used: {rest}."
            return Words("warning", sentence, "Nothing is stopped; ask its owner or an operator for more.")
        minutes = self._policies.grace_minutes
        return Words(
            "warning",
            f"{percent} % of {_whose(held, small=True)} is used: {rest}.",
            "Stop what you do not need: when nothing is left, sessions end "
            f"{minutes} minute{'' if minutes == 1 else 's'} later.",
        )


def _highest(told: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for user, percent in told:
        found[user] = max(percent, found.get(user, 0))
    return found


def _key(budget: str, since: datetime) -> str:
    return f"{_WHO}:{budget}:{since:%Y%m%d%H%M}:"


def _whose(held: Held, *, small: bool = False) -> str:
    """ "Your budget", "The budget of physics"."""
    words = "Your budget" if held.whose[0] == "user" else f"The budget of {held.whose[1]}"
    return words[0].lower() + words[1:] if small else words
