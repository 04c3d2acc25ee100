"""The table `notices`: what running sessions are told, and when some of them are to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allotment_spawner.core.lease import LIVE
from sqlalchemy import Connection, func, insert, select, update

from allotment_hub.broker.store.schema import leases, notices

__all__ = ["Notice", "add", "announced_stops", "of_lease", "stops_by", "told_by", "withdraw_stops"]

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Notice:
    """One row; times are aware UTC. With `stop_at` it announces the end of its session."""

    id: str
    lease: str
    level: str
    sentence: str
    next_step: str
    made_by: str
    made_at: datetime
    stop_at: datetime | None = None


def add(connection: Connection, found: Sequence[Notice]) -> None:
    """Write these; their leases must exist."""
    if found:
        connection.execute(insert(notices), [_values(notice) for notice in found])


def of_lease(connection: Connection, lease_id: str) -> list[Notice]:
    """What is still to be shown, oldest first; of very many the newest."""
    query = (
        select(notices)
        .where(notices.c.lease == lease_id, notices.c.withdrawn_at.is_(None))
        .order_by(notices.c.seq.desc())
        .limit(_SHOWN)
    )
    return [_notice(row) for row in reversed(connection.execute(query).mappings().all())]


def announced_stops(connection: Connection, lease_id: str | None = None) -> list[Notice]:
    """Of every live lease, or of this one, what announces its end; however much else was said since."""
    query = (
        select(notices)
        .join(leases, leases.c.id == notices.c.lease)
        .where(
            notices.c.stop_at.is_not(None),
            notices.c.withdrawn_at.is_(None),
            leases.c.state.in_([state.value for state in LIVE]),
        )
        .order_by(notices.c.seq)
    )
    if lease_id is not None:
        query = query.where(notices.c.lease == lease_id)
    return [_notice(row) for row in connection.execute(query).mappings()]


def stops_by(connection: Connection, lease_id: str, made_by: str) -> int:
    """How often they announced the end of this session, what they took back included."""
    query = select(func.count()).where(
        notices.c.lease == lease_id, notices.c.made_by == made_by, notices.c.stop_at.is_not(None)
    )
    return int(connection.execute(query).scalar_one())


def told_by(connection: Connection, prefix: str) -> list[tuple[str, str]]:
    """(person, made_by) of what was said by whoever begins with this, withdrawn or not."""
    query = (
        select(leases.c.user, notices.c.made_by)
        .join(leases, leases.c.id == notices.c.lease)
        .where(notices.c.made_by.startswith(prefix, autoescape=True))
        .distinct()
    )
    return [(row[0], row[1]) for row in connection.execute(query)]


def withdraw_stops(
    connection: Connection, lease_id: str, *, made_by: str | None, now: datetime
) -> list[Notice]:
    """Take back the announced ends of a session, those of `made_by` only unless None; returns them."""
    conditions = [
        notices.c.lease == lease_id,
        notices.c.stop_at.is_not(None),
        notices.c.withdrawn_at.is_(None),
    ]
    if made_by is not None:
        conditions.append(notices.c.made_by == made_by)
    rows = connection.execute(select(notices).where(*conditions).order_by(notices.c.seq)).mappings().all()
    connection.execute(update(notices).where(*conditions).values(withdrawn_at=now))
    return [_notice(row) for row in rows]


def _values(notice: Notice) -> dict[str, Any]:
    return {name: getattr(notice, name) for name in Notice.__slots__}


def _notice(row: Any) -> Notice:
    return Notice(**{name: row[name] for name in Notice.__slots__})
