"""Workloads as processes of this Unix user, told apart by the lease in their environment."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.base import Workload
from allotment_spawner.engines.procfs import Process, pids, read_process, send_signal
from allotment_spawner.launch.process import is_gate

__all__ = ["LocalEngine"]

_LOOK_EVERY_S = 0.05
_KILL_ROUNDS = 60


class LocalEngine:
    """The engine for trying out: one Unix user, no wall between people.

    `engine_ref` is the lease: all processes that carry it, with their sessions and children.
    `proc` is the proc file system to look at, `uid` that Unix user: our own if None. An ended process
    leaves nothing to observe, so a workload here is created (all of it waits at the gate) or running,
    never exited.
    """

    name = "local"
    places = True

    def __init__(self, *, installation: str, proc: Path = Path("/proc"), uid: int | None = None) -> None:
        self._installation = installation
        self._proc = proc
        self._uid = os.getuid() if uid is None else uid

    async def check(self) -> None:
        await self._look()

    async def observe(self) -> Sequence[Workload]:
        groups = await self._look()
        return [self._workload(lease, members) for lease, members in sorted(groups.items())]

    async def stop(self, engine_ref: str, *, grace_s: float) -> None:
        """TERM from the outermost process inwards, KILL to all that are left after `grace_s` seconds."""
        # Remembered for the whole stop: once the server is dead, a child that dropped its environment
        # could no longer be told from a stranger.
        known: dict[int, int] = {}
        if await self._gone(engine_ref, known, rounds=max(1, round(grace_s / _LOOK_EVERY_S)), kill=False):
            return
        # looked at anew each round: a process may fork while its siblings are being killed
        if not await self._gone(engine_ref, known, rounds=_KILL_ROUNDS, kill=True):
            raise EngineUnavailable(
                f"Processes of session {engine_ref} did not end even when killed.",
                "A process may be stuck in the kernel; its device stays reserved until it is gone.",
            )

    async def _gone(self, lease: str, known: dict[int, int], *, rounds: int, kill: bool) -> bool:
        asked: set[int] = set()
        for _ in range(rounds):
            members = await self._members(lease, known)
            if not members:
                return True
            inside = {one.pid for one in members}
            for one in members:
                # a notebook server asked alone ends its kernels in order; asked all at once it cannot
                if kill:
                    send_signal(self._proc, one, signal.SIGKILL)
                elif one.parent not in inside and one.pid not in asked:
                    asked.add(one.pid)
                    send_signal(self._proc, one, signal.SIGTERM)
            await asyncio.sleep(_LOOK_EVERY_S)
        return not await self._members(lease, known)

    async def _members(self, lease: str, known: dict[int, int]) -> list[Process]:
        """The lease's processes now; `known` (pid: started) is those of before, and grows."""
        members = (await self._look(lease, known)).get(lease, [])
        known.update({one.pid: one.started for one in members})
        return members

    async def _look(
        self, lease: str | None = None, known: Mapping[int, int] | None = None
    ) -> dict[str, list[Process]]:
        try:
            return await asyncio.to_thread(self._scan, lease, dict(known or {}))
        except OSError as error:
            raise EngineUnavailable(
                f"The process list {self._proc} cannot be read: {error.strerror}.",
                "Mount /proc and try again.",
            ) from error

    def _scan(self, known_lease: str | None, known: Mapping[int, int]) -> dict[str, list[Process]]:
        found = (read_process(self._proc, pid, uid=self._uid) for pid in pids(self._proc))
        processes = {one.pid: one for one in found if one is not None}
        lease_of = {
            one.pid: known_lease if known.get(one.pid) == one.started else self._own_lease(one)
            for one in processes.values()
        }
        groups: dict[str, list[Process]] = {}
        for one in processes.values():
            lease = _inherited_lease(one, processes, lease_of.get, self._installation)
            if lease:
                groups.setdefault(lease, []).append(one)
        return groups

    def _own_lease(self, process: Process) -> str | None:
        if process.env.get("ALLOTMENT_INSTALLATION") != self._installation:
            return None
        return process.env.get("ALLOTMENT_LEASE") or None

    def _workload(self, lease: str, members: Sequence[Process]) -> Workload:
        bearers = [one for one in members if one.env.get("ALLOTMENT_LEASE") == lease]
        # the oldest bearer is what the spawner started; younger ones could say anything
        first = min(bearers, key=lambda one: (one.started, one.pid))
        devices = first.env.get("ALLOTMENT_DEVICES", "")
        return Workload(
            engine_ref=lease,
            installation=self._installation,
            lease=lease,
            user=first.env.get("ALLOTMENT_USER"),
            server=first.env.get("ALLOTMENT_SERVER"),
            state="created" if all(is_gate(one.argv) for one in members) else "running",
            devices=tuple(part for part in devices.split(",") if part),
            pids=tuple(sorted(one.pid for one in members)),
        )


def _inherited_lease(
    process: Process,
    processes: dict[int, Process],
    lease_of: Callable[[int], str | None],
    installation: str,
) -> str | None:
    """The lease of the process itself, of its session's leader, or of the nearest ancestor.

    So `env -i` loses nobody; another installation's process is never counted as ours.
    """
    seen: set[int] = set()
    current: Process | None = process
    while current is not None and current.pid not in seen:
        seen.add(current.pid)
        if current.env.get("ALLOTMENT_INSTALLATION", installation) != installation:
            return None
        lease = lease_of(current.pid) or lease_of(current.session)
        if lease:
            return lease
        current = processes.get(current.parent)
    return None
