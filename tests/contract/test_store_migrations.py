"""A filled database of the first version becomes this version's, with a copy of it kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.store import notices
from allotment_hub.broker.store.connect import connect, sqlite_path, sqlite_url
from allotment_hub.broker.store.migrate import NewerDatabase, current_revision, known_revisions, migrate
from allotment_hub.broker.store.notices import Notice
from allotment_hub.broker.store.schema import REVISION
from allotment_hub.broker.store.store import Store
from allotment_spawner.core.lease import LeaseState
from allotment_testing.crashes import Crash
from allotment_testing.postgres import PostgresCluster, postgres_cluster
from sqlalchemy import MetaData, select, text

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

LAST = "0004"
"""The revision before this version's."""
MORE = """;
INSERT INTO leases (id, kind, queue_class, "user", server, environment, flavor, state, attempt,
 price_per_hour, created_at, ended_at, end_reason, refusal, pools, rates, launch)
 VALUES ('over', 'session', 'interactive', 'ben', 'x', 'minimal', 'cpu', 'ended', 'k2',
 '0', '2026-01-01 08:00:00', '2026-01-01 09:00:00', 'refused', '{"code"\\: "x"}', '["mig"]', '[]', '{}');
INSERT INTO cuts (gpu_uuid, start, profile, boot_id, made_at)
 VALUES ('GPU-1', 2, '1g.10gb', 'boot', '2026-01-01 08:00:00');
INSERT INTO outages (what, began_at) VALUES ('engine', '2026-01-01 08:00:00');
INSERT INTO images (digest, environment, reference, label, title, description, packages, requires, added_at,
 state) VALUES ('sha256\\:1', 'minimal', 'r', 'l', 't', 'd', '[]', '{}', '2026-01-01 08:00:00', 'offered');
INSERT INTO datasets (name, title, description, source, licence, state, added_by, added_at)
 VALUES ('mnist', 't', 'd', 's', 'l', 'known', 'root', '2026-01-01 08:00:00');
INSERT INTO notices (id, lease, level, sentence, next_step, made_by, made_at)
 VALUES ('n0', 'old', 'info', 'Hi.', '', 'root', '2026-01-01 08:00:00');
INSERT INTO homes ("user", state, used_bytes) VALUES ('ada', 'live', 12345678901);
INSERT INTO saved_environments (name, title, owner, base, base_digest, requirements, state, asked_at)
 VALUES ('s', 't', 'ada', 'minimal', 'sha256\\:1', '[]', 'asked', '2026-01-01 08:00:00')
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "broker.sqlite")
    running: PostgresCluster = request.getfixturevalue("cluster")
    return running.database()


def fill(url: str, revision: str, statements: str) -> None:
    engine = connect(url)
    migrate(engine, sqlite_file=sqlite_path(url), target=revision)
    assert current_revision(engine) == revision
    with engine.begin() as connection:
        for statement in statements.split(";"):
            connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def old_url(empty_url: str) -> str:
    """A database of revision 0001 with one running session."""
    fill(empty_url, FIRST, FILL)
    return empty_url


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


def all_rows(url: str) -> dict[str, list[dict[str, Any]]]:
    """Of every table, as the database has it."""
    engine, found = connect(url), MetaData()
    found.reflect(engine)
    with engine.connect() as connection:
        rows = {
            table.name: [dict(row) for row in connection.execute(select(table)).mappings()]
            for table in found.sorted_tables
        }
    engine.dispose()
    return rows


async def test_from_the_last_revision_no_row_is_lost_and_old_leases_take_what_is_new(empty_url: str) -> None:
    fill(empty_url, LAST, FILL + MORE)
    before = all_rows(empty_url)
    assert all(rows for rows in before.values()), "every table has something to lose"
    store = Store(url=empty_url)
    await store.open()
    after = all_rows(empty_url)
    for table, rows in before.items():
        if table != "alembic_version":
            assert [{key: row[key] for key in rows[0]} for row in after[table]] == rows
    assert {row["wants"] for row in after["leases"]} == {None}
    notice = Notice("n", "old", "info", "Hello.", "", "root", datetime(2026, 1, 2, tzinfo=UTC))
    await store.write("tell", lambda tx: notices.add(tx.connection, [notice]))
    assert (await store.read(lambda tx: notices.of_lease(tx.connection, "old")))[1:] == [notice]
    ended = await store.read(lambda tx: tx.lease("over"))
    assert ended is not None
    assert (ended.state, ended.refusal, ended.wants) == (LeaseState.ENDED, {"code": "x"}, None)
    await store.close()


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
