"""What running sessions use of budgets from now on, together and hour by hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from allotment_spawner.core.lease import LeaseState

from allotment_hub.accounting.budgeting import Pattern, Pieces, Unit, burn, pattern, together
from allotment_hub.accounting.tariff import PLACES, Tariff
from allotment_hub.broker.services.budget_book import BudgetBook
from allotment_hub.broker.services.budget_use import Whose
from allotment_hub.broker.store.records import Lease

__all__ = ["Burning"]

_FRESH: Final = timedelta(seconds=1)
_PATTERN_FRESH: Final = timedelta(minutes=1)
_SHAPES: Final = 1000
_KEPT: Final = 10_000
_RUNNING: Final = (LeaseState.GRANTED, LeaseState.ACTIVE)


class Burning:
    """Kept for a second: a thousand sessions of ten sizes cost ten looks at the clock, not a thousand."""

    def __init__(self, *, budgets: BudgetBook, clock: Callable[[], datetime]) -> None:
        self._budgets = budgets
        self._clock = clock
        self._made_at: datetime | None = None
        self._version = -1
        self._alone: dict[tuple[Tariff, Unit], Pieces] = {}
        self._patterns: dict[object, tuple[Pattern, datetime]] = {}
        self._read: dict[str, tuple[object, Tariff | None]] = {}
        self._together: dict[tuple[Whose, Unit], Pieces] = {}

    def of(self, whose: Whose, unit: Unit) -> Pieces:
        """All running sessions that count for them."""
        self._renew()
        if (whose, unit) not in self._together:
            tariffs: Counter[Tariff] = Counter()
            for lease in self._budgets.use.leases_of(whose):
                tariff = self._tariff(lease) if lease.state in _RUNNING else None
                tariffs.update(() if tariff is None else (tariff,))
            self._together[whose, unit] = together(
                tuple((length, rate * count) for length, rate in self.alone(tariff, unit))
                for tariff, count in tariffs.items()
            )
        return self._together[whose, unit]

    @property
    def made_at(self) -> datetime:
        """From when on all pieces count."""
        self._renew()
        assert self._made_at is not None
        return self._made_at

    def rate(self, whose: Whose, unit: Unit) -> Decimal:
        """Per hour, at this moment."""
        return Decimal(self.of(whose, unit)[0][1]).scaleb(-PLACES)

    def alone(self, tariff: Tariff, unit: Unit) -> Pieces:
        self._renew()
        if (tariff, unit) not in self._alone:
            assert self._made_at is not None
            when, since = self._pattern(tariff, self._made_at)
            self._alone[tariff, unit] = burn(tariff, unit, when, self._made_at - since)
        return self._alone[tariff, unit]

    def _pattern(self, tariff: Tariff, now: datetime) -> tuple[Pattern, datetime]:
        """The same for all sizes with the same schedules; what of it is over is cut off when it is used."""
        shape = (tariff.zone, tuple((one.days, one.start, one.end) for one in tariff.windows))
        known = self._patterns.get(shape)
        if known is None or not timedelta() <= now - known[1] < _PATTERN_FRESH:
            if len(self._patterns) >= _SHAPES:
                self._patterns.clear()
            known = (pattern(tariff.zone, tariff.windows, now), now)
            self._patterns[shape] = known
        return known

    def _tariff(self, lease: Lease) -> Tariff | None:
        """A lease keeps its rates, so they are read once."""
        known = self._read.get(lease.id)
        if known is None or known[0] != lease.rates:
            if len(self._read) >= _KEPT:
                self._read.clear()
            known = (lease.rates, self._budgets.tariff(lease))
            self._read[lease.id] = known
        return known[1]

    def _renew(self) -> None:
        now = self._clock()
        old = self._made_at is None or not timedelta() <= now - self._made_at < _FRESH
        if old:
            self._made_at = now
            self._alone.clear()
        if old or self._version != self._budgets.use.book_version:
            self._version = self._budgets.use.book_version
            self._together.clear()
