"""The broker's JSON as this package reads it; unknown members are ignored, so a newer broker is fine."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Device",
    "Environment",
    "ExpectedStart",
    "Explanation",
    "Flavor",
    "Health",
    "Lease",
    "Me",
    "Rule",
    "RuleDevice",
    "SavedEnvironment",
    "SavedPackage",
    "Version",
]


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Device(_Reply):
    """A leased device; `placement` is (start, size) on the GPU's memory axis, None for a whole GPU."""

    uuid: str
    node: str
    gpu_uuid: str
    profile: str | None = None
    placement: tuple[int, int] | None = None


class ExpectedStart(_Reply):
    earliest: datetime
    latest: datetime


class Lease(_Reply):
    """One lease. Times are aware UTC; `place` counts from 1 and is None outside the queue."""

    id: str
    kind: str
    user: str
    server: str
    environment: str
    flavor: str
    state: str
    devices: tuple[Device, ...] = ()
    place: int | None = None
    expected_start: ExpectedStart | None = None
    class_: Annotated[str | None, Field(alias="class")] = None
    granted_at: datetime | None = None
    active_at: datetime | None = None
    stopped_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: str | None = None
    price_per_hour: Decimal
    version: str | None = None
    datasets: tuple[str, ...] = ()
    charged_to: str | None = None
    cost: Decimal | None = None
    currency: str | None = None


class Flavor(_Reply):
    """What a person can pick. `free` and `total` are None for CPU flavors, `expected_wait_s` when unknown."""

    id: str
    title: str
    resources: dict[str, Any] = {}
    free: int | None = None
    total: int | None = None
    price_per_hour: Decimal
    currency: str
    available: bool
    reason: str | None = None
    expected_wait_s: float | None = None
    quote: dict[str, Any] | None = None


class Version(_Reply):
    """One image of an environment; `state` is offered, kept or retired."""

    version: str
    label: str
    digest: str
    state: str
    size_bytes: int | None = None
    made_at: datetime | None = None
    replaced_by: str | None = None
    packages: dict[str, str] = {}


class Environment(_Reply):
    id: str
    title: str
    description: str = ""
    packages: dict[str, str] = {}
    image: str | None = None
    available: bool
    reason: str | None = None
    versions: tuple[Version, ...] = ()
    minimum_driver: str | None = None
    minimum_compute_capability: str | None = None
    size_bytes: int | None = None
    reasons: dict[str, str] = {}
    notes: dict[str, str] = {}


class SavedPackage(_Reply):
    """One pinned package; `link` where it comes from an address instead of an index."""

    name: str
    version: str
    link: str | None = None
    hashes: tuple[str, ...] = ()


class SavedEnvironment(_Reply):
    """What somebody installed and wants others to have; `state` is asked, approved or refused."""

    name: str
    title: str
    owner: str
    base: str
    base_digest: str
    packages: tuple[SavedPackage, ...]
    checksum: str
    state: str
    note: str | None = None
    asked_at: datetime
    decided_at: datetime | None = None
    decided_by: str | None = None


class Rule(_Reply):
    """One rule that keeps a lease waiting, or refused it."""

    rule: str
    sentence: str


class RuleDevice(_Reply):
    """A device that matters for the rule. `holder` is a name for operators, else "another person"."""

    gpu_uuid: str
    placement: tuple[int, int] | None = None
    holder: str | None = None
    since: datetime | None = None
    lease: str | None = None


class Explanation(_Reply):
    """Why a lease waits, runs or ended, and what would help."""

    lease: str
    state: str
    sentence: str
    rules: tuple[Rule, ...] = ()
    devices: tuple[RuleDevice, ...] = ()
    help: tuple[str, ...] = ()


class Me(_Reply):
    """Whose token this is, and what kind of installation answers."""

    name: str
    operator: bool = False
    groups: tuple[str, ...] = ()
    currency: str | None = None
    engine: str | None = None
    simulated: bool | None = None
    version: str | None = None


class Health(_Reply):
    ready: bool
    version: str
