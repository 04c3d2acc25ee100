"""A filled database of the first version becomes this version's, with a copy of it kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from allotment_hub.broker.store.connect import connect, sqlite_path, sqlite_url
from allotment_hub.broker.store.migrate import NewerDatabase, current_revision, known_revisions, migrate
from allotment_hub.broker.store.schema import REVISION
from allotment_hub.broker.store.store import Store
from allotment_spawner.core.lease import LeaseState
from allotment_testing.crashes import Crash
from allotment_testing.postgres import PostgresCluster, postgres_cluster
from sqlalchemy import text

FIRST = "0001"
FILL = """
INSERT INTO leases (id, kind, queue_class, "user", server, environment, flavor, state, attempt,
 price_per_hour, created_at, granted_at) VALUES ('old', 'session', 'interactive', 'ada', '', 'minimal',
 'gpu-10gb', 'active', 'k', '0.40', '2026-01-01 08:00:00.000001', '2026-01-01 08:00:01');
INSERT INTO devices (lease, ordinal, gpu_uuid, node, profile, start, size, uuid)
 VALUES ('old', 0, 'GPU-1', 'n', '1g.10gb', 2, 1, 'MIG-1');
INSERT INTO slots (gpu_uuid, slot, lease) VALUES ('GPU-1', '2', 'old');
INSERT INTO attempts (key, lease, body_hash, made_at) VALUES ('k', 'old', 'h', '2026-01-01 08:00:00')
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def old_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of revision 0001 with one running session."""
    if request.param == "sqlite":
        url = sqlite_url(tmp_path / "broker.sqlite")
    else:
        running: PostgresCluster = request.getfixturevalue("cluster")
        url = running.database()
    engine = connect(url)
    migrate(engine, sqlite_file=sqlite_path(url), target=FIRST)
    assert current_revision(engine) == FIRST
    with engine.begin() as connection:
        for statement in FILL.split(";"):
            connection.execute(text(statement))
    engine.dispose()
    return url


async def test_an_old_database_is_upgraded_and_keeps_everything(old_url: str) -> None:
    store = Store(url=old_url)
    backup = await store.open()
    lease = await store.read(lambda tx: tx.lease("old"))
    assert lease is not None
    assert lease.state is LeaseState.ACTIVE
    assert [(device.uuid, device.media) for device in lease.devices] == [("MIG-1", False)]
    assert lease.pools is None
    assert await store.read(lambda tx: tx.slot_rows()) == [("GPU-1", "2", "old")]
    await store.close()
    if sqlite_path(old_url) is None:
        assert backup is None
        return
    assert backup is not None
    assert backup.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (FIRST,)
        assert copy.execute("SELECT count(*) FROM leases").fetchone() == (1,)
    again = Store(url=old_url)
    assert await again.open() is None, "nothing to do, so no second copy"
    await again.close()


@pytest.mark.parametrize("step", ["migrate.backed_up", "migrate.upgraded"])
def test_a_death_in_between_leaves_the_old_or_the_new(old_url: str, step: str) -> None:
    def die(at: str) -> None:
        if at == step:
            raise Crash(at)

    engine = connect(old_url)
    with pytest.raises(Crash):
        migrate(engine, sqlite_file=sqlite_path(old_url), on_step=die)
    assert current_revision(engine) == FIRST
    migrate(engine, sqlite_file=sqlite_path(old_url))
    assert current_revision(engine) == REVISION
    engine.dispose()


def test_a_newer_database_is_refused_with_what_to_do(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "broker.sqlite")
    engine = connect(url)
    migrate(engine, sqlite_file=sqlite_path(url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerDatabase, match="9999"):
        migrate(engine, sqlite_file=sqlite_path(url))
    engine.dispose()


def test_sqlite_is_durable_and_checks_foreign_keys(tmp_path: Path) -> None:
    engine = connect(sqlite_url(tmp_path / "broker.sqlite"))
    with engine.connect() as connection:
        settings = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10000}
    engine.dispose()


def test_the_schema_names_the_newest_revision() -> None:
    assert known_revisions()[0] == REVISION
