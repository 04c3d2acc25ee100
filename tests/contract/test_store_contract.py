"""What every database must do for the broker: SQLite and a real PostgreSQL pass the same tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from allotment_hub.broker.store.connect import connect, sqlite_url
from allotment_hub.broker.store.records import Attempt, Cut, Device, Lease
from allotment_hub.broker.store.schema import metadata
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import IllegalStep, SlotTaken, Transaction
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_testing.postgres import PostgresCluster, postgres_cluster
from sqlalchemy.exc import IntegrityError

NOW = datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "broker" / "broker.sqlite")
    running: PostgresCluster = request.getfixturevalue("cluster")
    return running.database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = Store(url=url)
    await opened.open()
    yield opened
    await opened.close()


def row(lease_id: str, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": lease_id,
        "kind": "session",
        "queue_class": "interactive",
        "user": f"user-{lease_id}",
        "server": "",
        "environment": "minimal",
        "flavor": "gpu-10gb",
        "state": LeaseState.QUEUED,
        "attempt": f"attempt-{lease_id}",
        "price_per_hour": Decimal("0.400000"),
        "created_at": NOW,
    }
    return values | changes


def slice_at(start: int, *, size: int = 1, media: bool = False) -> Device:
    return Device(
        gpu_uuid="GPU-1", node="n", profile="1g.10gb", start=start, size=size, uuid=None, media=media
    )


WHOLE = Device(gpu_uuid="GPU-1", node="n", profile=None, start=None, size=None, uuid="GPU-1")


async def add(store: Store, lease_id: str, **changes: Any) -> Lease:
    return await store.write("add", lambda tx: tx.add_lease(**row(lease_id, **changes)))


async def test_a_lease_comes_back_as_it_was_written(store: Store) -> None:
    written = await add(
        store,
        "a",
        rates=[{"from_s": "0", "per_hour": "0.4"}],
        launch={"cpu": 1.5},
        pools=["mig"],
        granted_at=NOW,
        end_reason=EndReason.STOPPED,
    )
    read = await store.read(lambda tx: tx.lease("a"))
    assert read == written
    assert read is not None
    assert (read.created_at, read.created_at.tzinfo) == (NOW, UTC), "to the microsecond, with its zone"
    assert read.price_per_hour == Decimal("0.4")
    assert read.pools == frozenset({"mig"})
    assert (read.state, read.end_reason) == (LeaseState.QUEUED, EndReason.STOPPED)
    assert await store.read(lambda tx: tx.lease("unknown")) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (slice_at(3), slice_at(3)),
        (slice_at(0, size=4), slice_at(3)),
        (slice_at(0, media=True), slice_at(5, media=True)),
        (WHOLE, slice_at(6)),
        (slice_at(11), WHOLE),
        (WHOLE, WHOLE),
    ],
)
async def test_a_device_is_never_held_twice(store: Store, first: Device, second: Device) -> None:
    await add(store, "a")
    await add(store, "b")
    await store.write("reserve", lambda tx: tx.reserve("a", [first]))
    with pytest.raises(SlotTaken):
        await store.write("reserve", lambda tx: tx.reserve("b", [second]))
    held = await store.read(lambda tx: tx.slot_rows())
    assert {lease for _, _, lease in held} == {"a"}, "the loser's transaction left nothing"
    lease = await store.read(lambda tx: tx.lease("b"))
    assert lease is not None
    assert lease.devices == ()
    await store.write("free", lambda tx: tx.free_slots("a"))
    await store.write("reserve", lambda tx: tx.reserve("b", [second]))


@pytest.mark.parametrize("state", [LeaseState.QUEUED, LeaseState.GRANTED, LeaseState.ACTIVE])
async def test_one_live_lease_a_server(store: Store, state: LeaseState) -> None:
    await add(store, "a", user="ada", state=state)
    with pytest.raises(IntegrityError):
        await add(store, "b", user="ada")
    await add(store, "c", user="ada", server="second")
    await store.write("end", lambda tx: tx.set_lease("a", state=LeaseState.ENDING))
    await add(store, "d", user="ada")
    assert await store.read(lambda tx: tx.live_count("ada")) == 2


@pytest.mark.parametrize("state", LeaseState)
async def test_no_step_leads_back(store: Store, state: LeaseState) -> None:
    await add(store, "a", state=LeaseState.ENDED)
    with pytest.raises(IllegalStep, match="from ended"):
        await store.write("revive", lambda tx: tx.set_lease("a", state=state))
    await add(store, "b", server="second", state=LeaseState.ENDING)
    if state is LeaseState.ENDED:
        await store.write("end", lambda tx: tx.set_lease("b", state=state))
    else:
        with pytest.raises(IllegalStep, match="from ending"):
            await store.write("revive", lambda tx: tx.set_lease("b", state=state))


async def test_slots_belong_to_a_lease_that_exists(store: Store) -> None:
    with pytest.raises(SlotTaken):
        await store.write("reserve", lambda tx: tx.reserve("nobody", [slice_at(0)]))


async def test_an_exception_rolls_everything_back(store: Store) -> None:
    def work(tx: Transaction) -> None:
        tx.add_lease(**row("a"))
        tx.reserve("a", [slice_at(0)])
        raise LookupError

    with pytest.raises(LookupError):
        await store.write("fail", work)
    assert await store.read(lambda tx: (tx.unended(), tx.slot_rows())) == ([], [])


async def test_listeners_hear_commits_in_order_also_of_a_cancelled_caller(store: Store) -> None:
    heard: list[str] = []
    store.listen(lambda changed: heard.extend(lease.id for lease in changed))
    tasks = [asyncio.ensure_future(add(store, name)) for name in "abcdef"]
    await asyncio.sleep(0)
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    kept = await store.read(lambda tx: [lease.id for lease in tx.unended()])
    assert heard == kept


async def test_attempts_cuts_and_devices(store: Store) -> None:
    await add(store, "a")
    await store.write("attempt", lambda tx: tx.add_attempt(Attempt("k", "a", "hash", NOW)))
    assert await store.read(lambda tx: tx.attempt("k")) == Attempt("k", "a", "hash", NOW)
    assert await store.read(lambda tx: tx.attempt("other")) is None
    cut = Cut("GPU-1", 3, "1g.10gb", "boot", NOW)
    await store.write("cut", lambda tx: tx.add_cuts([cut, cut]))
    assert await store.read(lambda tx: tx.cuts()) == [cut]
    await store.write("cut", lambda tx: tx.drop_cut("GPU-1", "1g.10gb", 3))
    assert await store.read(lambda tx: tx.cuts()) == []
    await store.write("reserve", lambda tx: tx.reserve("a", [slice_at(0), slice_at(1)]))
    await store.write("name", lambda tx: tx.name_devices("a", ["MIG-0", "MIG-1"]))
    lease = await store.read(lambda tx: tx.lease("a"))
    assert lease is not None
    assert [device.uuid for device in lease.devices] == ["MIG-0", "MIG-1"]


async def test_finding_and_history(store: Store) -> None:
    for number in range(4):
        await add(
            store,
            f"l{number}",
            user="ada",
            state=LeaseState.ENDED,
            active_at=NOW,
            stopped_at=NOW + timedelta(seconds=number),
            end_reason=EndReason.STOPPED,
        )
    await add(store, "live", user="ada")
    found = await store.read(lambda tx: tx.find(user="ada", server=None, live=False, limit=3))
    assert [lease.id for lease in found] == ["live", "l3", "l2"]
    found = await store.read(lambda tx: tx.find(user=None, server="", live=True, limit=3))
    assert [lease.id for lease in found] == ["live"]
    rows = await store.read(lambda tx: tx.durations(NOW + timedelta(seconds=2), 10))
    assert [(stopped - active).total_seconds() for _, active, stopped in rows] == [3.0, 2.0]


async def test_the_migrations_make_exactly_the_schema(url: str, store: Store) -> None:
    engine = connect(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()
