"""The ledger's entries as reports read them, and which groups' budgets somebody minds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, select

from allotment_hub.broker.store.ledger import Entry
from allotment_hub.broker.store.schema import budgets, entries

__all__ = ["CHUNK", "Wanted", "entries_of", "groups_minded", "wanted_seqs"]

CHUNK: Final = 1000
"""Entries that are read at a time: the one thread that owns the database is soon free again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Entries that begin in [since, until); `owner` and `charged_to` None: anybody's."""

    since: datetime
    until: datetime
    owner: str | None = None
    charged_to: str | None = None


def wanted_seqs(connection: Connection, wanted: Wanted) -> list[int]:
    """Their numbers, in the order in which they were written. No sum is ever made here: money is text."""
    conditions: list[Any] = [entries.c.from_at >= wanted.since, entries.c.from_at < wanted.until]
    if wanted.owner is not None:
        conditions.append(entries.c.owner == wanted.owner)
    if wanted.charged_to is not None:
        conditions.append(entries.c.charged_to == wanted.charged_to)
    # sorted here: asked for in order, SQLite reads the whole table instead of the index of the times
    return sorted(connection.execute(select(entries.c.seq).where(*conditions)).scalars())


def entries_of(connection: Connection, seqs: Sequence[int]) -> list[Entry]:
    """At most `CHUNK` of them, in order."""
    query = select(entries).where(entries.c.seq.in_(seqs)).order_by(entries.c.seq)
    return [Entry(**row) for row in connection.execute(query).mappings()]


def groups_minded(connection: Connection, person: str) -> list[str]:
    """Groups that have an open budget whose named owner this person is, by name."""
    query = select(budgets.c.name).where(
        budgets.c.scope == "group", budgets.c.owner == person, budgets.c.closed_at.is_(None)
    )
    return sorted(set(connection.execute(query).scalars()))
