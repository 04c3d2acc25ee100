"""Budgets as the wire shows them, and what may be asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Protocol

from allotment_spawner.core.errors import BadOptions
from allotment_spawner.money_wire import BudgetChangeView, BudgetHistory, BudgetView
from allotment_spawner.wire import ONE_LINE
from pydantic import BaseModel, ConfigDict, Field

from allotment_hub.accounting.budgeting import Period, Standing, Unit
from allotment_hub.broker.store.budgets import Budget, Change, Scope

__all__ = ["BudgetsApi", "NewBudget", "Reader", "Reason", "Setting", "history_of", "view_of"]

_SOMEBODY = "another person"
Amount = Annotated[Decimal, Field(ge=0, le=10**9, max_digits=16, decimal_places=6)]
Day = Annotated[date, Field(ge=date(2000, 1, 1), le=date(2199, 12, 31))]
Line = Annotated[str, Field(max_length=500, pattern=ONE_LINE)]
Reason = Annotated[Line, Field(min_length=1)]
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who looks. `person`: whose own budgets are meant; `everything`: an operator wants all of them."""

    name: str
    person: str | None
    operator: bool = False
    groups: frozenset[str] = frozenset()
    everything: bool = False


class Setting(BaseModel):
    """What may be changed of a budget, all of it at once. A term needs both days; of a total the first says
    from when on it counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    amount: Amount
    hard: bool
    owner: Name | None = None
    note: Line = ""
    starts_on: Day | None = None
    ends_on: Day | None = None
    reason: Line = ""

    def check_days(self, period: Period) -> None:
        """Raises `BadOptions`."""
        if period == "term":
            if self.starts_on is None or self.ends_on is None or self.ends_on < self.starts_on:
                raise BadOptions(
                    "A term begins on a day and ends on that or a later one.",
                    "Give both: starts_on and ends_on, or --from and --to of allot budget set.",
                )
        elif self.ends_on is not None or (self.starts_on is not None and period != "total"):
            raise BadOptions(
                f"A budget by the {period} has no such days." if period != "total" else "A total has no end.",
                "Leave them away, or choose the period term.",
            )


class NewBudget(Setting):
    """`name` "*" of the scope user: each person's own, for whoever has none of this unit by name."""

    scope: Scope
    name: Name
    unit: Unit
    period: Period


class BudgetsApi(Protocol):
    """Ids of budgets that are unknown, closed, or not the reader's to see raise `NoSuchBudget`."""

    async def listed(self, reader: Reader) -> list[BudgetView]:
        """The open ones: the person's own, of the groups, and owned ones."""

    async def one(self, reader: Reader, budget_id: str) -> BudgetHistory:
        """A closed one, too."""

    async def make(self, by: str, wanted: NewBudget) -> BudgetView:
        """Raises `NameTaken` and `BadOptions`."""

    async def set(self, by: str, budget_id: str, wanted: Setting) -> BudgetView: ...

    async def close(self, by: str, budget_id: str, reason: str) -> None:
        """From now on nothing counts against it; idempotent."""

    async def change(
        self, by: str, budget_id: str, more: Decimal, reason: str, key: str | None
    ) -> BudgetView:
        """Add to the current period, or take from it."""

    async def transfer(
        self, reader: Reader, source_id: str, target_id: str, more: Decimal, reason: str, key: str | None
    ) -> BudgetView:
        """Between the current periods of two budgets; the source afterwards."""


def view_of(row: Budget, standing: Standing, reader: Reader) -> BudgetView:
    known = row.owner is None or reader.operator or row.owner == reader.person
    return BudgetView(
        id=row.id,
        scope=row.scope,
        name=row.name,
        unit=row.unit,
        amount=row.amount,
        changes=standing.changes,
        used=standing.used,
        left=standing.left,
        period=row.period,
        starts_on=None if row.starts_on is None else row.starts_on.isoformat(),
        ends_on=None if row.ends_on is None else row.ends_on.isoformat(),
        since=standing.since,
        until=standing.until,
        hard=row.hard,
        owner=row.owner if known else _SOMEBODY,
        note=row.note,
        closed_at=row.closed_at,
    )


def history_of(view: BudgetView, changes: Sequence[Change], reader: Reader) -> BudgetHistory:
    """Who made a change reads only an operator, or who made it; what was done to a group's budget, and why,
    its owner, too, but not everybody in the group: a reason may name somebody."""
    mine = (
        view.scope == "user" or reader.operator or (reader.person is not None and view.owner == reader.person)
    )

    def shown(change: Change) -> BudgetChangeView:
        told = {name: getattr(change, name) for name in BudgetChangeView.model_fields}
        if not reader.operator and change.made_by != reader.person:
            told["made_by"] = _SOMEBODY
        return BudgetChangeView(**told)

    return BudgetHistory(**view.model_dump(), history=tuple(shown(change) for change in changes if mine))
