"""What one session has cost at an instant, at the price of looking at its last day only."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from allotment_hub.accounting.billing import Run, day_of, in_seconds
from allotment_hub.accounting.tariff import midnight, rounded

__all__ = ["Meter"]


class Meter:
    """Keeps the exact sum to the last midnight that it came by. `version`: of the outages it knows."""

    def __init__(self, *, run: Run, version: int) -> None:
        self.run = run
        self.version = version
        self._until = run.start
        self._cost = Fraction(0)
        self._seconds = Decimal(0)

    def read(self, until: datetime) -> tuple[Decimal, Decimal]:
        """Cost, rounded once, and billable seconds from the start to `until`."""
        if until < self._until:
            # the clock was set back: the sum so far does not hold
            return self.run.cost(until), self.run.seconds(until)
        zone = self.run.tariff.zone
        today = midnight(day_of(until, zone), zone)
        if today > self._until:
            self._cost, self._seconds = self._sums(today)
            self._until = today
        cost, seconds = self._sums(until)
        return rounded(cost), seconds

    def _sums(self, until: datetime) -> tuple[Fraction, Decimal]:
        spans = self.run.spans(self._until, until)
        return self._cost + self.run.tariff.exact(spans), self._seconds + in_seconds(spans)
