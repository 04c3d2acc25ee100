"""Bring a database to this version's schema, with a copy of the SQLite file first."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

__all__ = ["NewerDatabase", "current_revision", "head_revision", "migrate"]


class NewerDatabase(Exception):
    """The database was written by a newer version; the sentence says what to do."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


@lru_cache(maxsize=1)
def _revisions() -> tuple[str, ...]:
    """All revisions that this version knows, newest first."""
    return tuple(found.revision for found in ScriptDirectory.from_config(_config()).walk_revisions())


def head_revision() -> str:
    return _revisions()[0]


def current_revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def migrate(
    engine: Engine,
    *,
    sqlite_file: Path | None,
    target: str = "head",
    on_step: Callable[[str], None] = lambda _step: None,
) -> Path | None:
    """Upgrade in one transaction; returns the backup's path when one was made.

    A crash anywhere leaves the old schema or the new one, never half of it.
    """
    current = current_revision(engine)
    if current is not None and current not in _revisions():
        raise NewerDatabase(
            f"The broker's database has revision {current}, which this version does not know. "
            "Install the version that wrote it, or put back the copy that lies beside it."
        )
    wanted = head_revision() if target == "head" else target
    if current == wanted:
        return None
    backup = _back_up(sqlite_file, current) if sqlite_file is not None and current is not None else None
    on_step("migrate.backed_up")
    config = _config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, wanted)
        on_step("migrate.upgraded")
    return backup


def _back_up(source: Path, revision: str) -> Path:
    """A consistent copy (WAL included) named after the revision it holds; written aside, then renamed."""
    target = source.with_name(f"{source.name}.before-{revision}-was-migrated")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with sqlite3.connect(source) as old, sqlite3.connect(partial) as new:
        old.backup(new)
    old.close()
    new.close()
    partial.replace(target)
    return target
