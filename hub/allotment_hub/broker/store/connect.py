"""Database engines with the settings that durability and exclusion need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import StaticPool

__all__ = ["connect", "sqlite_path", "sqlite_url"]

_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    "busy_timeout=10000",
    "recursive_triggers=ON",  # else REPLACE removes a row behind the triggers that refuse that
)


def sqlite_url(path: Path) -> str:
    return f"sqlite+pysqlite:///{path}"


def sqlite_path(url: str) -> Path | None:
    """The file behind a SQLite URL; None for PostgreSQL and in-memory databases."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    return Path(parsed.database)


def connect(url: str) -> Engine:
    """One connection, because one thread does all the work.

    SQLite: WAL, synchronous=FULL (a grant survives a power cut), BEGIN IMMEDIATE (no upgrade deadlock
    with another process), foreign keys, 10 s of waiting for a lock. PostgreSQL: psycopg, serializable.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        parsed = parsed.set(drivername="postgresql+psycopg")
        return create_engine(
            parsed, pool_size=1, max_overflow=0, pool_pre_ping=True, isolation_level="SERIALIZABLE"
        )
    engine = create_engine(parsed, poolclass=StaticPool, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, so DDL is transactional too
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
