"""Bring a database to this version's schema, with a copy of the SQLite file first."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, inspect, text

from allotment_hub.broker.store.schema import REVISION

__all__ = ["NewerDatabase", "current_revision", "known_revisions", "migrate"]

_MIGRATIONS = Path(__file__).parent / "migrations"


class NewerDatabase(Exception):
    """The database was written by a newer version; the sentence says what to do."""


def known_revisions() -> tuple[str, ...]:
    """All revisions that this version knows, newest first."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - 0.1 s, not needed at most starts

    return tuple(found.revision for found in ScriptDirectory(str(_MIGRATIONS)).walk_revisions())


def current_revision(engine: Engine) -> str | None:
    """None for an empty database."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if found is None else str(found)


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
    wanted = REVISION if target == "head" else target
    if current == wanted:
        return None
    if current is not None and current not in known_revisions():
        raise NewerDatabase(
            f"The broker's database has revision {current}, which this version does not know. "
            "Install the version that wrote it, or put back the copy that lies beside it."
        )
    backup = _back_up(sqlite_file, current) if sqlite_file is not None and current is not None else None
    on_step("migrate.backed_up")
    _upgrade(engine, wanted, on_step)
    return backup


def _upgrade(engine: Engine, wanted: str, on_step: Callable[[str], None]) -> None:
    from alembic import command  # noqa: PLC0415 - 0.1 s, not needed at most starts
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, wanted)
        on_step("migrate.upgraded")


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
