"""What monitoring reads of the books: entries after one that is known, and every outage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import Connection, select

from allotment_hub.broker.store.schema import entries, outages

__all__ = ["Amount", "Outage", "amounts_after", "every_outage"]


@dataclass(frozen=True, slots=True)
class Amount:
    """One entry of the ledger, as far as sums need it."""

    seq: int
    kind: str
    currency: str
    amount: Decimal
    gpu_seconds: Decimal


@dataclass(frozen=True, slots=True)
class Outage:
    """`what`: engine, or gpu:UUID; `ended_at` None while it lasts."""

    what: str
    began_at: datetime
    ended_at: datetime | None


def amounts_after(connection: Connection, seq: int, limit: int) -> Sequence[Amount]:
    """Oldest first, at most `limit`; entries are never changed, so each needs to be read only once."""
    table = entries.c
    query = (
        select(table.seq, table.kind, table.currency, table.amount, table.gpu_seconds)
        .where(table.seq > seq)
        .order_by(table.seq)
        .limit(limit)
    )
    return [Amount(*row) for row in connection.execute(query)]


def every_outage(connection: Connection) -> Sequence[Outage]:
    query = select(outages.c.what, outages.c.began_at, outages.c.ended_at).order_by(outages.c.began_at)
    return [Outage(*row) for row in connection.execute(query)]
