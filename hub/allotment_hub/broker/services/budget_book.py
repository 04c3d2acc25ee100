"""The open budgets in memory: whose they are, what is left of them, and what a start would need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from allotment_hub.accounting.budgeting import Standing, Unit, period_at
from allotment_hub.accounting.tariff import Tariff
from allotment_hub.broker.services.budget_use import Amounts, BudgetUse, Whose, counts_for
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.store.budgets import Budget, Change, open_budgets, period_changes
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["EVERYBODY", "BudgetBook", "Held", "Rates", "rate_of", "standing_of"]

EVERYBODY: Final = "*"
"""The name of the budget that is each person's own."""

_HOUR: Final = 3600
_PLACES: Final = Decimal("0.000001")
_FRESH: Final = timedelta(seconds=1)
_STALE: Final = timedelta(seconds=10)
_KEPT: Final = 10_000


Rates = Callable[[Whose, Unit], Decimal]


@dataclass(frozen=True, slots=True)
class Held:
    """A budget for one person or group (the name of everybody's own is the person's here)."""

    budget: Budget
    whose: Whose
    standing: Standing


def standing_of(
    budget: Budget, changes: Iterable[Change], used: tuple[Decimal, Decimal], now: datetime, zone: str
) -> Standing:
    """`used`: money and GPU-seconds of the period that holds `now`."""
    since, until = period_at(budget.terms, now, zone)
    # a term that is moved keeps what was added to it
    one_period = budget.period in ("term", "total")
    return Standing(
        unit=budget.unit,
        hard=budget.hard,
        amount=budget.amount,
        changes=sum(
            (
                change.amount
                for change in changes
                if change.period_from is not None
                and (one_period or until is None or since <= change.period_from < until)
            ),
            Decimal(0),
        ),
        used=used[0] if budget.unit == "money" else (used[1] / _HOUR).quantize(_PLACES),
        since=since,
        until=until,
    )


def rate_of(tariff: Tariff, unit: Unit, now: datetime) -> Decimal:
    """What a lease uses per hour at this moment."""
    return tariff.rate(now) if unit == "money" else tariff.gpus


