"""What reports read of the ledger: the same on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.store.budgets import Budget, add_budget
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.usage import Wanted, entries_of, groups_minded, wanted_seqs
from allotment_testing.postgres import PostgresCluster, postgres_cluster
from allotment_testing.written_entries import FIRST, some_entry, write_entries


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = sqlite_url(tmp_path / "broker.sqlite")
    if request.param == "postgresql":
        running: PostgresCluster = request.getfixturevalue("cluster")
        url = running.database()
    opened = Store(url=url)
    await opened.open()
    yield opened
    await opened.close()


async def test_entries_of_a_time_in_the_order_of_writing(store: Store) -> None:
    berlin = timezone(timedelta(hours=1))
    first, last = datetime(2030, 3, 1, tzinfo=berlin), datetime(2030, 3, 2, tzinfo=berlin)
    times = [last, first, last - timedelta(microseconds=1), first - timedelta(microseconds=1), FIRST]
    written = [
        some_entry(from_at=at, seconds=Decimal("0.000001"), amount=Decimal("-12345678901234567890.123456"))
        for at in times
    ]
    await write_entries(store, *written, some_entry(owner="ben", charged_to="physics"))
    wanted = Wanted(first, last)
    seqs = await store.read(lambda tx: wanted_seqs(tx.connection, wanted))
    found = await store.read(lambda tx: entries_of(tx.connection, seqs[::-1]))
    assert [one.id for one in found[:-1]] == [written[number]["id"] for number in (1, 2, 4)]
    assert (found[0].amount, found[0].seconds) == (written[0]["amount"], Decimal("0.000001"))
    assert found[1].from_at == times[2]
    assert found[1].from_at.tzinfo is UTC
    for one, count in (
        (Wanted(first, last, owner="ben"), 1), (Wanted(first, last, charged_to="physics"), 1),
        (Wanted(first, last, owner="ann", charged_to="physics"), 0), (Wanted(last, first), 0),
    ):  # fmt: skip
        assert len(await store.read(lambda tx, one=one: wanted_seqs(tx.connection, one))) == count  # type: ignore[misc]


async def test_a_budgets_owner_while_it_is_open(store: Store) -> None:
    for number, (name, closed) in enumerate(
        (("physics", None), ("art", FIRST), ("art", None), ("bio", FIRST))
    ):
        budget = Budget(
            id=f"b{number}", scope="group", name=name, unit="money", amount=Decimal(1), period="month",
            starts_on=None, ends_on=None, hard=True, owner="prof", note="", made_by="root", made_at=FIRST,
            closed_at=closed,
        )  # fmt: skip
        await store.write("b", lambda tx, one=budget: add_budget(tx.connection, one))  # type: ignore[misc]
    assert await store.read(lambda tx: groups_minded(tx.connection, "prof")) == ["art", "physics"]
    assert await store.read(lambda tx: groups_minded(tx.connection, "ann")) == []
