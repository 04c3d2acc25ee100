"""What running sessions used in a period and no entry says yet."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final

from allotment_hub.accounting.billing import Run, in_seconds
from allotment_hub.broker.services.budget_use import Amounts
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.services.outages import OutageBook
from allotment_hub.broker.store.records import Lease

__all__ = ["RunningUse"]

_KEPT: Final = 5000


class RunningUse:
    """The ledger's figures, without what a session used before the period began: the entry of its last day
    is written a little after midnight, and after a longer stop of the broker later still."""

    def __init__(self, *, ledger: Ledger, outages: OutageBook, currency: str) -> None:
        self._ledger = ledger
        self._outages = outages
        self._currency = currency
        self._before: dict[tuple[str, datetime], tuple[Run, Decimal]] = {}

    def unposted(self, lease: Lease, now: datetime, since: datetime) -> Amounts:
        tariff = self._ledger.tariff(lease)
        if tariff is None or lease.active_at is None:
            return Amounts()
        found = self._ledger.unposted(lease, now)
        money, gpu_seconds = found.amount, found.gpu_seconds
        if lease.active_at < since:
            run = Run(tariff, lease.active_at, self._outages.of(lease))
            cost = self._ledger.cost(lease, now) or Decimal(0)
            spans = run.spans(since, lease.stopped_at or now)
            money = min(money, max(cost - self._cost_before(lease, run, since), Decimal(0)))
            gpu_seconds = min(gpu_seconds, in_seconds(spans) * tariff.gpus)
        return Amounts(money if tariff.currency == self._currency else Decimal(0), gpu_seconds)

    def _cost_before(self, lease: Lease, run: Run, since: datetime) -> Decimal:
        """It changes only when an outage becomes known."""
        known = self._before.get((lease.id, since))
        if known is not None and known[0] == run:
            return known[1]
        if len(self._before) >= _KEPT:
            self._before.clear()
        cost = run.cost(since)
        self._before[lease.id, since] = (run, cost)
        return cost