class BudgetBook:
    """Written only after commits; `load` once at the start."""

    def __init__(
        self,
        *,
        store: Store,
        use: BudgetUse,
        tariffs: Tariffs,
        zone: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._tariffs = tariffs
        self._zone = zone
        self._clock = clock
        self.use = use
        self._rows: dict[str, Budget] = {}
        self._changes: dict[str, list[Change]] = {}
        self._by_whose: dict[Whose, list[Budget]] = {}
        self._made_for: tuple[datetime, int, int] | None = None
        self._standings: dict[tuple[str, Whose], Standing] = {}
        self._used: dict[tuple[Whose, datetime], tuple[datetime, int, Amounts]] = {}
        self._version = 0
        self.unsure = False
        """Whether a write was given up before its answer came: it may have been committed all the same."""

    async def settle(self) -> None:
        if self.unsure:
            self.unsure = False
            await self.load()

    async def load(self) -> None:
        def work(tx: Transaction) -> tuple[list[Budget], list[Change]]:
            rows = open_budgets(tx.connection)
            return rows, period_changes(tx.connection, [row.id for row in rows])

        rows, changes = await self._store.read(work)
        self._rows, self._changes = {}, {}
        self.put(rows, changes)

    def put(self, rows: Iterable[Budget], changes: Iterable[Change] = ()) -> None:
        """What was just written; a closed one goes."""
        for row in rows:
            self._rows[row.id] = row
            if row.closed_at is not None:
                del self._rows[row.id]
                self._changes.pop(row.id, None)
        for change in changes:
            if change.kind in ("change", "transfer") and change.budget in self._rows:
                kept = self._changes.setdefault(change.budget, [])
                # what was just written may have been read meanwhile
                if all(change.id != known.id for known in kept):
                    kept.append(change)
        self._by_whose = {}
        for row in self._rows.values():
            self._by_whose.setdefault((row.scope, row.name), []).append(row)
        self._version += 1

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def of_groups(self) -> bool:
        """Whether any group has one, so that people's groups matter."""
        return any(scope == "group" for scope, _ in self._by_whose)

    def all(self) -> list[Budget]:
        return list(self._rows.values())

    def get(self, budget_id: str) -> Budget | None:
        return self._rows.get(budget_id)

    def of(self, whose: Whose) -> list[Budget]:
        """Theirs; everybody's own for people who have none of that unit by name."""
        named = self._by_whose.get(whose, [])
        if whose[0] == "group":
            return named
        units = {row.unit for row in named}
        return [
            *named,
            *(row for row in self._by_whose.get(("user", EVERYBODY), ()) if row.unit not in units),
        ]

    def chargeable(self, groups: Collection[str]) -> list[str]:
        """Those of these groups that have a budget in force, by name."""
        now = self._clock()
        return sorted(
            group for group in groups if any(self._in_force(row, now) for row in self.of(("group", group)))
        )

    def _in_force(self, budget: Budget, now: datetime) -> bool:
        since, until = period_at(budget.terms, now, self._zone)
        return since <= now and (until is None or now < until)

    async def read(self, many: Iterable[Whose]) -> None:
        """Have in memory what these used. Costs nothing when it is."""
        now = self._clock()
        wanted = {
            whose: min(period_at(row.terms, now, self._zone)[0] for row in rows)
            for whose in many
            if (rows := self.of(whose))
        }
        await self.use.read(wanted)

    def standing(self, budget: Budget, whose: Whose) -> Standing:
        """Now; kept for a second, so that a long queue costs little."""
        now = self._clock()
        made_for = self._made_for
        versions = (self._version, self.use.version)
        if made_for is None or made_for[1:] != versions or not timedelta() <= now - made_for[0] < _FRESH:
            self._made_for = (now, *versions)
            self._standings.clear()
        key = (budget.id, whose)
        if key not in self._standings:
            self._standings[key] = self._standing(budget, whose, now, self._changes.get(budget.id, ()))
        return self._standings[key]

    async def standing_at_length(self, budget: Budget, whose: Whose, changes: Iterable[Change]) -> Standing:
        """Also of one that is closed, whose changes are not in memory."""
        now = self._clock()
        await self.use.read({whose: period_at(budget.terms, now, self._zone)[0]})
        return self._standing(budget, whose, now, changes)

    def _standing(self, budget: Budget, whose: Whose, now: datetime, changes: Iterable[Change]) -> Standing:
        since, until = period_at(budget.terms, now, self._zone)
        used = self._used_of(whose, since, until, now)
        return standing_of(budget, changes, (used.money, used.gpu_seconds), now, self._zone)

    def _used_of(self, whose: Whose, since: datetime, until: datetime | None, now: datetime) -> Amounts:
        """Kept the longer, the more sessions it must be counted from: ten seconds for a thousand."""
        known = self._used.get((whose, since))
        if known is not None and known[1] == self.use.version:
            fresh = _FRESH * (1 + len(self.use.leases_of(whose)) // 100)
            if timedelta() <= now - known[0] < min(fresh, _STALE):
                return known[2]
        if len(self._used) >= _KEPT:
            self._used.clear()
        used = self.use.of(whose, since, until, now)
        self._used[whose, since] = (now, self.use.version, used)
        return used

    def known(self, whose: Whose) -> bool:
        """Whether what they used is in memory; if not, nothing may be decided by it."""
        now = self._clock()
        return all(self.use.knows(whose, period_at(row.terms, now, self._zone)[0]) for row in self.of(whose))

    def held(self, many: Iterable[Whose]) -> list[Held]:
        """The budgets in force of these, the hard ones first."""
        now = self._clock()
        found = [Held(row, whose, self.standing(row, whose)) for whose in many for row in self.of(whose)]
        return sorted(
            (one for one in found if one.standing.in_force(now)), key=lambda one: not one.budget.hard
        )

    def held_by(self, lease: Lease) -> list[Held]:
        return self.held(counts_for(lease))

    def tariff(self, lease: Lease) -> Tariff | None:
        """As granted; of a waiting one as it would be now. None: its size is not offered any more."""
        kept = self._tariffs.of_lease(lease)
        if kept is not None:
            return kept
        try:
            return self._tariffs.quoted(lease.flavor, lease.wants or {})
        except KeyError:
            return None

    def rates(self, leases: Sequence[Lease]) -> Rates:
        """What these leases use per hour at this moment, by whom they count for. Of the leases and of
        nothing that changes meanwhile: also for other threads."""
        now = self._clock()
        told = [(set(counts_for(lease)), self.tariff(lease)) for lease in leases]
        known: dict[tuple[Whose, Unit], Decimal] = {}

        def rate(whose: Whose, unit: Unit) -> Decimal:
            if (whose, unit) not in known:
                mine = (one for counted, one in told if whose in counted and one is not None)
                known[whose, unit] = sum((rate_of(one, unit, now) for one in mine), Decimal(0))
            return known[whose, unit]

        return rate
