"""What things cost, as catalog.yaml says it: zone, schedules, factors of classes and groups, storage."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["DAYS", "Factor", "Price", "PriceParts", "Prices", "QueueClass", "Schedule"]

Price = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=13, decimal_places=6)]
Factor = Annotated[Decimal, Field(ge=0, le=100, max_digits=9, decimal_places=6)]
Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
QueueClass = Literal["interactive", "normal", "preemptible"]
Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class PriceParts(_Section):
    """A flavor's price per hour in parts; what a person pays is their sum."""

    gpu: Price = Decimal(0)
    cpu: Price = Decimal(0)
    memory: Price = Decimal(0)

    @property
    def total(self) -> Decimal:
        return self.gpu + self.cpu + self.memory


class Schedule(_Section):
    """Another price at some hours, by the wall clock of `zone`: a factor of the flavor's, or a price.

    `days` are those on which it begins; a `to` that is not after `from` is on the next day, and 00:00 to
    00:00 is the whole day.
    """

    name: Word
    days: Annotated[tuple[Day, ...], Field(min_length=1)] = DAYS
    from_: Annotated[Clock, Field(alias="from")] = "00:00"
    to: Clock = "00:00"
    flavors: Literal["all"] | Annotated[tuple[Word, ...], Field(min_length=1)] = "all"
    factor: Factor | None = None
    price_per_hour: Price | None = None


class Prices(_Section):
    """The whole section; every key optional."""

    zone: str = "UTC"
    """An IANA name. Days, weeks and months of the books are this zone's too."""
    schedules: tuple[Schedule, ...] = ()
    classes: dict[QueueClass, Factor] = {}
    groups: dict[Annotated[str, Field(min_length=1, max_length=255)], Factor] = {}
    """Whoever is in several pays by the smallest factor."""
    storage_per_gib_hour: Price = Decimal(0)
    """For homes that are measured."""
    shortest_minutes: Annotated[int, Field(ge=1, le=1440)] = 10
    """What is left of a hard budget must pay for this long, or nothing is started."""
    refund_minutes: Annotated[int, Field(ge=0, le=10080)] = 60
    """Of a session that the platform broke, this much of its end is given back."""
