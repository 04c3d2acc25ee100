"""Models of the views that only the REST API shows: fleet and explanation."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "DeviceHold",
    "Explanation",
    "FleetView",
    "GpuView",
    "HealthView",
    "EngineHealthView",
    "ProcessView",
    "RuleView",
    "SliceView",
    "StrayView",
    "WholeView",
]


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HealthView(_View):
    """Whether a part answers; `problem` is a sentence when it does not."""

    ok: bool
    problem: str | None = None


class EngineHealthView(HealthView):
    name: str


class SliceView(_View):
    """One slice on its GPU's axis. `lease` and `user` only where it is leased; `note` for operators."""

    uuid: str | None
    profile: str
    start: int
    size: int
    state: Literal["leased", "idle", "foreign", "cutting", "quarantined", "held"]
    lease: str | None = None
    user: str | None = None
    since: datetime | None = None
    note: str | None = None


class WholeView(_View):
    """A GPU that is leased as a whole (MIG off)."""

    state: Literal["free", "leased", "blocked", "quarantined"]
    lease: str | None = None
    user: str | None = None
    since: datetime | None = None
    note: str | None = None


class ProcessView(_View):
    """A process on a device; `explained` when a lease's workload owns this pid."""

    pid: int
    device_uuid: str
    name: str | None
    explained: bool


class GpuView(_View):
    uuid: str
    index: int
    model: str
    memory_bytes: int
    pool: str | None
    mig: bool
    axis: int
    island: int
    problem: str | None
    slices: tuple[SliceView, ...]
    whole: WholeView | None
    processes: tuple[ProcessView, ...]


class StrayView(_View):
    """A workload with our label that no known lease explains: reported and held, never killed."""

    engine_ref: str
    note: str


class FleetView(_View):
    """Everything an operator sees of the machine. None = unknown (the agent never answered yet)."""

    node: str | None
    boot_id: str | None
    simulated: bool | None
    driver_version: str | None
    agent: HealthView
    engine: EngineHealthView
    gpus: tuple[GpuView, ...]
    strays: tuple[StrayView, ...]


class RuleView(_View):
    """One rule that decided, as a machine word and a sentence."""

    rule: str
    sentence: str


class DeviceHold(_View):
    """A device in the way. `holder` is "another person" and `lease` None unless an operator asks."""

    gpu_uuid: str
    placement: tuple[int, int] | None
    holder: str
    since: datetime | None
    lease: str | None


class Explanation(_View):
    """Why a lease waits, runs or was refused, and what would help."""

    lease: str
    state: str
    sentence: str
    rules: tuple[RuleView, ...]
    devices: tuple[DeviceHold, ...]
    help: tuple[str, ...]
