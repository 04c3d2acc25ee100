"""Budgets as the broker shows them; amounts are exact decimals in the site's currency or in GPU-hours."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from pydantic import BaseModel, ConfigDict

__all__ = ["Budget", "BudgetChange", "BudgetHistory"]


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Budget(_Reply):
    """`scope` is user or group; the name "*" of the scope user is each person's own."""

    id: str
    scope: str
    name: str
    unit: str
    amount: Decimal
    changes: Decimal
    used: Decimal
    left: Decimal
    period: str
    starts_on: str | None = None
    ends_on: str | None = None
    since: datetime
    until: datetime | None = None
    hard: bool
    owner: str | None = None
    note: str = ""
    closed_at: datetime | None = None

    @property
    def whose(self) -> str:
        """ "everybody", "user:ada", "group:physics": what the commands take, too."""
        return "everybody" if (self.scope, self.name) == ("user", "*") else f"{self.scope}:{self.name}"

    @property
    def unit_words(self) -> str:
        return "GPU-hours" if self.unit == "gpu_hours" else ""


class BudgetChange(_Reply):
    """What somebody did to a budget; `amount` of a `set` is that of each period."""

    id: str
    kind: str
    amount: Decimal
    period_from: datetime | None = None
    other: str | None = None
    reason: str = ""
    made_by: str
    made_at: datetime


class BudgetHistory(Budget):
    history: tuple[BudgetChange, ...] = ()
