"""The table of notices on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.store import notices
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.notices import Notice
from allotment_hub.broker.store.store import Store
from allotment_spawner.core.lease import LeaseState
from allotment_testing.postgres import PostgresCluster, postgres_cluster

NOW = datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC)
SAID = Notice("n1", "a", "info", "Good morning — 早上好.", "Work.", "olga", NOW)
ENDS = Notice("n2", "a", "warning", "It ends.", "", "olga", NOW, NOW + timedelta(hours=1))


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """With a running lease `a` and one `b` that is over."""
    if request.param == "sqlite":
        url = sqlite_url(tmp_path / "broker.sqlite")
    else:
        url = request.getfixturevalue("cluster").database()
    opened = Store(url=url)
    await opened.open()
    rows = [_row("a", LeaseState.ACTIVE), _row("b", LeaseState.ENDED)]
    await opened.write("add", lambda tx: [tx.add_lease(**row) for row in rows])
    yield opened
    await opened.close()


def _row(lease: str, state: LeaseState) -> dict[str, object]:
    return {
        "id": lease, "kind": "session", "queue_class": "interactive", "user": lease, "server": "",
        "environment": "minimal", "flavor": "cpu", "state": state, "attempt": lease,
        "price_per_hour": Decimal("0.05"), "created_at": NOW,
    }  # fmt: skip


async def add(store: Store, *found: Notice) -> None:
    await store.write("tell", lambda tx: notices.add(tx.connection, found))


async def test_what_was_said_is_read_as_it_was_written(store: Store) -> None:
    await add(store, SAID, ENDS)
    await add(store)
    assert await store.read(lambda tx: notices.of_lease(tx.connection, "a")) == [SAID, ENDS]
    assert await store.read(lambda tx: notices.of_lease(tx.connection, "b")) == []


async def test_only_live_leases_have_ends_to_come(store: Store) -> None:
    await add(store, SAID, ENDS, replace(ENDS, id="n3", lease="b"))
    assert await store.read(lambda tx: notices.announced_stops(tx.connection)) == [ENDS]


async def test_an_end_that_was_called_off_is_gone_and_the_rest_stays(store: Store) -> None:
    mine = replace(ENDS, id="n3", made_by="a")
    await add(store, SAID, ENDS, mine)

    async def withdraw(made_by: str | None) -> list[Notice]:
        return await store.write(
            "withdraw",
            lambda tx: notices.withdraw_stops(tx.connection, "a", made_by=made_by, now=NOW),
        )

    assert await withdraw("a") == [mine]
    assert await store.read(lambda tx: notices.of_lease(tx.connection, "a")) == [SAID, ENDS]
    assert await withdraw(None) == [ENDS]
    assert await withdraw(None) == []
    assert await store.read(lambda tx: notices.announced_stops(tx.connection)) == []
    assert await store.read(lambda tx: notices.of_lease(tx.connection, "a")) == [SAID]


async def test_of_very_many_the_newest_are_shown(store: Store) -> None:
    await add(store, *(replace(SAID, id=f"n{number}") for number in range(120)))
    shown = await store.read(lambda tx: notices.of_lease(tx.connection, "a"))
    assert [one.id for one in shown] == [f"n{number}" for number in range(70, 120)]
