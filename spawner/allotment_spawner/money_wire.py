"""Models of what things cost: quotes, budgets, entries, usage. Amounts are exact decimals, as text."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

__all__ = [
    "BudgetChangeView",
    "BudgetHistory",
    "BudgetView",
    "EntryView",
    "Money",
    "PriceChange",
    "QuoteBudget",
    "QuoteView",
    "UsageRow",
    "UsageView",
]

Money = Annotated[Decimal, PlainSerializer(lambda value: format(value, "f"), return_type=str)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PriceChange(_Frozen):
    at: datetime
    price_per_hour: Money


class QuoteBudget(_Frozen):
    """A budget that a start would count against. `unit` money: in the site's currency."""

    id: str
    scope: Literal["user", "group"]
    name: str
    unit: Literal["money", "gpu_hours"]
    limit: Money
    left: Money
    """Running sessions taken off; below 0 when it is overdrawn."""
    hard: bool
    period: Literal["week", "month", "term", "total"]
    until: datetime | None
    """When its period ends."""
    lasts_s: float | None
    """How long what is left pays for this flavor, beside what runs already; None: it costs nothing."""


class QuoteView(_Frozen):
    """What one flavor would cost this person now, and for how long that can be paid."""

    price_per_hour: Money
    currency: str
    changes: tuple[PriceChange, ...]
    """In the next 24 hours, as the schedules say."""
    charge_to: str | None
    """Which group's budget it would count against."""
    may_charge: tuple[str, ...]
    """The person's groups that have a budget."""
    choices: tuple[QuoteBudget, ...] = ()
    """The budgets of those groups, for who chooses among them."""
    budgets: tuple[QuoteBudget, ...]
    lasts_s: float | None
    """Until the first hard budget is used up; None: no end in sight."""
    longest_s: float | None
    """How long a session of this flavor may run at a time; None: no limit."""
    minimum: Money
    """The price of the shortest time that must be payable."""
    refusal: str | None
    """Why a start would be refused now: the budget, with the sum that lacks, or a limit."""


class EntryView(_Frozen):
    """One entry of the ledger. `seconds` and `amount` are exact decimals as text.

    `kind`: usage, storage, refund, correction. Usage is of one lease and one day of the site's zone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str
    kind: Literal["usage", "storage", "refund", "correction"]
    owner: str
    charged_to: str | None
    lease: str | None
    volume: str | None
    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    seconds: Money
    gpu_seconds: Money
    amount: Money
    currency: str
    flavor: str | None
    environment: str | None
    reason: str
    made_at: datetime
    refers_to: str | None


class UsageRow(_Frozen):
    """One group of entries; `key` holds what they have in common, by the names in `group_by`."""

    key: dict[str, str]
    amount: Money
    seconds: Money
    gpu_seconds: Money
    entries: int


class UsageView(_Frozen):
    """Entries that begin in [from, to). `total` is their sum and that of the rows, to the last digit.

    `running`: what the sessions that run now have cost and is not in an entry yet; not in `total`.
    `next`: give it as `after` to get the entries that follow; None when these are the last ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    total: Money
    currency: str
    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    group_by: tuple[str, ...]
    rows: tuple[UsageRow, ...]
    entries: tuple[EntryView, ...]
    running: Money
    other_currencies: tuple[str, ...] = ()
    """Of entries that are in this time and in none of these sums: two currencies are never added."""
    next: str | None = None


class BudgetView(_Frozen):
    """A budget with what happened in its current period. Amounts in the site's currency or in GPU-hours.

    scope user, name "*": each person's own, for everybody who has none by name.
    """

    id: str
    scope: Literal["user", "group"]
    name: str
    unit: Literal["money", "gpu_hours"]
    amount: Money
    """Of every period, before changes."""
    changes: Money
    """Transfers and corrections of this period."""
    used: Money
    """Entries of this period, and what running sessions have cost since."""
    left: Money
    period: Literal["week", "month", "term", "total"]
    starts_on: str | None
    ends_on: str | None
    since: datetime
    until: datetime | None
    hard: bool
    owner: str | None
    note: str
    closed_at: datetime | None = None


class BudgetChangeView(_Frozen):
    """What somebody did to a budget; kept for good.

    set: `amount` is that of each period from then on. change, transfer: it was added to the period that began
    at `period_from`, or taken from it; `other` is the second budget of a transfer. close: the budget's end.
    """

    id: str
    kind: Literal["set", "change", "transfer", "close"]
    amount: Money
    period_from: datetime | None
    other: str | None
    reason: str
    made_by: str
    made_at: datetime


class BudgetHistory(BudgetView):
    """A budget with its last changes, the newest first."""

    history: tuple[BudgetChangeView, ...]
