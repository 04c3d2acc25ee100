"""What the API answers of a session's samples."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["DeviceSeries", "Figure", "Figures", "LeaseMetrics", "Overall"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Figure(_Frozen):
    """One figure over time, an item for each of `LeaseMetrics.at`; null is unknown, never 0.

    `mean` and `max` of what goes up and down, `sum` of what is counted, `seen` of what holds a clock down.
    `missing`: for which share of the time, 0 to 1, it is unknown.
    """

    unit: str
    mean: list[float | None] | None = None
    max: list[float | None] | None = None
    sum: list[float | None] | None = None
    seen: list[list[str] | None] | None = None
    missing: list[float]


Figures = dict[str, Figure]


class Overall(_Frozen):
    """Of one figure from the beginning to the last full minute; `known_s`: for how long it was known."""

    unit: str
    known_s: float
    mean: float | None = None
    max: float | None = None
    sum: float | None = None
    seen: list[str] | None = None


class DeviceSeries(_Frozen):
    """A GPU or slice of the session. `card`: what belongs to the whole GPU, where this is a slice of it and
    only as long as the session had it: others may have worked on that GPU, too."""

    uuid: str
    gpu_uuid: str
    profile: str | None
    figures: Figures
    card: Figures | None
    overall: dict[str, Overall]


class LeaseMetrics(_Frozen):
    """`at`: begin of each window of `step_s` seconds, or the time of each sample where `level` is raw."""

    lease: str
    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    level: Literal["raw", "minute", "hour"]
    step_s: float
    at: list[datetime]
    workload: Figures
    devices: list[DeviceSeries]
    overall: dict[str, Overall]
    """Of the session's processes."""
