"""Models of the calls between spawner and broker, and of the public REST views."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.money_wire import Money, QuoteView

__all__ = [
    "ONE_LINE",
    "Activate",
    "Confirm",
    "DatasetView",
    "DeviceView",
    "EnvironmentView",
    "ExpectedStart",
    "FlavorView",
    "HomeView",
    "LastCall",
    "Launch",
    "LeaseEvent",
    "LeaseReply",
    "LeaseRequest",
    "LeaseView",
    "Money",
    "MountSpec",
    "MountView",
    "Name",
    "NoticeView",
    "Problem",
    "ScratchSpec",
    "StartsView",
    "VersionView",
    "Work",
]

Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9._-]*$")]


ONE_LINE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""One line that people write for others: nothing that a terminal obeys, breaks or reads backwards."""


Name = Annotated[str, Field(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Anything a hub may call a person or a server; no control characters (a NUL ends PostgreSQL's text)."""


Version = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
"""A version of an environment: the first 12 hex digits of its image's content id."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LeaseRequest(_Frozen):
    """Body of `POST leases`; header `Idempotency-Key` is one uuid per start()."""

    user: Annotated[Name, Field(min_length=1)]
    server: Name = ""
    environment: Word
    flavor: Word
    version: Version | None = None
    """An image of the environment by its digest; None is the one that is offered now."""
    datasets: Annotated[tuple[Word, ...], Field(max_length=50)] = ()
    """Data that must be on this machine before the session starts."""
    charge_to: Annotated[Name, Field(min_length=1)] | None = None
    """A group of the person that has a budget; None: the only one, or the first that can pay."""


class DeviceView(_Frozen):
    """A leased device. `placement` is [start, size] on the memory axis, None for a whole GPU."""

    uuid: str
    node: str
    gpu_uuid: str
    profile: str | None
    placement: tuple[int, int] | None


class ExpectedStart(_Frozen):
    earliest: datetime
    latest: datetime


class LeaseView(_Frozen):
    """One lease as its owner (or an operator) sees it. Times are RFC 3339 UTC.

    `class` is the queue class (attribute `class_`). `place` counts from 1, None when not queued.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str
    kind: Literal["session"]
    user: str
    server: str
    environment: str
    flavor: str
    state: LeaseState
    devices: tuple[DeviceView, ...]
    place: int | None
    expected_start: ExpectedStart | None
    class_: Annotated[str, Field(alias="class")]
    granted_at: datetime | None
    active_at: datetime | None
    stopped_at: datetime | None
    ended_at: datetime | None
    end_reason: EndReason | None
    price_per_hour: Money
    version: str | None = None
    datasets: tuple[str, ...] = ()
    charged_to: str | None = None
    cost: Money | None = None
    """So far, refunds taken off; None before it is granted."""
    currency: str | None = None


class MountSpec(_Frozen):
    """A folder of the host inside the workload; both paths absolute."""

    source: str
    target: str
    read_only: bool = True


class ScratchSpec(_Frozen):
    """A folder of the host for this lease alone, wiped at its end; mounted at /scratch and /tmp.

    `enforced`: whether the file system refuses more than `size_bytes`.
    """

    source: str
    size_bytes: int
    enforced: bool


class Launch(_Frozen):
    """What the spawner must make for a granted lease; a pure description, nothing secret.

    `image` and `image_digest` are None on the local engine. `devices` are device UUIDs (empty for CPU).
    `env` holds ALLOTMENT_URL, ALLOTMENT_LEASE, ALLOTMENT_DEVICES, ALLOTMENT_ENVIRONMENT,
    ALLOTMENT_VERSION, ALLOTMENT_FLAVOR and, on the local engine, CUDA_VISIBLE_DEVICES.
    `simulated` devices exist in no driver.
    """

    installation: str
    engine: str
    image: str | None
    image_digest: str | None
    cpu: float
    memory_bytes: int
    shm_bytes: int
    pids: int
    env: dict[str, str]
    devices: tuple[str, ...]
    simulated: bool
    pull: str | None = None
    """Where the image can be had (repository@digest) when this machine has it no more."""
    mounts: tuple[MountSpec, ...] = ()
    scratch: ScratchSpec | None = None


class Work(_Frozen):
    """Something on its way: a sentence ("Fetching imagenet: 34 %"), bytes so far and in all where known."""

    sentence: str
    got_bytes: int | None = None
    total_bytes: int | None = None


class LeaseReply(_Frozen):
    """Answer of POST leases, confirm, renew, active: the lease, its deadline and, once granted, `launch`."""

    lease: LeaseView
    deadline_at: datetime | None
    launch: Launch | None
    refusal: Problem | None = None
    """Why a lease that ended without running was refused; readable after the wait."""
    waits_for: Work | None = None
    """What a queued lease needs besides its device and does not have yet, such as a dataset on its way."""


class LeaseEvent(_Frozen):
    """One SSE event of `GET leases/{id}/events` (event name = `type`).

    queued: place or expected start changed; granted: `reply.launch` is there; ended: refused or over.
    """

    type: Literal["queued", "granted", "active", "ended"]
    reply: LeaseReply


class Confirm(_Frozen):
    """Body of `PUT leases/{id}/confirm`: the made but not yet started container or gated process."""

    engine_ref: Annotated[Name, Field(min_length=1)]


class Activate(_Frozen):
    """Body of `PUT leases/{id}/active`: the device UUIDs that the started workload really has."""

    devices_seen: tuple[Annotated[str, Field(max_length=128)], ...]


class FlavorView(_Frozen):
    """One flavor for one person. `free` devices could start now; `total` is what the hardware could hold.

    `resources`: {"gpu": {"kind": "slice"|"whole"|"none", "profile": str|None, "count": int,
    "memory_bytes": int|None, "model": str|None}, "cpu": float, "memory_bytes": int}.
    For CPU flavors free and total are None (no device is counted).
    `available` is False only when it can never start for this person now (reason says why); a flavor
    that is merely taken is available with free = 0 (one may queue).
    """

    id: str
    title: str
    resources: dict[str, object]
    free: int | None
    total: int | None
    price_per_hour: Money
    currency: str
    available: bool
    reason: str | None
    expected_wait_s: float | None
    quote: QuoteView | None = None


class StartsView(_Frozen):
    """Whether anything new is started now, whatever it is; `reason` says why not (a disk is full)."""

    ok: bool
    reason: str | None


class VersionView(_Frozen):
    """One image of an environment. `offered`: what a start without a version takes.

    `kept` ones start for who names them; `retired` ones start no more, `replaced_by` is the version to take.
    """

    version: str
    label: str
    digest: str
    state: Literal["offered", "kept", "retired"]
    size_bytes: int | None
    made_at: datetime | None
    replaced_by: str | None
    packages: dict[str, str]


class EnvironmentView(_Frozen):
    """One environment for one person; `packages` maps names to versions, `versions` newest first."""

    id: str
    title: str
    description: str
    packages: dict[str, str]
    image: str | None
    available: bool
    reason: str | None
    versions: tuple[VersionView, ...] = ()
    minimum_driver: str | None = None
    minimum_compute_capability: str | None = None
    size_bytes: int | None = None
    reasons: dict[str, str] = {}
    """Flavor id -> why this environment, though available, cannot run on it."""
    notes: dict[str, str] = {}
    """Flavor id -> what to know before they are taken together (CPU builds leave a GPU unused)."""


class MountView(_Frozen):
    """A shared folder that this person's sessions see at `path`."""

    name: str
    title: str
    path: str
    writable: bool


class DatasetView(_Frozen):
    """Data that a person may ask for; `path` is where a session sees it, read-only.

    `state`: absent (fetched when somebody asks), fetching, ready, failed (`reason` says why).
    """

    name: str
    title: str
    description: str
    licence: str
    path: str
    size_bytes: int | None
    got_bytes: int | None
    state: Literal["absent", "fetching", "ready", "failed"]
    reason: str | None
    pinned: bool


class HomeView(_Frozen):
    """How full a home is. None = unknown: never measured, or no limit."""

    user: str
    used_bytes: int | None
    files: int | None
    limit_bytes: int | None
    enforced: bool
    """Whether the file system itself refuses more than `limit_bytes`."""
    measured_at: datetime | None
    state: Literal["live", "archived", "erased"]
    warning: str | None


class NoticeView(_Frozen):
    """Something a running session is told. `stop_at`: the session ends then."""

    id: str
    level: Literal["info", "warning", "error"]
    sentence: str
    next_step: str
    made_at: datetime
    stop_at: datetime | None


class LastCall(_Frozen):
    """Answer of `POST leases/{id}/last-call`, before a server is stopped.

    `listeners` pages of the session were told; `answered` of them in time. `saved` and `failed` count
    documents; those of a page that did not answer are in neither.
    """

    listeners: int
    answered: int
    saved: int
    failed: int


class Problem(_Frozen):
    """RFC 9457 problem; `type` is `urn:allotment:problem:<code>`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    next_step: str


LeaseReply.model_rebuild()
