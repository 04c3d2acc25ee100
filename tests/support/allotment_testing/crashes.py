"""Death of the broker at a chosen step, and the invariants that must hold after every one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allotment_testing.broker_world import BrokerWorld

__all__ = ["Crash", "CrashPoint", "Invariants"]


class Crash(BaseException):
    """Stands for kill -9: no handler of the product may catch it."""


class CrashPoint:
    """`on_step` that raises at the n-th step from now and at every later one: the dead do nothing."""

    def __init__(self) -> None:
        self.dead = False
        self.died_at: str | None = None
        self._left: int | None = None

    def arm(self, steps: int) -> None:
        self._left = steps

    def disarm(self) -> None:
        self._left = None

    def __call__(self, step: str) -> None:
        if self.dead:
            raise Crash(step)
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0:
            self.dead, self.died_at = True, step
            raise Crash(step)


class Invariants:
    """Reads the database behind the broker's back and compares it with engine and hardware."""

    def __init__(self, world: BrokerWorld) -> None:
        self._world = world
        self._times: dict[str, dict[str, str]] = {}
        self._ended: set[str] = set()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        path: Path = self._world.paths.broker_database
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()

    def state_of(self, lease: str) -> str | None:
        with self._database() as database:
            row = database.execute("SELECT state FROM leases WHERE id = ?", (lease,)).fetchone()
            return None if row is None else str(row["state"])

    def unended(self) -> list[str]:
        with self._database() as database:
            rows = database.execute("SELECT id, state, note FROM leases WHERE state != 'ended'")
            return [f"{row['id']} {row['state']} {row['note']}" for row in rows]

    def slots(self) -> int:
        with self._database() as database:
            return int(database.execute("SELECT count(*) FROM slots").fetchone()[0])

    def check(self) -> None:
        with self._database() as database:
            leases = {row["id"]: row for row in database.execute("SELECT * FROM leases")}
            devices = database.execute("SELECT * FROM devices").fetchall()
            slots = database.execute("SELECT * FROM slots").fetchall()
        self._check_slots(leases, devices, slots)
        self._check_times(leases)
        self._check_running(leases, devices, {row["lease"] for row in slots})

        self._check_processes({row["lease"] for row in slots})

    def _check_processes(self, holders: set[str]) -> None:
        """A device is not free while a process of its lease is on it, container or not."""
        for process in self._world.agent.control.processes():
            lease = self._world.started.get(process.pid)
            assert lease is None or lease in holders, "a device was freed under a process"

    def healthy(self) -> dict[str, str]:
        """Active leases (lease -> person) whose container runs and whose server the hub calls ready."""
        running = {one.lease for one in self._world.engine.workloads.values() if one.state == "running"}
        ready = {key for key, state in self._world.hub.servers.items() if state == "ready"}
        with self._database() as database:
            rows = database.execute("SELECT id, user, server FROM leases WHERE state = 'active'").fetchall()
        return {
            row["id"]: row["user"]
            for row in rows
            if row["id"] in running and (row["user"], row["server"]) in ready
        }

    def _check_slots(
        self, leases: dict[str, sqlite3.Row], devices: list[sqlite3.Row], slots: list[sqlite3.Row]
    ) -> None:
        held: dict[str, set[tuple[str, str]]] = {}
        for row in slots:
            held.setdefault(row["lease"], set()).add((row["gpu_uuid"], row["slot"]))
        for lease in held:
            assert leases[lease]["state"] != "ended", "slots outlive their lease"
        for row in devices:
            if leases[row["lease"]]["state"] != "ended":
                size = 12 if row["start"] is None else row["size"]
                mine = [slot for slot in held.get(row["lease"], ()) if slot[0] == row["gpu_uuid"]]
                assert len(mine) >= size, "a device is held without its slots"
        live = [
            (row["user"], row["server"])
            for row in leases.values()
            if row["state"] in ("queued", "granted", "active")
        ]
        assert len(live) == len(set(live)), "two live leases for one server"

    def _check_times(self, leases: dict[str, sqlite3.Row]) -> None:
        names = ("created_at", "granted_at", "active_at", "stopped_at", "ended_at")
        for lease, row in leases.items():
            now = {name: row[name] for name in names if row[name] is not None}
            assert list(now.values()) == sorted(now.values()), f"times run backwards: {now}"
            for name, value in self._times.get(lease, {}).items():
                assert now.get(name) == value, f"{name} was rewritten"
            self._times[lease] = now
            if row["active_at"] is not None and row["state"] == "ended":
                assert row["stopped_at"] is not None, "a session ended without the end of its money"

    def _check_running(
        self, leases: dict[str, sqlite3.Row], devices: list[sqlite3.Row], holders: set[str]
    ) -> None:
        users: dict[str, str] = {}
        named = {row["uuid"]: row["lease"] for row in devices if row["lease"] in holders}
        for workload in self._world.engine.workloads.values():
            if workload.state != "running" or workload.lease not in leases:
                continue
            lease = leases[workload.lease]
            assert lease["confirmed_at"] is not None, "it runs without the fence"
            assert lease["state"] != "ended", "it runs though its lease has ended"
            for device in workload.devices:
                assert users.setdefault(device, workload.engine_ref) == workload.engine_ref, "held twice"
                assert named.get(device) in (workload.lease, None), "it runs on somebody else's device"
                if lease["end_reason"] != "node_restarted":
                    assert named.get(device) == workload.lease, "it runs on a device that is not held"

    def nothing_freed_since(self, before: set[str]) -> None:
        assert self.ended_holders() == before, "a device was freed though its state was unknown"

    def ended_holders(self) -> set[str]:
        """Granted leases with devices that have ended."""
        with self._database() as database:
            rows = database.execute(
                "SELECT DISTINCT leases.id FROM leases JOIN devices ON devices.lease = leases.id "
                "WHERE leases.state = 'ended' AND leases.granted_at IS NOT NULL"
            )
            return {row["id"] for row in rows}
