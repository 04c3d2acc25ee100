"""The table `saved_environments`: packages that a person installed and wants others to have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select, update

from allotment_hub.broker.store.schema import saved_environments

__all__ = [
    "APPROVED",
    "ASKED",
    "REFUSED",
    "SavedRow",
    "drop_saved",
    "find_saved",
    "list_saved",
    "put_saved",
    "waiting_of",
]

ASKED: Final = "asked"
APPROVED: Final = "approved"
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class SavedRow:
    """`requirements` is JSON: a list of {name, version, link, hashes}. `base_digest`: its image."""

    name: str
    title: str
    owner: str
    base: str
    base_digest: str
    requirements: str
    state: str
    note: str | None
    asked_at: datetime
    decided_at: datetime | None = None
    decided_by: str | None = None

    @property
    def packages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.requirements)
        return found

    @property
    def checksum(self) -> str:
        """sha256 of what would be built and how it is called: what an operator looked at is approved."""
        built = json.dumps([self.name, self.title, self.base, self.base_digest, self.requirements])
        return hashlib.sha256(built.encode()).hexdigest()


def find_saved(connection: Connection, name: str) -> SavedRow | None:
    query = select(saved_environments).where(saved_environments.c.name == name)
    row = connection.execute(query).mappings().first()
    return None if row is None else SavedRow(**row)


def list_saved(connection: Connection, limit: int) -> Sequence[SavedRow]:
    """By name."""
    query = select(saved_environments).order_by(saved_environments.c.name).limit(limit)
    return [SavedRow(**row) for row in connection.execute(query).mappings()]


def put_saved(connection: Connection, row: SavedRow) -> None:
    """Write the whole row, new or not."""
    values = {name: getattr(row, name) for name in SavedRow.__slots__}
    change = update(saved_environments).where(saved_environments.c.name == row.name).values(**values)
    if connection.execute(change).rowcount == 0:
        connection.execute(insert(saved_environments).values(**values))


def drop_saved(connection: Connection, name: str) -> None:
    connection.execute(delete(saved_environments).where(saved_environments.c.name == name))


def waiting_of(connection: Connection, owner: str) -> int:
    """How many of this person's no operator has approved."""
    query = select(func.count()).where(
        saved_environments.c.owner == owner, saved_environments.c.state != APPROVED
    )
    return int(connection.execute(query).scalar_one())
