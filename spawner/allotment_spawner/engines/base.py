"""The small interface through which the broker sees what runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from allotment_spawner.core.samples import WorkloadSample

__all__ = ["Engine", "Sampler", "Workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """One container or process group that bears our installation's label.

    `lease` is read from the name or environment that the lease gave it, None when it cannot be told.
    `devices` are the device UUIDs it was made with. `exit_code` only when exited.
    """

    engine_ref: str
    installation: str
    lease: str | None
    user: str | None
    server: str | None
    state: Literal["created", "running", "exited"]
    devices: tuple[str, ...]
    pids: tuple[int, ...] = ()
    exit_code: int | None = None
    container_id: str | None = None
    """The platform's own id, where its name may change."""


class Engine(Protocol):
    """What runs workloads. Every method raises `EngineUnavailable` when it cannot tell or do."""

    name: str
    places: bool
    """Whether the broker's allocator chooses the device (False: the platform does)."""

    async def check(self) -> None:
        """Return when the engine answers and could start a workload."""

    async def observe(self) -> Sequence[Workload]:
        """All workloads of this installation, whatever their state; never others'."""

    async def stop(self, engine_ref: str, *, grace_s: float) -> None:
        """End and remove this one; return once it is gone. One that is gone already is no error."""


class Sampler(Protocol):
    """Tells how hard workloads work, apart from the engine so that neither waits for the other."""

    async def sample(self, workloads: Sequence[Workload]) -> Mapping[str, WorkloadSample]:
        """By lease; one that cannot be read is left out. Several workloads of one lease are added.

        `EngineUnavailable` when nothing can be told at all.
        """
