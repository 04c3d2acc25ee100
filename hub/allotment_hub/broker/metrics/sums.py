"""Sums of the ledger and of outages, kept up to date by reading what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final

from allotment_hub.broker.store import sums as table
from allotment_hub.broker.store.store import Store

__all__ = ["OutageSum", "Sums", "outage_sums"]

_AT_ONCE: Final = 5000


@dataclass(slots=True)
class OutageSum:
    """Outages of one kind (engine, gpu): how many ever, how many now, and their seconds in all."""

    count: int = 0
    open: int = 0
    seconds: float = 0.0


@dataclass
class Sums:
    """By (kind, currency). Exact: what is shown elsewhere as a float is rounded only there."""

    amounts: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    gpu_seconds: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    entries: Counter[tuple[str, str]] = field(default_factory=Counter)
    seen: int = 0
    """The last entry that is in them."""

    async def catch_up(self, store: Store) -> None:
        """In pieces, so that a ledger of years does not hold up everybody else's reads."""
        while True:
            found = await store.read(lambda tx: table.amounts_after(tx.connection, self.seen, _AT_ONCE))
            self.add(found)
            if len(found) < _AT_ONCE:
                return

    def add(self, found: Sequence[table.Amount]) -> None:
        for one in found:
            # two readers at a time may bring the same entries
            if one.seq <= self.seen:
                continue
            key = (one.kind, one.currency)
            self.amounts[key] = self.amounts.get(key, Decimal(0)) + one.amount
            self.gpu_seconds[key] = self.gpu_seconds.get(key, Decimal(0)) + one.gpu_seconds
            self.entries[key] += 1
            self.seen = one.seq


def outage_sums(found: Sequence[table.Outage], now: datetime) -> dict[str, OutageSum]:
    """By kind; one that lasts counts until now. A clock that was set back makes none negative."""
    sums = {"engine": OutageSum(), "gpu": OutageSum()}
    for one in found:
        sum_ = sums.setdefault(one.what.partition(":")[0], OutageSum())
        sum_.count += 1
        sum_.open += one.ended_at is None
        sum_.seconds += max(0.0, ((one.ended_at or now) - one.began_at).total_seconds())
    return sums
