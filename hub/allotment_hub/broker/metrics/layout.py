"""The file's tables and keys, how it is opened, and what is done with one that cannot be read."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

__all__ = [
    "HOURS",
    "MINUTES",
    "RAW_BLOCK_S",
    "Level",
    "Shelf",
    "forget_log",
    "is_broken",
    "key_of",
    "number_of",
    "open_file",
    "set_aside",
    "subject_of",
]

_log = logging.getLogger(__name__)
_VERSION: Final = 1
_APPLICATION: Final = 0x416C6C6D
_SUBJECT_BITS: Final = 32
_SHELF_AT: Final = 60
_CORRUPT: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Shelf(IntEnum):
    """The upper part of a key: what kind of row it is."""

    RAW = 0
    MINUTES = 1
    HOURS = 2
    FRESH_MINUTES = 3
    FRESH_HOURS = 4


@dataclass(frozen=True, slots=True)
class Level:
    """A row every `step_s` seconds, packed `block_s` together on its shelf; those of the block that is not
    over yet stand one by one on the shelf `fresh`."""

    name: str
    step_s: int
    block_s: int
    shelf: Shelf
    fresh: Shelf

    @property
    def per_block(self) -> int:
        """Rows."""
        return self.block_s // self.step_s


RAW_BLOCK_S: Final = 60
"""Samples are packed when their minute is over; until then rounds stand whole in `rounds`."""
MINUTES: Final = Level("minute", 60, 3600, Shelf.MINUTES, Shelf.FRESH_MINUTES)
HOURS: Final = Level("hour", 3600, 86400, Shelf.HOURS, Shelf.FRESH_HOURS)

_TABLES: Final = """
CREATE TABLE subjects (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (kind, name));
CREATE TABLE rounds (at INTEGER PRIMARY KEY, each INTEGER NOT NULL, rows BLOB NOT NULL);
CREATE TABLE blocks (key INTEGER PRIMARY KEY, packed BLOB NOT NULL);
CREATE TABLE totals (
    subject INTEGER PRIMARY KEY, from_s INTEGER NOT NULL, to_s INTEGER NOT NULL, cells TEXT NOT NULL);
"""


def key_of(shelf: Shelf, number: int, subject: int = 0) -> int:
    """The key of block (or fresh row) `number` since 1970 of this subject. On each shelf in the order of
    time: what is old is a range of keys, and no index is needed."""
    return (shelf << _SHELF_AT) + (number << _SUBJECT_BITS) + subject


def number_of(key: int) -> int:
    return (key & (1 << _SHELF_AT) - 1) >> _SUBJECT_BITS


def subject_of(key: int) -> int:
    return key & (1 << _SUBJECT_BITS) - 1


def open_file(path: Path) -> sqlite3.Connection:
    """The file, made if it is not there. sqlite3.DatabaseError when it cannot be used; see `is_broken`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # before SQLite makes its files beside it: they get the same rights
    path.touch(mode=0o600)
    path.chmod(0o600)
    connection = sqlite3.connect(path, isolation_level=None, timeout=5.0, check_same_thread=False)
    try:
        # a page holds several blocks; a start that was killed has made all of the tables or none
        connection.execute("PRAGMA page_size = 16384")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        _make(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _make(connection: sqlite3.Connection) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, _VERSION):
        raise sqlite3.DatabaseError(f"version {version} of the file is not known")
    if version == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {_APPLICATION};"
            f"PRAGMA user_version = {_VERSION}; COMMIT;"
        )
    connection.execute("SELECT count(*) FROM totals WHERE subject < 0").fetchone()


def is_broken(error: sqlite3.Error) -> bool:
    """Whether the file itself is no good, rather than a full disk, another writer, or our mistake."""
    if isinstance(error, sqlite3.OperationalError):
        code = getattr(error, "sqlite_errorcode", None)
        return "no such" in str(error) or "already exists" in str(error) or code in _CORRUPT
    return type(error) is sqlite3.DatabaseError


def forget_log(path: Path) -> None:
    """What lies beside a file that is not there any more; SQLite would write it into the next one."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Move a file that cannot be read out of the way; the one before it is given up."""
    aside = path.with_name(f"{path.name}.broken")
    path.replace(aside)
    forget_log(path)
    _log.error("the file of samples cannot be read; it was set aside and a new one begun: %s", aside)
    return aside
