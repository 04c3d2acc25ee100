"""The table `entries`: money, written once. Amounts and seconds are exact decimals, never summed by SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import Connection, func, insert, select

from allotment_hub.broker.store.schema import entries

__all__ = [
    "Entry",
    "EntryKind",
    "add_entry",
    "entries_from",
    "entries_of_lease",
    "entries_of_leases",
    "entries_referring_to",
    "entry_by_key",
    "find_entry",
    "last_from_at",
    "new_id",
    "storage_owners",
]

EntryKind = Literal["usage", "storage", "refund", "correction"]
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """One row. `key` says what it is for, once: the database refuses a second one. A refund is below 0, and
    so are its seconds. `gpu_seconds`: seconds times the share of whole GPUs."""

    id: str
    key: str
    kind: EntryKind
    owner: str
    from_at: datetime
    to_at: datetime
    seconds: Decimal
    gpu_seconds: Decimal
    amount: Decimal
    currency: str
    reason: str
    made_by: str
    made_at: datetime
    charged_to: str | None = None
    lease: str | None = None
    volume: str | None = None
    flavor: str | None = None
    environment: str | None = None
    queue_class: str | None = None
    refers_to: str | None = None
    seq: int = 0
    """Given by the database, growing."""


_NAMES = tuple(field.name for field in fields(Entry))


def new_id() -> str:
    return uuid4().hex


def add_entry(connection: Connection, entry: Entry) -> Entry:
    """Write it; returns it with its number. `IntegrityError` where its key is there."""
    values = {name: getattr(entry, name) for name in _NAMES if name != "seq"}
    connection.execute(insert(entries).values(**values))
    found = find_entry(connection, entry.id)
    assert found is not None, "an entry that was just written"
    return found


def find_entry(connection: Connection, entry_id: str) -> Entry | None:
    return _one(connection, entries.c.id == entry_id)


def entry_by_key(connection: Connection, key: str) -> Entry | None:
    return _one(connection, entries.c.key == key)


def entries_of_lease(connection: Connection, lease_id: str) -> list[Entry]:
    return _many(connection, entries.c.lease == lease_id)


def entries_referring_to(connection: Connection, entry_id: str) -> list[Entry]:
    """It, and what corrects or gives back of it."""
    return _many(connection, (entries.c.id == entry_id) | (entries.c.refers_to == entry_id))


def entries_of_leases(connection: Connection, ids: Sequence[str]) -> list[Entry]:
    found: list[Entry] = []
    for first in range(0, len(ids), _CHUNK):
        found += _many(connection, entries.c.lease.in_(ids[first : first + _CHUNK]))
    return found


def entries_from(connection: Connection, since: datetime | None = None) -> list[Entry]:
    """All that begin at `since` or later, in the order in which they were made."""
    return _many(connection, *(() if since is None else (entries.c.from_at >= since,)))


def last_from_at(connection: Connection, kind: EntryKind, until: datetime) -> datetime | None:
    """When the last one of this kind begins that has begun by then."""
    found: datetime | None = connection.execute(
        select(func.max(entries.c.from_at)).where(entries.c.kind == kind, entries.c.from_at <= until)
    ).scalar()
    return found


def storage_owners(connection: Connection, from_at: datetime) -> set[str]:
    """Who has an entry of storage that begins then."""
    query = select(entries.c.owner).where(entries.c.kind == "storage", entries.c.from_at == from_at)
    return set(connection.execute(query).scalars())


def _one(connection: Connection, condition: Any) -> Entry | None:
    row = connection.execute(select(entries).where(condition)).mappings().first()
    return None if row is None else _entry(row)


def _many(connection: Connection, *conditions: Any) -> list[Entry]:
    query = select(entries).where(*conditions).order_by(entries.c.seq)
    return [_entry(row) for row in connection.execute(query).mappings()]


def _entry(row: Mapping[Any, Any]) -> Entry:
    return Entry(**{name: row[name] for name in _NAMES})
