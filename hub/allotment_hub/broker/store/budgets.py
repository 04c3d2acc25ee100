"""The tables `budgets` and `budget_changes`, and what the entries say was used of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from allotment_hub.accounting.budgeting import Period, Terms, Unit
from allotment_hub.broker.store.schema import budget_changes, budgets, entries

__all__ = [
    "Budget",
    "Change",
    "Kind",
    "NameInUse",
    "Scope",
    "Used",
    "add_budget",
    "add_changes",
    "changes_of",
    "find_budget",
    "find_change",
    "last_entry",
    "open_budgets",
    "period_changes",
    "set_budget",
    "used_since",
]

Scope = Literal["user", "group"]
Kind = Literal["set", "change", "transfer", "close"]


class NameInUse(Exception):
    """There is an open budget of this scope, name, unit and period."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One row; the days are of the books' zone, the last one belongs to it."""

    id: str
    scope: Scope
    name: str
    unit: Unit
    amount: Decimal
    period: Period
    starts_on: date | None
    ends_on: date | None
    hard: bool
    owner: str | None
    note: str
    made_by: str
    made_at: datetime
    closed_at: datetime | None = None

    @property
    def terms(self) -> Terms:
        return Terms(self.period, self.starts_on, self.ends_on)


@dataclass(frozen=True, slots=True)
class Change:
    """One row, written once. `amount` of a `set` is the new amount of each period; of the others what is
    added to the period that began at `period_from`. `other` is the second budget of a transfer."""

    id: str
    budget: str
    period_from: datetime | None
    kind: Kind
    amount: Decimal
    other: str | None
    reason: str
    made_by: str
    made_at: datetime


@dataclass(frozen=True, slots=True)
class Used:
    """What one entry used."""

    from_at: datetime
    amount: Decimal
    currency: str
    gpu_seconds: Decimal


def add_budget(connection: Connection, budget: Budget) -> None:
    """Raises `NameInUse`, also when two do it at once: the database refuses the second."""
    try:
        with connection.begin_nested():
            connection.execute(insert(budgets).values(**_values(budget)))
    except IntegrityError:
        raise NameInUse from None


def set_budget(connection: Connection, budget: Budget) -> None:
    """Write what may change of a budget: amount, days, hard, owner, note, and that it is closed."""
    values = _values(budget)
    for fixed in ("id", "scope", "name", "unit", "period", "made_by", "made_at"):
        del values[fixed]
    connection.execute(update(budgets).where(budgets.c.id == budget.id).values(**values))


def find_budget(connection: Connection, budget_id: str) -> Budget | None:
    row = connection.execute(select(budgets).where(budgets.c.id == budget_id)).mappings().first()
    return None if row is None else _budget(dict(row))


def open_budgets(connection: Connection) -> list[Budget]:
    """By scope and name."""
    query = (
        select(budgets)
        .where(budgets.c.closed_at.is_(None))
        .order_by(budgets.c.scope, budgets.c.name, budgets.c.unit, budgets.c.period)
    )
    return [_budget(dict(row)) for row in connection.execute(query).mappings()]


def add_changes(connection: Connection, made: Iterable[Change]) -> None:
    for change in made:
        values = {name: getattr(change, name) for name in Change.__slots__}
        connection.execute(insert(budget_changes).values(**values))


def find_change(connection: Connection, change_id: str) -> Change | None:
    query = _changes().where(budget_changes.c.id == change_id)
    row = connection.execute(query).mappings().first()
    return None if row is None else Change(**row)


def changes_of(connection: Connection, budget_id: str, limit: int) -> list[Change]:
    """Newest first."""
    query = _changes().where(budget_changes.c.budget == budget_id)
    found = connection.execute(query.order_by(budget_changes.c.seq.desc()).limit(limit)).mappings()
    return [Change(**row) for row in found]


def period_changes(connection: Connection, ids: Sequence[str]) -> list[Change]:
    """Of these budgets what was added to or taken from single periods, the oldest first."""
    found: list[Change] = []
    for first in range(0, len(ids), 500):
        query = _changes().where(
            budget_changes.c.budget.in_(ids[first : first + 500]),
            budget_changes.c.kind.in_(("change", "transfer")),
        )
        found += [
            Change(**row) for row in connection.execute(query.order_by(budget_changes.c.seq)).mappings()
        ]
    return found


def last_entry(connection: Connection) -> int:
    """The number of the newest one; 0 where there is none."""
    return int(connection.execute(select(func.coalesce(func.max(entries.c.seq), 0))).scalar_one())


def used_since(connection: Connection, scope: Scope, name: str, since: datetime) -> list[Used]:
    """What a person's own entries, or those charged to a group, used from then on."""
    whose = entries.c.owner if scope == "user" else entries.c.charged_to
    columns = (entries.c[name] for name in Used.__slots__)
    query = select(*columns).where(whose == name, entries.c.from_at >= since)
    return [Used(**row) for row in connection.execute(query).mappings()]


def _changes() -> Any:
    return select(*(budget_changes.c[name] for name in Change.__slots__))


def _values(budget: Budget) -> dict[str, Any]:
    values = {name: getattr(budget, name) for name in Budget.__slots__}
    for day in ("starts_on", "ends_on"):
        values[day] = None if values[day] is None else values[day].isoformat()
    return values | {"hard": int(budget.hard)}


def _budget(row: dict[str, Any]) -> Budget:
    for day in ("starts_on", "ends_on"):
        row[day] = None if row[day] is None else date.fromisoformat(row[day])
    return Budget(**row | {"hard": bool(row["hard"])})
