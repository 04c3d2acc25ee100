"""Ends leases one after the other in a store and says so on standard output; made to be killed."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from allotment_hub.broker.services.ending import begin_end
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.store import Store
from allotment_spawner.core.lease import EndReason, LeaseState

__all__ = ["BALLAST_BYTES", "add_leases", "end_lease", "lease_ids", "opened_store"]

BALLAST_BYTES = 4 * 2**20
_NOW = datetime(2026, 3, 2, tzinfo=UTC)


def lease_ids(count: int) -> list[str]:
    return [f"lease-{number:04}" for number in range(count)]


async def opened_store(folder: Path, *, ballast_bytes: int = BALLAST_BYTES) -> Store:
    store = Store(url=sqlite_url(folder / "broker" / "b.sqlite"), ballast_bytes=ballast_bytes)
    await store.open()
    return store


async def add_leases(store: Store, count: int) -> None:
    def values(lease: str) -> dict[str, Any]:
        return {
            "id": lease,
            "kind": "session",
            "queue_class": "interactive",
            "user": lease,
            "server": "",
            "environment": "minimal",
            "flavor": "cpu",
            "state": LeaseState.QUEUED,
            "attempt": lease,
            "price_per_hour": Decimal("0.40"),
            "created_at": _NOW,
        }

    for lease in lease_ids(count):
        made = values(lease)
        await store.write("add", lambda tx, made=made: tx.add_lease(**made))  # type: ignore[misc]


async def end_lease(store: Store, lease: str) -> None:
    await store.write("end", lambda tx: begin_end(tx, lease, EndReason.STOPPED, _NOW))


async def _main(folder: Path, count: int) -> None:
    store = await opened_store(folder)
    for lease in lease_ids(count):
        found = await store.read(lambda tx, lease=lease: tx.lease(lease))  # type: ignore[misc]
        if found is not None and found.state is not LeaseState.ENDED:
            await end_lease(store, lease)
            sys.stdout.write(f"{lease}\n")
            sys.stdout.flush()
    await store.close()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2])))
