"""The ledger's tables on SQLite and PostgreSQL: written once, told once, never changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.ledger import (
    Entry,
    entries_from,
    entries_of_lease,
    entry_by_key,
    find_entry,
    last_from_at,
)
from allotment_hub.broker.store.schema import budget_changes, budgets
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_spawner.core.errors import BrokerUnavailable
from allotment_spawner.core.lease import LeaseState
from allotment_testing.postgres import PostgresCluster, postgres_cluster
from sqlalchemy import insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

NOW = datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC)
LEASE: dict[str, Any] = {
    "id": "l",
    "kind": "session",
    "queue_class": "interactive",
    "user": "ada",
    "server": "",
    "environment": "minimal",
    "flavor": "cpu",
    "state": LeaseState.QUEUED,
    "attempt": "a",
    "price_per_hour": Decimal("0.40"),
    "created_at": NOW,
}
ENTRY = Entry(
    id="e1",
    key="lease:l:2026-03-02",
    kind="usage",
    owner="ada",
    from_at=NOW,
    to_at=NOW + timedelta(hours=1),
    seconds=Decimal("3600.000001"),
    gpu_seconds=Decimal("450.000000125000"),
    amount=Decimal("0.400000"),
    currency="EUR",
    reason="",
    made_by="broker",
    made_at=NOW,
    lease="l",
    flavor="cpu",
    environment="minimal",
    queue_class="interactive",
)
TABLES = {
    "entries": "UPDATE entries SET amount = '0'",
    "budget_changes": "UPDATE budget_changes SET amount = '0'",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "broker.sqlite")
    running: PostgresCluster = request.getfixturevalue("cluster")
    return running.database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = Store(url=url)
    await opened.open()
    await opened.write("add", lambda tx: tx.add_lease(**LEASE))
    yield opened
    await opened.close()


async def post(store: Store, entry: Entry) -> Entry:
    return await store.write("post", lambda tx: tx.post(entry))


async def test_an_entry_comes_back_to_the_last_digit(store: Store) -> None:
    written = await post(store, ENTRY)
    assert written == replace(ENTRY, seq=written.seq)
    more = await post(store, replace(ENTRY, id="e2", key="other", kind="storage", lease=None, volume="home"))
    assert more.seq > written.seq

    def read(tx: Transaction) -> None:
        at = tx.connection
        assert find_entry(at, "e1") == entry_by_key(at, ENTRY.key) == written
        assert entries_of_lease(at, "l") == [written]
        assert entries_from(at) == entries_from(at, NOW) == [written, more]
        assert entries_from(at, NOW + timedelta(microseconds=1)) == []
        assert last_from_at(at, "storage", NOW) == NOW
        assert last_from_at(at, "storage", NOW - timedelta(seconds=1)) is None
        assert last_from_at(at, "refund", NOW) is None

    await store.read(read)


async def test_one_thing_is_charged_once_and_nothing_of_a_refused_transaction_stays(store: Store) -> None:
    await post(store, ENTRY)

    def twice(tx: Transaction) -> None:
        tx.post(replace(ENTRY, id="e2", key="new"))
        tx.post(replace(ENTRY, id="e3"))

    with pytest.raises(IntegrityError):
        await store.write("post", twice)
    assert len(await store.read(lambda tx: entries_from(tx.connection))) == 1


@pytest.mark.parametrize("table", sorted(TABLES))
async def test_the_database_itself_refuses_every_change(url: str, store: Store, table: str) -> None:
    await post(store, ENTRY)
    await store.write("budget", _add_change)
    tried = [TABLES[table], f"DELETE FROM {table}", f"DELETE FROM {table} WHERE id = 'e1'"]
    if url.startswith("sqlite"):
        tried += [f"REPLACE INTO {table} SELECT * FROM {table}", f"UPDATE OR IGNORE {table} SET amount = '0'"]
    else:
        tried += [f"TRUNCATE {table}"]
    for statement in tried:
        with pytest.raises(DBAPIError, match="never changed"):
            await store.write("tamper", partial(_execute, statement))
    found = await store.read(partial(_execute, f"SELECT amount FROM {table}"))
    assert [row.amount for row in found] == ["0.400000"]


def _execute(statement: str, tx: Transaction) -> list[Any]:
    done = tx.connection.execute(text(statement))
    return list(done.all()) if done.returns_rows else []


def _add_change(tx: Transaction) -> None:
    made = {"made_by": "root", "made_at": NOW}
    amount = Decimal("0.400000")
    tx.connection.execute(
        insert(budgets).values(
            id="b",
            scope="user",
            name="ada",
            unit="money",
            amount=amount,
            period="week",
            hard=1,
            note="",
            **made,
        )
    )
    tx.connection.execute(
        insert(budget_changes).values(id="e1", budget="b", kind="set", amount=amount, reason="", **made)
    )


async def test_entries_are_told_once_in_their_order_and_before_the_leases(store: Store) -> None:
    told: list[str] = []
    store.listen_entries(lambda entries: told.extend(entry.id for entry in entries))
    store.listen(lambda leases: told.extend(lease.id for lease in leases))

    def work(tx: Transaction) -> None:
        tx.set_lease("l", note="x")
        tx.post(ENTRY)
        tx.post(replace(ENTRY, id="e2", key="new"))

    await store.write("work", work)
    assert told == ["e1", "e2", "l"]
    with pytest.raises(IntegrityError):
        await post(store, replace(ENTRY, id="e3"))
    await store.read(lambda tx: tx.unended())
    await asyncio.sleep(0)
    assert told == ["e1", "e2", "l"]


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_commit_that_was_not_answered_is_told_if_it_arrived(
    store: Store, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    told: list[str] = []
    store.listen_entries(lambda entries: told.extend(entry.id for entry in entries))
    assert store._engine is not None
    dialect = store._engine.dialect
    commit = dialect.do_commit

    def lose(connection: Any) -> None:
        if arrives:
            commit(connection)
        raise OperationalError("COMMIT", {}, Exception("the connection was lost"))

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", lose)
        with pytest.raises(BrokerUnavailable):
            await post(store, ENTRY)
    assert told == []
    await store.read(lambda tx: tx.unended())
    await asyncio.sleep(0)
    assert told == (["e1"] if arrives else [])
    if not arrives:
        await post(store, ENTRY)
        assert told == ["e1"]


async def test_outages_at_the_same_instant_and_on_a_clock_that_was_set_back(store: Store) -> None:
    def work(tx: Transaction) -> list[tuple[str, datetime, datetime | None]]:
        tx.begin_outage("engine", NOW)
        tx.end_outage("engine", NOW - timedelta(hours=1))
        tx.begin_outage("engine", NOW)
        tx.begin_outage("engine", NOW + timedelta(hours=1))
        tx.begin_outage("gpu:1", NOW - timedelta(hours=2))
        tx.end_outage("gpu:1", NOW - timedelta(hours=1))
        return tx.outages()

    later = NOW + timedelta(microseconds=1)
    gpu = ("gpu:1", NOW - timedelta(hours=2), NOW - timedelta(hours=1))
    assert await store.write("outages", work) == [gpu, ("engine", NOW, NOW), ("engine", later, None)]
    assert await store.read(lambda tx: tx.outages(since=NOW, of=["engine", "gpu:1"])) == [
        ("engine", NOW, NOW),
        ("engine", later, None),
    ]
    assert await store.read(lambda tx: tx.outages(of=["gpu:1"])) == [gpu]
