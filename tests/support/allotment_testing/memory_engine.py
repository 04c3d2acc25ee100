"""An engine whose containers are records: created, started, exited and removed as an engine does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.base import Workload

__all__ = ["MemoryEngine"]


class MemoryEngine:
    """Outlives every broker built on it, as a real engine does.

    `started_without_fence` collects leases whose workload was started though `may_start` said no.
    """

    places = True

    def __init__(self, *, installation: str, name: str = "docker") -> None:
        self.name = name
        self._installation = installation
        self.workloads: dict[str, Workload] = {}
        self.silent = False
        self.stops_fail = False
        self.stopped: list[str] = []
        self._next_pid = 40_000_000
        self.on_removed: Callable[[Workload], None] = lambda _workload: None

    def create(self, lease: str, *, user: str, server: str, devices: Sequence[str]) -> str:
        """A container that is not started; its name decides the lease, as in the product."""
        ref = f"allotment-{self._installation}-{lease}"
        self.workloads[ref] = Workload(
            engine_ref=ref,
            installation=self._installation,
            lease=lease,
            user=user,
            server=server,
            state="created",
            devices=tuple(devices),
        )
        return ref

    def start(self, ref: str) -> int:
        """KeyError when it was removed meanwhile. Returns its pid."""
        self._next_pid += 1
        self.workloads[ref] = replace(self.workloads[ref], state="running", pids=(self._next_pid,))
        return self._next_pid

    def exit(self, ref: str, code: int = 0) -> None:
        """The main process ended; the container is still listed."""
        self._forget_processes(ref)
        self.workloads[ref] = replace(self.workloads[ref], state="exited", pids=(), exit_code=code)

    def remove(self, ref: str) -> None:
        if ref in self.workloads:
            self._forget_processes(ref)
            del self.workloads[ref]

    def restart_without_live_restore(self) -> None:
        """All containers exit, as with a daemon that does not keep them."""
        for ref, workload in list(self.workloads.items()):
            if workload.state == "running":
                self.exit(ref, 137)

    def _forget_processes(self, ref: str) -> None:
        self.on_removed(self.workloads[ref])

    def of(self, lease: str) -> list[Workload]:
        return [workload for workload in self.workloads.values() if workload.lease == lease]

    async def check(self) -> None:
        self._answer()

    async def observe(self) -> Sequence[Workload]:
        self._answer()
        return tuple(self.workloads.values())

    async def stop(self, engine_ref: str, *, grace_s: float) -> None:
        self._answer()
        if self.stops_fail:
            raise EngineUnavailable("The container could not be stopped.", "It is tried again.")
        self.stopped.append(engine_ref)
        self.remove(engine_ref)

    def _answer(self) -> None:
        if self.silent:
            raise EngineUnavailable("The engine does not answer.", "Try again in a minute.")
