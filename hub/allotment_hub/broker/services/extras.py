"""What a session gets besides its device: image, data, folders; each part checks, waits and completes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from allotment_spawner.core.errors import Refusal
from allotment_spawner.core.request import Request
from allotment_spawner.wire import Launch, LeaseRequest

from allotment_hub.broker.store.records import Lease

__all__ = ["Ask", "Extra", "Extras"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request that passed the rules for flavor and environment. `devices` None: no GPU wanted."""

    body: LeaseRequest
    groups: frozenset[str]
    devices: Request | None


class Extra(Protocol):
    """One part. All but `check` run on the event loop between two steps and must not wait."""

    @property
    def needs_groups(self) -> bool:
        """Whether the person's groups decide anything here, now."""

    async def check(self, ask: Ask) -> Mapping[str, Any]:
        """JSON members for the lease's `wants`, decided once, at the request. Raises a `Refusal`."""

    def ready(self, lease: Lease) -> bool:
        """Whether a grant makes sense now; a lease that is not ready keeps its place and holds nothing."""

    def problem(self, lease: Lease) -> Refusal | None:
        """Why this queued lease can never start any more; it ends refused."""

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        """The launch with this part's share, at the grant."""


class Extras:
    """All parts, one after the other."""

    def __init__(self, parts: Sequence[Extra]) -> None:
        self._parts = tuple(parts)

    @property
    def need_groups(self) -> bool:
        return any(part.needs_groups for part in self._parts)

    async def check(self, ask: Ask) -> dict[str, Any]:
        wants: dict[str, Any] = {}
        for part in self._parts:
            wants.update(await part.check(ask))
        return wants

    def ready(self, lease: Lease) -> bool:
        return all(part.ready(lease) for part in self._parts)

    def problem(self, lease: Lease) -> Refusal | None:
        return next((why for part in self._parts if (why := part.problem(lease)) is not None), None)

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        for part in self._parts:
            launch = part.complete(lease, launch)
        return launch
