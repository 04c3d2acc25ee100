"""The table of datasets: the registry, and what the cache holds of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from allotment_hub.broker.store.schema import datasets

__all__ = ["ABSENT", "FAILED", "FETCHING", "READY", "Dataset", "change", "put", "read", "remove"]

ABSENT: Final = "absent"
FETCHING: Final = "fetching"
READY: Final = "ready"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class Dataset:
    """One row. `checksum` was given, `content` is what the first fetch found: both must be found again.

    `size_bytes` was told, `cached_bytes` and `files` are what lies in the cache. `problem` is a failed
    fetch's refusal {"code", "sentence", "next_step"}. `groups` None: everybody.
    """

    name: str
    title: str
    description: str
    source: str
    licence: str
    checksum: str | None
    unpack: bool
    size_bytes: int | None
    groups: tuple[str, ...] | None
    pinned: bool
    state: str
    added_by: str
    added_at: datetime
    problem: dict[str, str] | None = None
    content: str | None = None
    cached_bytes: int | None = None
    files: int | None = None
    cached_at: datetime | None = None
    used_at: datetime | None = None


def read(connection: Connection) -> list[Dataset]:
    """All rows by name."""
    rows = connection.execute(select(datasets).order_by(datasets.c.name)).mappings()
    return [_record(row) for row in rows]


def put(connection: Connection, one: Dataset) -> None:
    """Insert it, or replace the one of this name."""
    remove(connection, one.name)
    values = {name: getattr(one, name) for name in Dataset.__slots__}
    connection.execute(insert(datasets).values(**_plain(values)))


def change(connection: Connection, name: str, **values: Any) -> None:
    """Write these columns; a dataset that is gone meanwhile is no error."""
    connection.execute(update(datasets).where(datasets.c.name == name).values(**_plain(values)))


def remove(connection: Connection, name: str) -> None:
    connection.execute(delete(datasets).where(datasets.c.name == name))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    plain = dict(values)
    for name in ("unpack", "pinned"):
        if name in plain:
            plain[name] = int(plain[name])
    if plain.get("groups") is not None:
        plain["groups"] = list(plain["groups"])
    return plain


def _record(row: Mapping[Any, Any]) -> Dataset:
    values = dict(row)
    groups = values["groups"]
    values |= {"unpack": bool(values["unpack"]), "pinned": bool(values["pinned"])}
    values["groups"] = None if groups is None else tuple(groups)
    return Dataset(**values)
