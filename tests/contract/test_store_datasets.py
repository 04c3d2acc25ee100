"""The table of datasets on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from allotment_hub.broker.store import datasets as table
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.datasets import Dataset
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_testing.postgres import PostgresCluster, postgres_cluster

NOW = datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC)
IRIS = Dataset(
    name="iris",
    title="Iris \N{CHERRY BLOSSOM}",
    description="",
    source="https://data.example/iris?x=%00",
    licence="CC0",
    checksum="0" * 64,
    unpack=True,
    size_bytes=2**50,
    groups=("teachers", "staff"),
    pinned=False,
    state=table.ABSENT,
    added_by="admin",
    added_at=NOW,
)


def put(row: Dataset, tx: Transaction) -> None:
    table.put(tx.connection, row)


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_rows_come_back_as_they_were_put(kind: str, tmp_path: Path, cluster: PostgresCluster) -> None:
    url = sqlite_url(tmp_path / "broker.sqlite") if kind == "sqlite" else cluster.database()
    store = Store(url=url)
    await store.open()
    try:
        wine = replace(IRIS, name="a-wine", groups=None, unpack=False, pinned=True, checksum=None)
        for row in (IRIS, wine):
            await store.write("put", partial(put, row))
        assert await store.read(lambda tx: table.read(tx.connection)) == [wine, IRIS]
        problem = {"code": "disk_full", "sentence": "No.", "next_step": "Later."}
        await store.write(
            "change",
            lambda tx: table.change(tx.connection, "iris", state=table.FAILED, problem=problem, pinned=True),
        )
        await store.write("nobody", lambda tx: table.change(tx.connection, "never-was", pinned=True))
        changed = replace(IRIS, state=table.FAILED, problem=problem, pinned=True)
        assert await store.read(lambda tx: table.read(tx.connection)) == [wine, changed]
        await store.write("clear", lambda tx: table.change(tx.connection, "iris", problem=None))
        await store.write("again", partial(put, IRIS))
        await store.write("remove", lambda tx: table.remove(tx.connection, "a-wine"))
        assert await store.read(lambda tx: table.read(tx.connection)) == [IRIS]
    finally:
        await store.close()
