"""catalog.yaml: the flavors people pick, their prices, and who may use what."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from allotment_hub.prices import Price, PriceParts, Prices

__all__ = ["Catalog", "EnvironmentRule", "Flavor", "GpuWant"]

Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GpuWant(_Section):
    """Which device a flavor wants.

    slice: the smallest MIG profile with at least this nominal memory and these compute slices, no
    `+me`; whole: `count` whole cards.
    """

    kind: Literal["slice", "whole"]
    memory_gb: Annotated[int, Field(ge=1, le=2048)] | None = None
    compute_slices: Annotated[int, Field(ge=1, le=16)] = 1
    count: Annotated[int, Field(ge=1, le=16)] = 1


class Flavor(_Section):
    title: str
    description: str = ""
    gpu: GpuWant | None = None
    cpu: Annotated[float, Field(gt=0, le=1024)]
    memory_gib: Annotated[float, Field(gt=0, le=65536)]
    shm_gib: Annotated[float, Field(gt=0, le=4096)] = 1.0
    pids: Annotated[int, Field(ge=64, le=1_000_000)] = 4096
    price_per_hour: Price | PriceParts
    groups: Literal["everyone"] | tuple[str, ...] = "everyone"
    environments: Literal["all"] | tuple[Word, ...] = "all"

    @property
    def rate(self) -> Decimal:
        """Per hour, before schedules and factors."""
        price = self.price_per_hour
        return price.total if isinstance(price, PriceParts) else price


class EnvironmentRule(_Section):
    """Who may use an environment; what it holds stands in images/NAME/environment.yaml."""

    groups: Literal["everyone"] | tuple[str, ...] = "everyone"


class Catalog(_Section):
    """The whole file. Flavors are offered in this order."""

    flavors: dict[Word, Flavor]
    environments: dict[Word, EnvironmentRule]
    prices: Prices = Prices()
