"""The machine as operators see it: GPUs, slices, holders, processes (`GET fleet`)."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

__all__ = ["Disk", "DiskPlace", "Fleet", "FleetGpu", "FleetProcess", "FleetSlice", "Part", "Stray", "Whole"]


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Part(_Reply):
    """The agent or the engine: does it answer, and if not, why."""

    name: str | None = None
    ok: bool
    problem: str | None = None


class FleetSlice(_Reply):
    """One slice. `state`: leased, idle, foreign, cutting, quarantined or held."""

    uuid: str | None = None
    profile: str
    start: int
    size: int
    state: str
    lease: str | None = None
    user: str | None = None
    since: datetime | None = None
    note: str | None = None


class Whole(_Reply):
    """A whole GPU. `state`: free, leased, blocked or quarantined."""

    state: str
    lease: str | None = None
    user: str | None = None
    since: datetime | None = None
    note: str | None = None


class FleetProcess(_Reply):
    pid: int
    device_uuid: str
    name: str | None = None
    explained: bool


class FleetGpu(_Reply):
    """One GPU. `axis` is its number of memory slices, 0 while MIG is off."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    pool: str | None = None
    mig: bool
    axis: int
    island: int = 0
    problem: str | None = None
    slices: tuple[FleetSlice, ...] = ()
    whole: Whole | None = None
    processes: tuple[FleetProcess, ...] = ()


class Stray(_Reply):
    """A workload that bears our label but whose lease nobody knows."""

    engine_ref: str
    note: str | None = None


class Fleet(_Reply):
    """None is unknown: the agent has not answered yet."""

    node: str | None = None
    boot_id: str | None = None
    simulated: bool | None = None
    driver_version: str | None = None
    agent: Part
    engine: Part
    gpus: tuple[FleetGpu, ...] = ()
    strays: tuple[Stray, ...] = ()


class DiskPlace(_Reply):
    """A folder by its use, and the room on its disk; None is unknown."""

    name: str
    path: str
    free_bytes: int | None = None
    low: bool = False


class Disk(_Reply):
    """`GET disk`: `ok` False means that nothing new is started, and `reason` why. `quota` "none": scratch
    folders are measured, not limited."""

    ok: bool
    reason: str | None = None
    places: tuple[DiskPlace, ...] = ()
    quota: str | None = None
