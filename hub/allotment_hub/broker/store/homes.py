"""The table `homes`: how full each home was when it was last measured, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sqlalchemy import Connection, insert, select, update

from allotment_hub.broker.store.schema import homes

__all__ = ["HomeRow", "HomeState", "find_home", "list_homes", "put_home"]

HomeState = Literal["live", "archived", "erased"]


@dataclass(frozen=True, slots=True)
class HomeRow:
    """`used_bytes` and `files` None: unknown. `note`: why, or that it is only a lower bound."""

    user: str
    state: HomeState = "live"
    used_bytes: int | None = None
    files: int | None = None
    limit_bytes: int | None = None
    enforced: bool = False
    measured_at: datetime | None = None
    note: str | None = None


def find_home(connection: Connection, user: str) -> HomeRow | None:
    row = connection.execute(select(homes).where(homes.c.user == user)).mappings().first()
    return None if row is None else _row(dict(row))


def list_homes(connection: Connection, limit: int) -> Sequence[HomeRow]:
    """The fullest first."""
    query = select(homes).order_by(homes.c.used_bytes.is_(None), homes.c.used_bytes.desc(), homes.c.user)
    return [_row(dict(row)) for row in connection.execute(query.limit(limit)).mappings()]


def put_home(connection: Connection, row: HomeRow) -> None:
    """Write the whole row, new or not."""
    values = {name: getattr(row, name) for name in HomeRow.__slots__} | {"enforced": int(row.enforced)}
    done = connection.execute(update(homes).where(homes.c.user == row.user).values(**values))
    if done.rowcount == 0:
        connection.execute(insert(homes).values(**values))


def _row(values: dict[str, Any]) -> HomeRow:
    # a word that a newer version wrote is no reason to refuse everybody's page
    state = values["state"] if values["state"] in get_args(HomeState) else "live"
    return HomeRow(**{**values, "state": state, "enforced": bool(values["enforced"])})
