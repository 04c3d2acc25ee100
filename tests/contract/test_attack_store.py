"""A database that goes away for a moment is "try again", no mistake of ours, and comes back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.problems import status_of
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_spawner.core.errors import BrokerUnavailable
from allotment_spawner.core.lease import LeaseState
from allotment_testing.postgres import PostgresCluster, postgres_cluster
from sqlalchemy.exc import OperationalError

LEASE: dict[str, Any] = {
    "id": "l-1",
    "kind": "session",
    "queue_class": "interactive",
    "user": "ada",
    "server": "",
    "environment": "minimal",
    "flavor": "cpu",
    "state": LeaseState.QUEUED,
    "attempt": "a-1",
    "price_per_hour": Decimal("0.40"),
    "created_at": datetime(2026, 3, 2, tzinfo=UTC),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = sqlite_url(tmp_path / "b.db")
    if request.param == "postgresql":
        url = request.getfixturevalue("cluster").database()
    store = Store(url=url)
    await store.open()
    yield store
    await store.close()


def lose_the_database(tx: Transaction) -> None:
    connection = tx._connection
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        connection.exec_driver_sql("SELECT 1")
    else:
        connection.exec_driver_sql("SELECT * FROM a_table_that_is_gone")


async def test_a_lost_database_is_unavailable_and_comes_back(store: Store) -> None:
    with pytest.raises(BrokerUnavailable) as said:
        await store.write("lose", lose_the_database)
    assert status_of(said.value) == 503
    with pytest.raises(BrokerUnavailable):
        await store.read(lose_the_database)
    assert await store.read(lambda tx: tx.slot_rows()) == []
    assert await store.write("again", lambda tx: tx.unended()) == []


async def test_a_commit_that_was_not_answered_is_told_once_it_is_known(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of the leases must never fall behind the disk."""
    told: list[str] = []
    store.listen(lambda changed: told.extend(lease.id for lease in changed))
    assert store._engine is not None
    dialect = store._engine.dialect
    commit = dialect.do_commit

    def commit_and_lose(connection: Any) -> None:
        commit(connection)
        raise OperationalError("COMMIT", {}, Exception("the connection was lost"))

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", commit_and_lose)
        with pytest.raises(BrokerUnavailable):
            await store.write("add", lambda tx: tx.add_lease(**LEASE))
    assert told == []
    assert len(await store.read(lambda tx: tx.unended())) == 1
    await asyncio.sleep(0)
    assert told == [LEASE["id"]]
