"""What was spent, as the broker reports it; money and seconds are exact decimals."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Entry", "Usage", "UsageRow"]


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Entry(_Reply):
    """One entry of the ledger; `kind` is usage, storage, refund or correction."""

    id: str
    kind: str
    owner: str
    charged_to: str | None = None
    lease: str | None = None
    volume: str | None = None
    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    seconds: Decimal
    gpu_seconds: Decimal
    amount: Decimal
    currency: str
    flavor: str | None = None
    environment: str | None = None
    reason: str = ""
    made_at: datetime
    refers_to: str | None = None


class UsageRow(_Reply):
    """Entries that have `key` in common; "" where they have none."""

    key: dict[str, str]
    amount: Decimal
    seconds: Decimal
    gpu_seconds: Decimal
    entries: int


class Usage(_Reply):
    """`running`: what sessions that run have cost and no entry says yet; it is not in `total`."""

    total: Decimal
    currency: str
    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    group_by: tuple[str, ...] = ()
    rows: tuple[UsageRow, ...] = ()
    entries: tuple[Entry, ...] = ()
    running: Decimal = Decimal(0)
    other_currencies: tuple[str, ...] = ()
    next: str | None = None
