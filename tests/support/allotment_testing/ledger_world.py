"""A world whose prices a test chooses, and its ledger as the database has it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allotment_hub.broker.factory import Broker
from allotment_hub.broker.store.ledger import Entry, entries_from
from allotment_hub.prices import Prices

from allotment_testing.broker_world import BrokerWorld, small_catalog

__all__ = ["at", "entries_in", "priced_world"]


def priced_world(folder: Path, **prices: Any) -> BrokerWorld:
    """`prices` as in catalog.yaml's section."""
    catalog = small_catalog().model_copy(update={"prices": Prices.model_validate(prices)})
    return BrokerWorld(folder, catalog=catalog)


async def entries_in(broker: Broker) -> list[Entry]:
    """All of them, in their order."""
    return await broker.store.read(lambda tx: entries_from(tx.connection))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
