"""What one session has cost at an instant, at the price of looking at its last day only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from allotment_hub.accounting.billing import Run, day_of, in_seconds
from allotment_hub.accounting.tariff import Segment, midnight, priced, rounded

__all__ = ["Meter"]


class Meter:
    """Keeps the exact sum to the last midnight that it came by, and the rates of the day that follows.
    `version`: of the outages it knows."""

    def __init__(self, *, run: Run, version: int) -> None:
        self.run = run
        self.version = version
        self._since = self._until = run.start.astimezone(UTC)
        self._rates: tuple[Segment, ...] = ()
        self._cost = Fraction(0)
        self._seconds = Decimal(0)

    def read(self, at: datetime) -> tuple[Decimal, Decimal]:
        """Cost, rounded once, and billable seconds from the start to `at`."""
        if at < self._since:
            # the clock was set back: the sum so far does not hold
            return self.run.cost(at), self.run.seconds(at)
        if at >= self._until:
            self._go_on(at)
        spans = self.run.spans(self._since, at)
        return rounded(self._cost + priced(self._rates, spans)), self._seconds + in_seconds(spans)

    def _go_on(self, at: datetime) -> None:
        """To the day that holds `at`."""
        zone = self.run.tariff.zone
        day = day_of(at, zone)
        since = max(self._since, midnight(day, zone))
        spans = self.run.spans(self._since, since)
        self._cost += self.run.tariff.exact(spans)
        self._seconds += in_seconds(spans)
        self._since, self._until = since, midnight(day + timedelta(days=1), zone)
        self._rates = tuple(self.run.tariff.segments(self._since, self._until))
