"""One session of the demo account on a test installation, and what must hold after a crash."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import Any

from allotment_hub.host.probes import request

from allotment_testing.installation import Installation, wait_until
from allotment_testing.workloads import LocalProcesses, Workloads

__all__ = ["RESTART_LIMIT_S", "Session", "slots_taken"]

RESTART_LIMIT_S = 60.0
"""All is consistent this long after the restart, without a person."""
SERVICES = ("proxy", "agent", "broker", "hub")


def slots_taken(installation: Installation) -> int:
    """Slot rows in the broker's database, read past the broker."""
    file = installation.paths.broker_database
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM slots").fetchone()[0])


class Session:
    """One server of the demo account, asked for and watched through the public address."""

    def __init__(
        self,
        *,
        installation: Installation,
        server: str = "",
        user: str = "demo",
        environment: str = "minimal",
        workloads: Workloads | None = None,
    ) -> None:
        self._at = installation
        self._workloads = workloads or LocalProcesses(installation=installation)
        self._user = user
        self._environment = environment
        self._server = server
        self._path = f"/users/{user}/servers/{server}" if server else f"/users/{user}/server"

    @property
    def token(self) -> str:
        return self._at.connection.admin_token

    @property
    def url(self) -> str:
        return f"{self._at.connection.hub_url}/user/{self._user}/{self._server and self._server + '/'}"

    def ask(self, flavor: str) -> None:
        """Ask the hub to start it; a crash may eat the answer."""
        options = {"user_options": {"environment": self._environment, "flavor": flavor}}
        self._at.hub("POST", self._path, options, timeout_s=15)

    def ask_to_stop(self) -> None:
        self._at.hub("DELETE", self._path, timeout_s=15)

    def start(self, flavor: str) -> dict[str, Any]:
        """Start it, however often a service has just come back; the active lease."""
        self._until(lambda: self._start_once(flavor), "the session runs")
        found = self.newest()
        assert found is not None
        return found

    def stop(self) -> None:
        """Stop it and wait until hub, broker and machine agree that it is gone."""
        self._until(self._stop_once, "the session is gone")

    def settle(self, *, started: float) -> None:
        """Within the limit after a crash: services ready, and the session runs whole or is gone whole."""
        left = RESTART_LIMIT_S - (time.monotonic() - started)
        wait_until(
            lambda: all(self._at.ready(name) for name in SERVICES), what="services ready", limit_s=left
        )
        left = RESTART_LIMIT_S - (time.monotonic() - started)
        wait_until(self._consistent, what="hub, broker and machine agree", limit_s=left)

    def newest(self) -> dict[str, Any] | None:
        """Its latest lease, None when it never had one; waits for a broker that is just coming back."""
        found: list[dict[str, Any]] = self._answer(f"leases?user={self._user}&server={self._server}&limit=1")
        return found[0] if found else None

    def lease(self, lease_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._answer(f"leases/{lease_id}")
        return found

    def until_state(self, state: str) -> dict[str, Any]:
        wait_until(lambda: (self.newest() or {}).get("state") == state, what=f"its lease is {state}")
        found = self.newest()
        assert found is not None
        return found

    @property
    def reachable(self) -> bool:
        return request(f"{self.url}api/status", token=self.token).ok

    def kill_workload(self) -> None:
        self._workloads.kill(self._user, self._server)

    def refs(self) -> list[str]:
        """Processes or containers of this server on this machine."""
        return self._workloads.refs(self._user, self._server)

    def _services_ready(self) -> bool:
        return all(self._at.ready(name) for name in SERVICES)

    def _answer(self, path: str) -> Any:
        limit = time.monotonic() + RESTART_LIMIT_S
        while not (answer := self._at.broker(path)).ok:
            assert time.monotonic() < limit, (path, answer.status, answer.body[:300], answer.problem)
            time.sleep(0.1)
        return answer.json()

    def _model(self) -> dict[str, Any] | None:
        answer = self._at.hub("GET", f"/users/{self._user}?include_stopped_servers=1", timeout_s=10)
        if not answer.ok:
            return None
        server: dict[str, Any] = answer.json()["servers"].get(self._server, {})
        return server

    def _consistent(self) -> bool:
        model, lease = self._model(), self.newest()
        if model is None:
            return False
        state = None if lease is None else lease["state"]
        if model.get("ready"):
            return state == "active" and bool(self.refs())
        gone = not model.get("pending") and state in (None, "ended")
        return gone and not self.refs()

    def _start_once(self, flavor: str) -> bool:
        model, lease = self._model(), self.newest()
        if model is None or model.get("pending"):
            return False
        if not model.get("ready"):
            self.ask(flavor)
            return False
        return lease is not None and lease["state"] == "active"

    def _stop_once(self) -> bool:
        model = self._model()
        if model is None:
            return False
        if model.get("ready") or model.get("pending"):
            self.ask_to_stop()
            return False
        lease = self.newest()
        if lease is not None and lease["state"] == "queued":
            # the hub forgot the wait; the place is given up where it is kept
            self._at.broker(f"leases/{lease['id']}", method="DELETE")
            return False
        return (lease is None or lease["state"] == "ended") and not self.refs()

    @staticmethod
    def _until(done: Any, what: str) -> None:
        wait_until(done, what=what, limit_s=RESTART_LIMIT_S)
