"""The tables of budgets on SQLite and on a real PostgreSQL: kept for good, one open one of each sort."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.store import budgets as table
from allotment_hub.broker.store.budgets import Budget, Change, NameInUse
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.ledger import Entry
from allotment_hub.broker.store.notices import Notice, add, told_by
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_spawner.core.lease import LeaseState
from allotment_testing.postgres import PostgresCluster, postgres_cluster
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

NOW = datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC)
TERM = Budget(
    "b1", "group", "Übung 1 %", "gpu_hours", Decimal("12345678.123456"),
    "term", date(2026, 3, 1), date(2026, 7, 31), True, "olga", "", "root", NOW,
)  # fmt: skip
MINE = replace(
    TERM, id="b2", scope="user", name="ada", period="week", starts_on=None, ends_on=None, hard=False
)
SET = Change("c1", "b1", None, "set", TERM.amount, None, "Asked for.", "root", NOW)
MORE = Change("c2", "b1", NOW, "change", Decimal("-0.000001"), None, "Less.", "root", NOW)


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """With leases of ada: one of no group, two charged to x and one to the other name of x."""
    if request.param == "sqlite":
        url = sqlite_url(tmp_path / "broker.sqlite")
    else:
        url = request.getfixturevalue("cluster").database()
    opened = Store(url=url)
    await opened.open()
    rows = [
        _row("a", None),
        _row("b", "x"),
        _row("c", "x", LeaseState.ENDED),
        _row("d", '"x"'),
        _row("e", "x"),
    ]
    await opened.write("add", lambda tx: [tx.add_lease(**row) for row in rows])
    yield opened
    await opened.close()


def _row(lease: str, group: str | None, state: LeaseState = LeaseState.ACTIVE) -> dict[str, object]:
    return {
        "id": lease, "kind": "session", "queue_class": "interactive", "user": "ada", "server": lease,
        "environment": "minimal", "flavor": "cpu", "state": state, "attempt": lease,
        "price_per_hour": Decimal("0.05"), "created_at": NOW,
        "wants": None if group is None else {"charged_to": group},
    }  # fmt: skip


async def put(store: Store, *rows: Budget) -> None:
    def work(tx: Transaction) -> None:
        for row in rows:
            table.add_budget(tx.connection, row)

    await store.write("budget", work)


async def test_budgets_and_changes_are_read_as_they_were_written(store: Store) -> None:
    await put(store, TERM, MINE)
    await store.write("budget", lambda tx: table.add_changes(tx.connection, [SET, MORE]))
    assert await store.read(lambda tx: table.open_budgets(tx.connection)) == [TERM, MINE]
    assert await store.read(lambda tx: table.find_budget(tx.connection, "b2")) == MINE
    assert await store.read(lambda tx: table.find_budget(tx.connection, "b3")) is None
    assert await store.read(lambda tx: table.changes_of(tx.connection, "b1", 10)) == [MORE, SET]
    assert await store.read(lambda tx: table.changes_of(tx.connection, "b1", 1)) == [MORE]
    assert await store.read(lambda tx: table.period_changes(tx.connection, ["b1", "b2"])) == [MORE]
    assert await store.read(lambda tx: table.find_change(tx.connection, "c1")) == SET


async def test_one_open_budget_of_each_sort(store: Store) -> None:
    await put(store, TERM)
    with pytest.raises(NameInUse):
        await put(store, replace(TERM, id="b3"))

    def refused_and_on(tx: Transaction) -> None:
        with pytest.raises(NameInUse):
            table.add_budget(tx.connection, replace(TERM, id="b3"))
        table.add_budget(tx.connection, MINE)

    await store.write("budget", refused_and_on)
    await put(store, replace(TERM, id="b4", unit="money"), replace(TERM, id="b5", scope="user"))
    closed = replace(TERM, closed_at=NOW)
    await store.write("budget", lambda tx: table.set_budget(tx.connection, closed))
    await put(store, replace(TERM, id="b6"))
    found = await store.read(lambda tx: table.open_budgets(tx.connection))
    assert sorted(one.id for one in found) == ["b2", "b4", "b5", "b6"]
    assert await store.read(lambda tx: table.find_budget(tx.connection, "b1")) == closed


async def test_only_what_may_change_is_changed(store: Store) -> None:
    await put(store, TERM)
    wanted = replace(MINE, id="b1", amount=Decimal(5), note="New.", owner=None)
    await store.write("budget", lambda tx: table.set_budget(tx.connection, wanted))
    kept = replace(TERM, amount=Decimal(5), note="New.", owner=None, starts_on=None, ends_on=None, hard=False)
    assert await store.read(lambda tx: table.find_budget(tx.connection, "b1")) == kept


@pytest.mark.parametrize(
    "statement", ["UPDATE budget_changes SET amount = '0'", "DELETE FROM budget_changes"]
)
async def test_nobody_alters_a_change(store: Store, statement: str) -> None:
    await put(store, TERM)
    await store.write("budget", lambda tx: table.add_changes(tx.connection, [SET]))
    with pytest.raises(DBAPIError, match="never changed"):
        await store.write("alter", lambda tx: tx.connection.execute(text(statement)))
    assert await store.read(lambda tx: table.changes_of(tx.connection, "b1", 10)) == [SET]


async def test_what_people_and_groups_used(store: Store) -> None:
    def entry(number: int, owner: str, group: str | None, hours: int) -> Entry:
        at = NOW + timedelta(hours=hours)
        return Entry(
            id=f"e{number}", key=f"k{number}", kind="usage", owner=owner, charged_to=group,
            from_at=at, to_at=at,
            seconds=Decimal(number), gpu_seconds=Decimal(number) / 8, amount=Decimal(number).scaleb(-6),
            currency="credits", reason="", made_by="", made_at=NOW,
        )  # fmt: skip

    made = [
        entry(1, "ada", None, 0),
        entry(2, "ada", "x", 1),
        entry(3, "bob", "x", 2),
        entry(4, "bob", "y", 3),
    ]
    assert await store.read(lambda tx: table.last_entry(tx.connection)) == 0
    await store.write("post", lambda tx: [tx.post(one) for one in made])

    async def used(scope: table.Scope, name: str, hours: int = 0) -> list[Decimal]:
        since = NOW + timedelta(hours=hours)
        found = await store.read(lambda tx: table.used_since(tx.connection, scope, name, since))
        return sorted(one.amount.scaleb(6) for one in found)

    assert await used("user", "ada") == [1, 2]
    assert await used("group", "x") == [2, 3]
    assert await used("group", "x", 2) == [3], "from that instant on"
    assert await used("group", "ada") == []
    assert await store.read(lambda tx: table.last_entry(tx.connection)) == 4


async def test_live_leases_of_a_person_and_of_a_group(store: Store) -> None:
    async def ids(**whose: str) -> list[str]:
        return sorted(lease.id for lease in await store.read(lambda tx: tx.live_leases(**whose)))

    assert await ids(user="ada") == ["a", "b", "d", "e"]
    assert await ids(user="x") == []
    assert await ids(charged_to="x") == ["b", "e"]
    assert await ids(charged_to='"x"') == ["d"]
    assert await ids(charged_to="null") == []


async def test_who_was_told_what(store: Store) -> None:
    def said(number: int, lease: str, made_by: str) -> Notice:
        return Notice(f"n{number}", lease, "info", "s", "", made_by, NOW)

    notices = [said(1, "a", "budget:b1:80"), said(2, "c", "budget:b1:95"), said(3, "a", "budget:b_:80")]
    await store.write("tell", lambda tx: add(tx.connection, notices))
    found = await store.read(lambda tx: told_by(tx.connection, "budget:b1:"))
    assert sorted(found) == [("ada", "budget:b1:80"), ("ada", "budget:b1:95")]
    assert await store.read(lambda tx: told_by(tx.connection, "budget:b_:")) == [("ada", "budget:b_:80")]
