"""Entries of the ledger put straight into its table, for tests of what reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

from allotment_hub.broker.store.schema import entries
from allotment_hub.broker.store.store import Store
from sqlalchemy import insert

__all__ = ["FIRST", "some_entry", "write_entries"]

FIRST = datetime(2030, 3, 1, 12, tzinfo=UTC)


def some_entry(**more: Any) -> dict[str, Any]:
    """An hour of ann's on the CPU for 0.05 credits, of no lease in the table."""
    name = uuid4().hex
    fields = {
        "id": name, "key": f"test:{name}", "kind": "usage", "owner": "ann", "charged_to": None, "lease": None,
        "volume": None, "from_at": FIRST, "seconds": Decimal(3600), "gpu_seconds": Decimal(0),
        "amount": Decimal("0.05"), "currency": "credits", "flavor": "cpu", "environment": "minimal",
        "queue_class": "interactive", "reason": "", "made_by": "ledger", "made_at": FIRST, "refers_to": None,
    }  # fmt: skip
    found = fields | more
    found.setdefault("to_at", found["from_at"] + timedelta(hours=1))
    return found


async def write_entries(store: Store, *written: dict[str, Any]) -> None:
    await store.write(
        "entries", lambda tx: [tx.connection.execute(insert(entries).values(one)) for one in written]
    )
